"""What the SPD report says about its optimisations, section by section, in its own words.

"About" is read as within ten per cent. A combination lists the levels that it needs too, so that it is an arm
as it is written.
"""

from __future__ import annotations

from typing import Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Claim, LevelValue
from perfsweep.workloads.claims import Report

SOURCE = "SPD report"
_REPORT = Report(SOURCE)
_claim, _word, _less_memory, _fact = _REPORT.claim, _REPORT.word, _REPORT.less_memory, _REPORT.fact
UPSTREAM = "figures of SPD's authors, not in the report"


# What was wrong with an item as written, and the form in which it is offered; the claim's row says so.
COMPILED_CLASS = (
    " (as written the compiled object has another class, which dispatch by class refuses; here: in place)"
)
NEW_EXPONENT = " (as written an annealed exponent compiles again in each step; here: as a tensor)"
EVERY_COPY = (
    " (as written all copies, also back to the host, which is read too early; here: batches from pinned"
    " memory)"
)
ONLY_LISTS = (
    " (as written the same calls from another container; here: modules of one shape in one tensor, in fewer"
    " calls)"
)
HOOKS_IGNORED = (
    " (as written a graph compiled without hooks ignores them later; here: with lasting hooks or wrappers"
    " only)"
)
NEVER_WAITS = (
    " (as written nothing waits for the copy, and accumulation is lost; here: a stream, and the other one"
    " waits)"
)
UNSCALED_SEARCH = (
    " (as written adversarial gradients bypass the scaler and vanish; here: of a summed loss, without a"
    " graph)"
)
LEAKING_CACHE = (
    " (as written the cache keeps the model alive and outlives a reload; here: it belongs to the training)"
)
UNSAFE_THREAD = (
    " (as written the file gets later values, the last one is lost, errors too; here: a copy, flushed, errors"
    " raised)"
)
EMPTY_COMMIT = " (as written an empty commit adds a step without values; here: the last row commits)"
WRONG_ORDER = (
    " (the baseline empties the allocator's cache first, which keeps what is then collected; here: collect"
    " first)"
)
NO_OP = (
    " (as written nothing happens, for the target is in evaluation mode; here: each block is recomputed with"
    " its masks)"
)
NO_WARMUP = " (as written without warm-up, and waiting each time; here: a ring of events, read later)"

LOADING: dict[str, LevelValue] = {"pin_memory": "on", "num_workers": 4}
LOW_EFFORT: dict[str, LevelValue] = {
    **LOADING,
    "non_blocking": "on",
    "compile": "ci_fns",
    "checkpoint": "async",
}
# The report compiles the importance functions too. Hooks make compiling the target unsafe.
QUICK_START: dict[str, LevelValue] = {**LOADING, "non_blocking": "on", "compile": "target"}
WITHOUT_ALGEBRA: dict[str, LevelValue] = {"amp": "bf16", "patching": "wrapper", "compile": "full"}


_AMP: dict[str, Any] = {"unsupported": shared.needs_tensor_cores}  # the report's is torch.cuda.amp


_DATA = (
    _word(
        "moderate",
        "1.1",
        "Pinned (page-locked) memory enables faster CPU-to-GPU transfers. Impact: Moderate",
        {"pin_memory": "on"},
    ),
    _fact(
        "1.1",
        "With num_workers > 0, data loading happens in parallel processes",
        {"num_workers": 4},
        "worker_batches",
        1,
    ),
    _word(
        "faster",
        "1.2",
        "Add num_workers=4 (or experiment with 2-8 depending on CPU cores)",
        *({"num_workers": count} for count in (2, 4, 8)),
    ),
    _word(
        "small",
        "1.2",
        "For tokenized datasets that are already in tensor format, the benefit is smaller",
        *({"num_workers": count} for count in (2, 4, 8)),
    ),
    _word(
        "high",
        "Priority 1",
        "Pin memory + num_workers in DataLoader: pin_memory=True, num_workers=4",
        LOADING,
    ),
    _word(
        "faster",
        "3.1",
        "non_blocking=True: operations that can overlap with the transfer" + EVERY_COPY,
        {"non_blocking": "on"},
    ),
    _word("high", "Priority 2", "non_blocking=True for .to(device) calls", {"non_blocking": "on"}),
    _word(
        "faster",
        "3.2",
        "you can prefetch the next batch while computing" + NEVER_WAITS,
        {"prefetch": "stream"},
    ),
    _word("moderate", "Priority 9", "Prefetch batches with overlap", {"prefetch": "stream"}),
)

