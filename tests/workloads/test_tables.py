"""The contract can say what the four field reports ask for: every toggle, level, class and claim."""

from __future__ import annotations

from types import ModuleType

import pytest
from tables import latentwire, probe1d, prover, spd

from perfsweep.workloads.api import Parity, Toggle

TABLES: dict[str, ModuleType] = {"probe1d": probe1d, "spd": spd, "prover": prover, "latentwire": latentwire}

CLASSES = {"E": Parity.EXACT, "T": Parity.TOLERANCE, "S": Parity.STOCHASTIC}

# Toggle: its levels, baseline first, with their class (exact, tolerance, stochastic); +: numbers too.
DECLARED = {
    "probe1d": """
        solver: naive:E late:T newton:T
        consistent_stop: seed:E mismatch:E scaled:T
        skip_zero_grad: off:E exact:E tol:T
        freeze_failed: 0:E 3:T +:T
        active_set: off:E pair:T
        cache_row_idx: off:E on:E
        cast_once: off:E on:E
        chunk_events: 32768:E 262144:E 1048576:E 4194304:E auto:E +:E
        slab_size: 8:E 1:E 4:E 32:E all:E +:E
        qx_stat: rms:E rms_free:E meanabs:T max:T p95:T
        precision: f32:E f64:T f32acc64:T
        label_free: off:E on:E
        csc_layout: off:E on:E
        compile: off:E on:E
        fused_kernel: off:E on:E
        confusion_search: off:E on:E
        warm_start: off:E on:T
        timing_hook: off:E on:E profiler:E
        no_sync_log: off:E on:E
        caching_allocator: on:E off:E
    """,
    "spd": """
        pin_memory: off:E on:E
        num_workers: 0:E 2:E 4:E 8:E +:E
        compile: off:E ci_fns:T target:T losses:T breaks:T masked_pass:T full:T
        non_blocking: off:E on:E
        prefetch: off:E stream:E
        tf32: off:E on:T
        amp: off:E bf16:T fp16:T
        patching: temp_hooks:E persistent_hooks:E wrapper:E
        prefix_reuse: off:E on:E
        routed_rows: all:E gathered:E
        delta: naive:E cached_w:E folded:E
        unmasked_form: two_step:E fused:E
        stack_modules: loop:E stacked:E
        pgd_inner: full:E detached:E
        pgd_layerwise: all_modules:E single:E
        pgd_steps: n:E schedule:S larger:S every_k:S persistent:S
        checkpoint: sync:E async:E
        wandb_logging: each:E commit_false:E buffered:E
        gc: each_eval:E rarely:E frozen:E oom_only:E
        grad_checkpointing: off:E per_block:E
        free_early: off:E on:E
        profiler: off:E events:E torch:E
        metrics: every_step_item:E deferred:E
        mask_checks: sync:E off:E
        target_softmax: recompute:E cached:E
        micro_batch: loop:E whole:E
        draws: torch:E native:E
        products: library:E native:E
        optimizer: default:E foreach:E fused:E
        cuda_graph: off:E on:E
        fused_target_ops: off:E on:E
        component_kernel: eager:E fused:E
        gradients: autograd:E formulas:E native:E
        loader: torch:E memmap_batched:E gpu_resident:E
    """,
    "prover": """
        slab_size: all:E 512:E auto:E +:E
        pad_to_slab: off:E done_row:E
        warmup: tiny:E exact:E
        slab_search: fixed512:E ladder:E
        early_exit_all: off:E sync:E every_k:E async_lag1:E
        skip_done: none:E where_mask:E compact:E
        refill: off:E queue:E
        compile: off:E default:E reduce_overhead:E max_autotune:E
        compile_cache: cold:E shared:E
        corruptions: per_chunk:E all:E stream:E
        fact_index: dense:E csr:E
        pack_width: wide26:E tight:E
        rule_pairs: pad100:E exact:E ragged:E
        index_dtype: int64:E int32:E int16:E
        policy_rows: padded:E row_budget:E ragged:E
        obs_reuse: off:E on:E
        const_states: off:E on:E
        forced_skip: off:E on:E
        fold: off:E on:E
        dedup: off:E step:E global:E
        tf32: off:E on:T
        compaction: sort:E scan:E
        screen16: off:E on:T
        expand_kernel: torch:E triton:E native:E
        select_kernel: torch:E native:E
        fused_trunk: off:E on:E
    """,
    "latentwire": """
        pin_memory: off:E on:E
        non_blocking: off:E on:E
        prefetch: off:E stream:E
        resident_data: off:E on:E
        loader: index:E dataloader:E resident_index:E
        num_workers: 0:E 2:E 4:E +:E
        tokenise: per_batch:E pre:E cache:E
        accum: graph_sum:E backward_each:E
        model_backward: joint:E per_model:E
        micro_batch: 1:E 8:E 32:E 64:E auto:E +:E
        effective_batch: 64:E 256:S 1024:S +:S
        k_loss: sequential:E kv:E batched:E
        passes: separate:E merged:E
        logits: all:E slice:E
        last_block: full:E pruned:E
        teacher: recompute:E slice:E slice_header:E cache_h:E
        encoder_trim: full_512:E batch_max:E
        encoder_attn: sdpa:E native:E
        answer_trim: full:E batch_max:E
        calibration: per_step:E once:E
        attn: eager:E sdpa:E flash:T
        lm_dtype: fp32:E bf16:T
        amp: off:E bf16:T fp16:T
        products: library:E native:E
        optimizer: default:E foreach:E fused:E
        sync: chatty:E late:E
        grad_checkpointing: off:E on:E selective:E
        bucket: off:E window:E global:S
        compile: off:E block:T reduce_overhead:T
        empty_cache: never:E epoch:E step:E
        parallel: single:E layer_split:E ddp:E model_per_gpu:E fsdp:E
        oom: die:E backoff:E
        decode: per_row:E batched:E
    """,
}

