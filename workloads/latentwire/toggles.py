"""What can be switched in a LatentWire training, and what the switches may change.

Declarations only: neither torch nor the code they describe is imported. Every level but the first names a
*witness*, a counter that differs from the baseline's when the level acts.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import (
    Baseline,
    Check,
    Comparator,
    Device,
    Level,
    Levels,
    Numbers,
    Parity,
    Toggle,
)
from perfsweep.workloads.latentwire.presets import KINDS

CHECKS = (
    Check("terms", Comparator.RELATIVE),  # each loss term and the total, of a fixed probe batch
    Check("grad_norm", Comparator.RELATIVE),
    Check("gradient", Comparator.RELATIVE),
    Check("gradient_direction", Comparator.COSINE),
    # Once a runner-up is within rounding, another choice is legitimate, and so is all that follows it.
    Check("greedy_ids", Comparator.IDENTICAL, excused="greedy_close"),
    # AdamW turns rounding of zero gradients into steps, so losses are compared after some, not weights.
    Check("losses", Comparator.RELATIVE, bound=1e-3),
)

HALF = {
    "terms": 1e-2,
    "grad_norm": 1e-2,
    "gradient": 2e-2,
    "gradient_direction": 1e-3,
    "losses": 2e-2,
    "replay/*": 2e-2,
}
COMPILED = {"terms": 1e-5, "grad_norm": 1e-5, "gradient": 1e-5}
REDUCED = {"terms": 1e-5, "grad_norm": 1e-5, "gradient": 1e-5}  # summed over ranks in another order
UPDATED = {"terms": 1e-6, "grad_norm": 1e-6, "gradient": 1e-6}  # one update, in one kernel


def effective_batch(baseline: int) -> Toggle:
    """The toggle of that name, whose baseline is the batch of a preset."""
    other = Level(0, parity=Parity.STOCHASTIC, refused=_few_examples, witness="examples_per_step")
    return Toggle(
        "effective_batch",
        (
            Level(baseline, refused=_few_examples),
            *(dataclasses.replace(other, value=size) for size in (256, 1024)),
        ),
        "examples of one optimiser step",
        "5",
        Numbers(1, like=other),
    )


@functools.lru_cache(maxsize=8)
def _examples(file: str, data_format: str, unanswerable: str, written: int) -> int:
    """Examples of a file as it was `written`, those that no training can use among them."""
    from perfsweep.workloads.latentwire.data import readers

    return len(readers.read(Path(file), data_format, unanswerable))


def _few_examples(config: Any, levels: Levels) -> str | None:
    data = getattr(config, "data", KINDS[0])
    if data in KINDS or not Path(data).is_file():
        return None
    found = _examples(data, config.data_format, config.unanswerable, Path(data).stat().st_mtime_ns)
    there = config.data_n or found - config.held_out
    if int(levels["effective_batch"]) <= there:
        return None
    return (
        f"workload.data={config.data} has {there} examples without the {config.held_out} that"
        " workload.held_out keeps for the evaluation: give more examples, or toggles.effective_batch from 1"
        f" to {there}"
    )


def _micro_batch(config: Any, levels: Levels) -> str | None:
    piece, whole = levels["micro_batch"], levels["effective_batch"]
    for option in ("manifold", "adaptive_first"):
        if getattr(config, option, False) and piece != whole:
            return f"workload.{option}=true takes statistics of the whole batch: use micro_batch={whole}"
    if not isinstance(piece, str) and piece > whole:  # type: ignore[operator]
        return f"a piece cannot be larger than effective_batch={whole}"
    return None


def _layer_states(config: Any, levels: Levels) -> str | None:
    return (
        "workload.state_kd=true needs states of several layers, and the cache holds the last"
        if config.state_kd
        else None
    )


def _single_model(config: Any, levels: Levels) -> str | None:
    return (
        None
        if config.model_count > 1
        else f"workload.models={config.model_count} leaves the other GPUs without a model"
    )


def _half(levels: Levels) -> bool:
    return levels["lm_dtype"] != "fp32" or levels["amp"] != "off"


def _rounded_in_half(config: Any, levels: Levels) -> Parity | None:
    return Parity.TOLERANCE if _half(levels) else None


def _other_dropout(config: Any, levels: Levels) -> Parity | None:
    return Parity.STOCHASTIC if config.dropout else None


def _needs_cpu_compiler(device: Device) -> str | None:
    if device.type != "cpu":
        return f"a kernel for CPUs, and this is {device.type}"
    return None if device.compiler else "needs a C++ compiler and none is on PATH"


def _needs_two_gpus(device: Device) -> str | None:
    return None if device.type == "cuda" and device.count > 1 else "needs two GPUs"


def _on(**own: Any) -> tuple[Level, ...]:
    return Level("off"), Level("on", **own)


_TOKENISED: dict[str, Any] = {"requires": {"tokenise": ("pre", "cache")}}
_CACHED: dict[str, Any] = {**_TOKENISED, "refused": _layer_states, "witness": "teacher_rows"}
_RANKS: dict[str, Any] = {
    "ranks": 2,
    "bounds": REDUCED,
    "unsupported": shared.needs_ranks,
    "witness": "ranks",
}
_PIECES: dict[str, Any] = {"refused": _micro_batch, "witness": "micro_steps"}

TOGGLES = (
    shared.pin_memory(every={"witness": "pinned_batches"}, source="1"),
    shared.non_blocking(every={"witness": "unwaited_copies"}, source="1"),
    shared.prefetch(every={"witness": "prefetched_batches"}, source="1"),
    Toggle("resident_data", _on(witness="host_copies", **_TOKENISED), "keep all tokens on the device", "1"),
    Toggle(
        "loader",
        (
            Level("index"),
            Level("dataloader", conflicts={"resident_data": ("on",)}, witness="loader_batches"),
            Level("resident_index", requires={"resident_data": ("on",)}, witness="loader_batches"),
        ),
        "pick rows by an index list, by a DataLoader, or on the device",
        "2",
    ),
    shared.num_workers(
        every={"requires": {"loader": ("dataloader",)}, "witness": "worker_batches"}, source="2"
    ),
    Toggle(
        "tokenise",
        (
            Level("per_batch"),
            Level("pre", witness="rows_tokenised"),
            Level("cache", witness="rows_tokenised"),
        ),
        "tokenise in every step, once before training, or once for all runs",
        "3",
    ),
    Toggle(
        "accum",
        (Level("graph_sum"), Level("backward_each", witness="graphs_kept")),
        "sum losses of pieces before one backward pass, or run one for each",
        "4",
    ),
    Toggle(
        "model_backward",
        (
            Level("joint"),
            Level("per_model", requires={"accum": ("backward_each",)}, witness="backward_calls"),
        ),
        "one backward pass for all models, or one for each",
    ),
    shared.micro_batch(
        *(1, 8, 32, 64, "auto"), every=_PIECES, each={1: {"refused": _micro_batch}}, source="5"
    ),
    effective_batch(64),
    Toggle(
        "k_loss",
        (
            Level("sequential"),
            Level("kv", witness="student_positions"),
            Level("batched", witness="student_positions"),
        ),
        "early answer tokens by a pass each, with kept keys and values, or in one pass",
        "6 and 8",
    ),
    Toggle(
        "passes",
        (Level("separate"), Level("merged", requires={"k_loss": ("batched",)}, witness="student_passes")),
        "a student pass for each loss, or one for all",
    ),
    Toggle(
        "logits",
        (Level("all"), Level("slice", witness="head_rows")),
        "the head on all positions, or on the answer",
    ),
    Toggle(
        "last_block",
        (
            Level("full"),
            Level("pruned", requires={"logits": ("slice",), "passes": ("merged",)}, witness="lm_flops"),
        ),
        "the last block on all positions, or on positions that are read",
    ),
    Toggle(
        "teacher",
        (
            Level("recompute"),
            Level("slice", witness="teacher_head_rows"),
            Level("slice_header", witness="teacher_positions"),
            Level("cache_h", **_CACHED),
        ),
        "the teacher's pass: whole, read where needed, with a shared header, or from a cache",
        "8",
    ),
    Toggle(
        "encoder_trim",
        (Level("full_512"), Level("batch_max", witness="encoder_positions")),
        "encode all bytes, or as many as the longest row has",
        "Architecture 3",
    ),
    Toggle(
        "encoder_attn",
        (
            Level("sdpa"),
            Level(
                "native", unsupported=_needs_cpu_compiler, loosened=_other_dropout, witness="encoder_kernels"
            ),
        ),
        "the encoder by PyTorch's kernels over padded rows, or by one for its narrow heads over rows without"
        " padding",
        "Architecture 3",
    ),
    Toggle(
        "answer_trim",
        (
            Level("full"),
            Level(
                "batch_max", conflicts={"compile": ("block", "reduce_overhead")}, witness="student_positions"
            ),
        ),
        "answers padded to their limit, or to the longest of the batch in steps of four",
    ),
    Toggle(
        "calibration",
        (Level("per_step"), Level("once", witness="table_reads")),
        "the scale of the embedding table in every step, or once",
        "Architecture 3",
    ),
    Toggle(
        "attn",
        (
            Level("eager"),
            Level("sdpa", loosened=_rounded_in_half, witness="attention_kernels"),
            Level(
                "flash",
                parity=Parity.TOLERANCE,
                bounds=HALF,
                requires_any={"lm_dtype": ("bf16",), "amp": ("bf16", "fp16")},
                unsupported=shared.needs_cuda,
                witness="attention_kernels",
            ),
        ),
        "attention by an explicit matrix or a fused kernel",
        "Architecture 2",
    ),
    Toggle(
        "lm_dtype",
        (Level("fp32"), Level("bf16", parity=Parity.TOLERANCE, bounds=HALF, witness="lm_bytes")),
        "type of the frozen models' weights",
        "7",
    ),
    shared.amp(
        every={"bounds": HALF, "witness": "low_precision_ops"},
        each={"fp16": {"unsupported": shared.needs_cuda}},
        source="7",
    ),
    shared.products(),
    shared.optimizer(every={"bounds": UPDATED, "witness": "ops"}, source="Quick win 4"),
    Toggle(
        "sync",
        (Level("chatty"), Level("late", witness="syncs")),
        "read metrics in every step, or late",
        "Monitoring",
    ),
    shared.grad_checkpointing(
        "off", "on", "selective", every={"witness": "saved_bytes"}, source="Architecture 1"
    ),
    Toggle(
        "bucket",
        (
            Level("off"),
            Level("window", witness="padded_positions"),
            Level("global", parity=Parity.STOCHASTIC, witness="padded_positions"),
        ),
        "rows of like length together, inside one effective batch or across all",
        "Memory 2",
    ),
    shared.compile(
        *("block", "reduce_overhead"),
        every={"parity": Parity.TOLERANCE, "bounds": COMPILED},
        each={"reduce_overhead": {"unsupported": shared.needs_graphs, "witness": "cudagraph_recordings"}},
    ),
    shared.empty_cache(every={"witness": "cache_releases"}, source="Memory 4"),
    Toggle(
        "parallel",
        (
            Level("single"),
            Level("layer_split", unsupported=_needs_two_gpus, witness="devices_used"),
            Level("ddp", per_gpu=True, **_RANKS),
            Level("model_per_gpu", refused=_single_model, **_RANKS),
            Level("fsdp", per_gpu=True, **_RANKS),
        ),
        "how several devices share the work",
        "Memory 3",
        baselines=(
            Baseline("layer_split", device=lambda device: device.type == "cuda" and device.count > 1),
        ),
    ),
    Toggle(
        "oom",
        (Level("die"), Level("backoff", witness="retries")),
        "halve the piece when memory runs out",
        "Risks",
    ),
    Toggle(
        "decode",
        (Level("per_row"), Level("batched", witness="decode_calls")),
        "greedy answers row by row, or together",
    ),
)
