"""What the SPD report says about its optimisations, section by section.

"About" is read as within ten per cent. Levels that a combination needs stand in it, so that it is an arm as
it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.api import Claim, LevelValue

SOURCE = "SPD report"
UPSTREAM = "figures of SPD's authors, beside the report"

Arm = Mapping[str, LevelValue]

# What was wrong with an item as written, and the form in which it is offered; the claim's row says so.
COMPILED_CLASS = (
    " (as written the compiled object has another class, which dispatch by class refuses; here: in place)"
)
NEW_EXPONENT = " (as written an annealed exponent compiles anew in each step; here: as a tensor)"
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
# The report compiles the importance functions beside the target; the target is what hooks make unsafe.
QUICK_START: dict[str, LevelValue] = {**LOADING, "non_blocking": "on", "compile": "target"}
WITHOUT_ALGEBRA: dict[str, LevelValue] = {"amp": "bf16", "patching": "wrapper", "compile": "full"}


def _claim(section: str, text: str, *arms: Arm, **judged: Any) -> Claim:
    return Claim(text, SOURCE, section, arms, **judged)


def _word(word: str, section: str, text: str, *arms: Arm) -> Claim:
    return _claim(section, text, *arms, kind="qualitative", word=word)


def _less_memory(section: str, text: str, *arms: Arm) -> Claim:
    return _claim(section, text, *arms, kind="memory", high=1.0)


def _fact(
    section: str, text: str, arm: Arm, figure: str, low: float | None = None, high: float | None = None
) -> Claim:
    return _claim(section, text, arm, kind="predicate", figure=figure, low=low, high=high)


_DATA = (
    _word("moderate", "1.1", "pinned batches travel to the device faster", {"pin_memory": "on"}),
    _word(
        "small",
        "1.2",
        "worker processes load beside the computation; less is gained where the data are tensors already",
        *({"num_workers": count} for count in (2, 4, 8)),
    ),
    _word("high", "Priority 1", "pinned memory and four workers together", LOADING),
    _word(
        "high", "3.1", "copies that do not wait overlap with computation" + EVERY_COPY, {"non_blocking": "on"}
    ),
    _word("high", "Priority 2", "copies that do not wait", {"non_blocking": "on"}),
    _word(
        "faster",
        "3.2",
        "the next batch can travel while this one is computed" + NEVER_WAITS,
        {"prefetch": "stream"},
    ),
    _word("moderate", "Priority 9", "fetching the next batch ahead", {"prefetch": "stream"}),
)

_COMPILE = (
    _fact(
        "2.1",
        "hooks that come and go break the graph, so only parts compile",
        {"compile": "breaks"},
        "graph_breaks",
        low=1,
    ),
    _word(
        "high",
        "2.1.1",
        "the importance functions are pure and can be compiled" + COMPILED_CLASS,
        {"compile": "ci_fns"},
    ),
    _word("high", "Priority 3", "compiled importance functions", {"compile": "ci_fns"}),
    _word(
        "high",
        "2.1.2",
        "a target that compiles can be compiled as a whole" + HOOKS_IGNORED,
        {"compile": "target"},
    ),
    _word("high", "Priority 6", "a compiled target", {"compile": "target"}),
    _less_memory(
        "2.1.2", "mode reduce-overhead, which replays CUDA graphs, takes less memory", {"cuda_graph": "on"}
    ),
    _word("faster", "2.1.3", "loss functions can be compiled" + NEW_EXPONENT, {"compile": "losses"}),
    _word("faster", "2.1.4", "compiling the parts between graph breaks may help", {"compile": "breaks"}),
    _fact(
        "2.2",
        "without dynamic hooks a masked pass is one graph",
        {"compile": "masked_pass"},
        "graph_breaks",
        high=0,
    ),
    _fact(
        "2.2",
        "without dynamic hooks the whole model is one graph",
        {"compile": "full"},
        "graph_breaks",
        high=0,
    ),
)

_PRECISION = (
    _claim(
        "4", "mixed precision is up to twice as fast", {"amp": "fp16"}, {"amp": "bf16"}, low=1.0, high=2.0
    ),
    _word("high", "Priority 5", "mixed precision in either 16-bit type", {"amp": "fp16"}, {"amp": "bf16"}),
    _word("faster", "4.1", "autocast with a gradient scaler" + UNSCALED_SEARCH, {"amp": "fp16"}),
    _fact(
        "4.2", "faithfulness has to stay in full precision", {"amp": "bf16"}, "exact_faithfulness", high=1e-12
    ),
    _claim(
        "4.3",
        "bfloat16 needs no scaler and gains slightly less than float16",
        {"amp": "bf16"},
        against={"amp": "fp16", "pgd_inner": "detached"},
        kind="qualitative",
        word="slightly slower",
    ),
)

_STRUCTURE = (
    _word(
        "faster",
        "5.1",
        "hooks registered once save the registration of every pass",
        {"patching": "persistent_hooks"},
    ),
    _word("moderate", "Priority 8", "hooks registered once", {"patching": "persistent_hooks"}),
    _word(
        "high",
        "5.2",
        "an explicit pass without hooks is as fast as it gets",
        {"patching": "wrapper"},
        {"prefix_reuse": "on"},
    ),
)

_ALGEBRA = (
    _word(
        "faster",
        "6.1",
        "frozen weights need not be fetched for every delta" + LEAKING_CACHE,
        {"delta": "cached_w"},
    ),
    _word("faster", "6.2", "unmasked components are one product instead of two", {"unmasked_form": "fused"}),
    _word(
        "faster", "Priority 11", "fused operations, unless the compiler does that", {"unmasked_form": "fused"}
    ),
    _word(
        "faster",
        "6.3",
        "lists instead of dictionaries save Python's time" + ONLY_LISTS,
        {"stack_modules": "stacked"},
    ),
    _fact(
        "6.4",
        "each adversarial loss of the GPT-2 training takes 20 inner passes",
        {"pgd_steps": "n"},
        "pgd_steps",
        20,
        20,
    ),
    _word(
        "faster",
        "6.4",
        "fewer adversarial steps early on, fewer and larger ones, or adversarial passes for some batches"
        " only",
        *({"pgd_steps": value} for value in ("schedule", "larger", "every_k")),
    ),
    _word(
        "faster",
        "Priority 10",
        "cheaper adversarial passes",
        *({"pgd_steps": value} for value in ("schedule", "larger", "every_k", "persistent")),
        {"pgd_inner": "detached"},
        {"pgd_layerwise": "single"},
    ),
)

_ASYNCHRONOUS = (
    _word(
        "high",
        "7.1",
        "a background thread saves beside the training" + UNSAFE_THREAD,
        {"checkpoint": "async"},
    ),
    _word("high", "Priority 4", "asynchronous checkpoints", {"checkpoint": "async"}),
    _word(
        "faster",
        "7.2",
        "metrics sent without a commit are batched" + EMPTY_COMMIT,
        {"wandb_logging": "commit_false"},
    ),
)

_MEMORY = (
    _word(
        "high",
        "8.1",
        "explicit collections are expensive" + WRONG_ORDER,
        {"gc": "rarely"},
        {"gc": "oom_only"},
    ),
    _word("high", "Priority 7", "fewer explicit collections", {"gc": "rarely"}, {"gc": "oom_only"}),
    _claim(
        "8.1",
        "collecting less often costs no memory worth a word",
        {"gc": "rarely"},
        kind="memory",
        low=0.95,
        high=1.05,
    ),
    _claim(
        "8.2",
        "recomputing activations is about 30 % slower" + NO_OP,
        {"grad_checkpointing": "per_block"},
        low=1 / 1.33,
        high=1 / 1.27,
    ),
    _less_memory(
        "8.2", "recomputing activations takes much less memory", {"grad_checkpointing": "per_block"}
    ),
    _less_memory("8.3", "large intermediates can be dropped once they are used", {"free_early": "on"}),
)

_PROFILING = (
    _fact(
        "9.1",
        "a scheduled profiler sees three steps after warm-up",
        {"profiler": "torch"},
        "profiled_steps",
        3,
        3,
    ),
    _word(
        "none",
        "9.2",
        "events time an operation on the device without getting in its way" + NO_WARMUP,
        {"profiler": "events"},
    ),
    _claim("9.3", "synchronising before and after an operation times it", kind="predicate"),
)

_COMBINED = (
    _word("high", "Priority 1-4", "the four steps of little effort together", LOW_EFFORT),
    # Hooks that come and go refuse a compiled target, so the base has wrappers too.
    _claim(
        "Quick start",
        "minimal changes for an immediate gain",
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