# Sections and numbered items of the reports; each is claimed about at least once.
SECTIONS = {
    "probe1d": ["Context", "Profiling plan", "Suspected bottlenecks", "Ideas to try", "Open questions"],
    "spd": [
        *(
            "1.1",
            "1.2",
            "2.1",
            "2.1.1",
            "2.1.2",
            "2.1.3",
            "2.1.4",
            "2.2",
            "3.1",
            "3.2",
            "4",
            "4.1",
            "4.2",
            "4.3",
        ),
        *("5.1", "5.2", "6.1", "6.2", "6.3", "6.4", "7.1", "7.2", "8.1", "8.2", "8.3", "9.1", "9.2", "9.3"),
        *(f"Priority {number}" for number in range(1, 12)),
        *("Priority 1-4", "Quick start", "4 and 2"),
    ],
    "prover": [
        *(f"Issue {number}" for number in range(1, 5)),
        *(f"Future {number}" for number in range(1, 7)),
        *(f"Recommendation {number}" for number in range(1, 6)),
        "Current performance",
    ],
    "latentwire": [
        *(str(number) for number in range(1, 9)),
        *(f"Quick win {number}" for number in range(1, 5)),
        *(f"Medium term {number}" for number in range(1, 4)),
        *(f"Architecture {number}" for number in range(1, 4)),
        *(f"Memory {number}" for number in range(1, 5)),
        *("Estimated gains", "Monitoring", "Validation", "Risks", "Conclusion"),
    ],
}

NAMES = list(TABLES)


def stated(toggle: Toggle) -> str:
    """A toggle as it stands in `DECLARED`."""
    letters = {parity: letter for letter, parity in CLASSES.items()}
    levels = [(str(level.value), level.parity) for level in toggle.levels]
    if toggle.numbers:
        levels.append(("+", toggle.numbers.like.parity))
    return f"{toggle.name}: " + " ".join(f"{value}:{letters[parity]}" for value, parity in levels)


@pytest.mark.parametrize("table", NAMES)
def test_every_toggle_has_exactly_the_levels_and_classes_of_the_report(table: str) -> None:
    expected = [line.strip() for line in DECLARED[table].strip().splitlines()]
    assert [stated(toggle) for toggle in TABLES[table].TOGGLES] == expected


@pytest.mark.parametrize("table", NAMES)
def test_every_section_of_the_report_is_claimed_about(table: str) -> None:
    assert {claim.section for claim in TABLES[table].CLAIMS} == set(SECTIONS[table])


@pytest.mark.parametrize("table", NAMES)
def test_no_claim_is_made_twice(table: str) -> None:
    seen = [
        (claim.section, claim.text, claim.kind, tuple(map(str, claim.arms))) for claim in TABLES[table].CLAIMS
    ]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("table", NAMES)
def test_every_level_off_the_baseline_names_what_it_changes(table: str) -> None:
    """Without a witness a level that does nothing would pass for one that gains nothing."""
    silent = {
        ("caching_allocator", "off"),  # the process either has the variable or not
        ("consistent_stop", "mismatch"),  # a baseline itself, wherever it is legal
    }
    for toggle in TABLES[table].TOGGLES:
        others = [*toggle.levels[1:], *([toggle.numbers.like] if toggle.numbers else [])]
        for level in others:
            assert level.witness or (toggle.name, level.value) in silent, f"{toggle.name}={level.value}"


@pytest.mark.parametrize("table", NAMES)
def test_numbers_have_what_the_named_numbers_have(table: str) -> None:
    """The unnamed neighbour of a named number must not slip past its requirements or its class."""
    for toggle in TABLES[table].TOGGLES:
        named = [level for level in toggle.levels[1:] if not isinstance(level.value, str)]
        for level in named if toggle.numbers else []:
            like = toggle.numbers.like  # type: ignore[union-attr]
            assert (level.requires, level.conflicts, level.refused) == (
                like.requires,
                like.conflicts,
                like.refused,
            )
            assert (level.parity, level.bounds, level.witness) == (like.parity, like.bounds, like.witness)