_COMPILE = (
    _fact(
        "2.1",
        "dynamic hook registration creates graph breaks that prevent full compilation",
        {"compile": "breaks"},
        "graph_breaks",
        low=1,
    ),
    _word(
        "faster",
        "2.1.1",
        "ci_fns are pure MLPs that can be compiled safely" + COMPILED_CLASS,
        {"compile": "ci_fns"},
    ),
    _word("high", "Priority 3", "torch.compile ci_fns (the causal importance MLPs)", {"compile": "ci_fns"}),
    _word(
        "faster",
        "2.1.2",
        "target_model = torch.compile(target_model): Full compilation" + HOOKS_IGNORED,
        {"compile": "target"},
    ),
    _word("high", "Priority 6", "torch.compile target_model", {"compile": "target"}),
    _less_memory("2.1.2", "mode='reduce-overhead': Less memory", {"cuda_graph": "on"}),
    _word("faster", "2.1.3", "Compile Loss Functions" + NEW_EXPONENT, {"compile": "losses"}),
    _word(
        "faster",
        "2.1.4",
        "This will compile the parts between graph breaks. Profile to see if it helps",
        {"compile": "breaks"},
    ),
    _fact(
        "2.2",
        "full torch.compile of a masked pass, without dynamic hook registration",
        {"compile": "masked_pass"},
        "graph_breaks",
        high=0,
    ),
    _fact(
        "2.2",
        "full torch.compile, without dynamic hook registration",
        {"compile": "full"},
        "graph_breaks",
        high=0,
    ),
)

_PRECISION = (
    _claim(
        "4",
        "Potentially 2x speedup on modern GPUs (Ampere+), especially for large models",
        {"amp": "fp16"},
        {"amp": "bf16"},
        low=1.0,
        high=2.0,
        **_AMP,
    ),
    _word(
        "high",
        "Priority 5",
        "Mixed precision training (AMP or bfloat16)",
        {"amp": "fp16"},
        {"amp": "bf16"},
        **_AMP,
    ),
    _word(
        "faster",
        "4.1",
        "Basic AMP Implementation: autocast and GradScaler" + UNSCALED_SEARCH,
        {"amp": "fp16"},
        **_AMP,
    ),
    _fact(
        "4.2",
        "faithfulness_loss should remain in full precision for stability",
        {"amp": "bf16"},
        "exact_faithfulness",
        high=1e-12,
    ),
    _claim(
        "4.3",
        "BFloat16: more stability with slightly less speedup",
        {"amp": "bf16"},
        against={"amp": "fp16", "pgd_inner": "detached"},
        kind="qualitative",
        word="slightly slower",
        **_AMP,
    ),
)

_STRUCTURE = (
    _word(
        "faster",
        "5.1",
        "Persistent hooks: removes per-forward-pass hook registration overhead",
        {"patching": "persistent_hooks"},
    ),
    _word("moderate", "Priority 8", "Persistent hook architecture", {"patching": "persistent_hooks"}),
    _word(
        "high",
        "5.2",
        "For maximum performance, compute component activations explicitly without hooks",
        {"patching": "wrapper"},
        {"prefix_reuse": "on"},
    ),
)

_ALGEBRA = (
    _word(
        "faster",
        "6.1",
        "Cache target weights and only recompute V @ U" + LEAKING_CACHE,
        {"delta": "cached_w"},
    ),
    _word("faster", "6.2", "If mask is None, fuse: x @ (V @ U)", {"unmasked_form": "fused"}),
    _word(
        "faster",
        "Priority 11",
        "Fused operations (may already be handled by torch.compile)",
        {"unmasked_form": "fused"},
    ),
    _word(
        "faster",
        "6.3",
        "Python dict operations have overhead: use ordered lists" + ONLY_LISTS,
        {"stack_modules": "stacked"},
    ),
    _fact(
        "6.4",
        "gpt2_config.yaml has n_steps: 20 for PGD",
        {"pgd_steps": "n"},
        "pgd_steps",
        20,
        20,
        setting={"preset": ("gpt2_one", "gpt2_all"), "pgd_steps": (None,)},
    ),
    _word(
        "faster",
        "6.4",
        "Reducing n_steps during early training; larger step_size with fewer steps; PGD only on subset of"
        " batches",
        *({"pgd_steps": value} for value in ("schedule", "larger", "every_k")),
    ),
    _word(
        "faster",
        "Priority 10",
        "PGD optimizations (depends on how much time PGD takes)",
        *({"pgd_steps": value} for value in ("schedule", "larger", "every_k", "persistent")),
        {"pgd_inner": "detached"},
        {"pgd_layerwise": "single"},
    ),
)

_ASYNCHRONOUS = (
    _word("faster", "7.1", "Save in background thread" + UNSAFE_THREAD, {"checkpoint": "async"}),
    _word("high", "Priority 4", "Async checkpointing", {"checkpoint": "async"}),
    _word(
        "faster",
        "7.2",
        "wandb.log can be slow. Use commit=False and batch logs" + EMPTY_COMMIT,
        {"wandb_logging": "commit_false"},
    ),
)

_MEMORY = (
    _word(
        "expensive",
        "8.1",
        "torch.cuda.empty_cache() and gc.collect() are expensive" + WRONG_ORDER,
        {"gc": "rarely"},
        {"gc": "oom_only"},
    ),
    _word("high", "Priority 7", "Reduce gc.collect() frequency", {"gc": "rarely"}, {"gc": "oom_only"}),
    _claim(
        "8.2",
        "Gradient checkpointing: ~30% slower" + NO_OP,
        {"grad_checkpointing": "per_block"},
        low=1 / 1.33,
        high=1 / 1.27,
    ),
    _claim(
        "8.2",
        "Gradient checkpointing uses significantly less memory, allowing larger batch sizes",
        {"grad_checkpointing": "per_block"},
        kind="memory",
        word="significantly",
    ),
    _less_memory(
        "8.3",
        "Explicitly delete large intermediates; let PyTorch reclaim memory for next iteration",
        {"free_early": "on"},
    ),
)

_PROFILING = (
    _fact(
        "9.1",
        "torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)",
        {"profiler": "torch"},
        "profiled_steps/traces",  # counters are for an iteration, and this is about a run
        3,
        3,
    ),
    _word("none", "9.2", "CUDA Events for Timing" + NO_WARMUP, {"profiler": "events"}),
    _claim("9.3", "Simple Timing: torch.cuda.synchronize() before and after the operation", kind="predicate"),
)

_COMBINED = (
    _word("high", "Priority 1-4", "High Impact, Low Effort: the four together", LOW_EFFORT),
    # Hooks that come and go refuse a compiled target, so the base has wrappers too.
    _claim(
        "Quick start",
        "Minimal changes for immediate speedup",
        QUICK_START,
        against={"patching": "wrapper"},
        kind="qualitative",
        word="faster",
    ),
    Claim(
        "bfloat16 and compilation without new algebra: about 1.6 times",
        UPSTREAM,
        "4 and 2",
        (WITHOUT_ALGEBRA,),
        low=1.44,
        high=1.76,
    ),
)

CLAIMS = (
    *_DATA,
    *_COMPILE,
    *_PRECISION,
    *_STRUCTURE,
    *_ALGEBRA,
    *_ASYNCHRONOUS,
    *_MEMORY,
    *_PROFILING,
    *_COMBINED,
)
