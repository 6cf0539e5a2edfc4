"""What the LatentWire report says about its optimisations, list by list.

A share of the step time saved, p, is the speed ratio 1 / (1 - p). "About" is read as within ten per cent.
Levels that a combination needs stand in it, so that it is an arm as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.api import Claim, LevelValue
from workloads.toggles import needs_cuda

SOURCE = "LatentWire report"

Arm = Mapping[str, LevelValue]

REPORT_QUICK_WINS: dict[str, LevelValue] = {
    "pin_memory": "on",
    "non_blocking": "on",
    "micro_batch": 64,
    "amp": "fp16",
    "optimizer": "fused",
}

REPORT_ALL: dict[str, LevelValue] = {
    **REPORT_QUICK_WINS,
    "loader": "dataloader",
    "num_workers": 4,
    "tokenise": "pre",
    "accum": "backward_each",
    "k_loss": "batched",
    "teacher": "slice_header",
    "grad_checkpointing": "on",
    "attn": "flash",
    "encoder_trim": "batch_max",
    "bucket": "window",
    "empty_cache": "epoch",
}


def _in_bfloat16(arm: Arm) -> Arm:
    return {**arm, "amp": "bf16"}


_QUICK_WINS = (REPORT_QUICK_WINS, _in_bfloat16(REPORT_QUICK_WINS))
_ALL = (REPORT_ALL, _in_bfloat16(REPORT_ALL))
_UNWAITED = ({"non_blocking": "on"}, {"pin_memory": "on", "non_blocking": "on"})
_LOADED = ({"loader": "dataloader"}, {"num_workers": 4}, {"loader": "dataloader", "num_workers": 4})
_TOKENISED = ({"tokenise": "pre"}, {"tokenise": "cache"})
_ROWS = tuple({"micro_batch": rows} for rows in (64, "auto"))
_MANY_ROWS = tuple({"micro_batch": rows, "effective_batch": 1024} for rows in (256, 512))
_HALF = ({"amp": "fp16"}, {"amp": "bf16"}, {"lm_dtype": "bf16"})
_KEPT_STATES = ({"k_loss": "kv"}, {"teacher": "slice_header"}, {"teacher": "cache_h"})


def _claim(section: str, text: str, *arms: Arm, **judged: Any) -> Claim:
    return Claim(text, SOURCE, section, arms, **judged)


def _word(word: str, section: str, text: str, *arms: Arm) -> Claim:
    return _claim(section, text, *arms, kind="qualitative", word=word)


def _less_memory(section: str, text: str, *arms: Arm) -> Claim:
    return _claim(section, text, *arms, kind="memory", high=1.0)


def _saves(section: str, text: str, low: float, high: float, *arms: Arm) -> Claim:
    """A claim that an overhead of `low` to `high` of the step time goes away."""
    return _claim(section, text, *arms, low=1 / (1 - low), high=1 / (1 - high))


def _times(section: str, text: str, low: float, high: float | None, *arms: Arm) -> Claim:
    return _claim(section, text, *arms, low=low, high=high)


def _busy(section: str, text: str, low: float, high: float | None, *arms: Arm) -> Claim:
    return _claim(
        section,
        text,
        *arms,
        kind="predicate",
        figure="device_busy_share",
        low=low,
        high=high,
        unsupported=needs_cuda,
    )


_BOTTLENECKS = (
    _saves("1", "blocking transfers cost 20 to 30 %", 0.20, 0.30, *_UNWAITED),
    _word(
        "faster", "2", "a DataLoader with four workers takes preparation off the training process", *_LOADED
    ),
    _saves("3", "tokenising again in every step costs 10 to 15 %", 0.10, 0.15, *_TOKENISED),
    _less_memory("4", "a backward pass for each piece instead of a summed loss", {"accum": "backward_each"}),
    _times(
        "5", "256 to 512 rows at a time, 1024 in all, are two to four times as fast", 2.0, 4.0, *_MANY_ROWS
    ),
    _busy("5", "one row at a time keeps a GPU about 10 % busy", 0.09, 0.11, {"micro_batch": 1}),
    _claim(
        "5",
        "free memory over model memory, at most 512, is a safe number of rows: 256 to 512",
        {"micro_batch": "auto"},
        kind="predicate",
        figure="rows_chosen",
        low=256,
        high=512,
        unsupported=needs_cuda,
    ),
    _saves("6", "a loop over early answer tokens costs 5 to 10 %", 0.05, 0.10, {"k_loss": "batched"}),
    _times("7", "mixed precision is two to three times as fast", 2.0, 3.0, *_HALF),
    _saves("8", "keys and values computed again cost 15 to 20 %", 0.15, 0.20, *_KEPT_STATES),
)

_QUICK = (
    _word("faster", "Quick win 1", "copies that do not wait", *_UNWAITED),
    _word("faster", "Quick win 2", "64 to 128 rows at a time instead of one", *_ROWS),
    _word("faster", "Quick win 3", "mixed precision with few changes", *_HALF),
    _word("faster", "Quick win 4", "the fused optimiser, made sure to be active", {"optimizer": "fused"}),
)

_MEDIUM = (
    _word("faster", "Medium term 1", "a DataLoader instead of manual batches", *_LOADED),
    _word("faster", "Medium term 2", "all tokens before training", *_TOKENISED),
    _less_memory("Medium term 3", "accumulation in place", {"accum": "backward_each"}),
)

_ARCHITECTURE = (
    _word("slower", "Architecture 1", "recomputing activations costs time", {"grad_checkpointing": "on"}),
    _less_memory("Architecture 1", "recomputing activations saves memory", {"grad_checkpointing": "on"}),
    # The report's two to four times are of attention layers alone, a part of the step that is measured.
    _word(
        "faster",
        "Architecture 2",
        "flash attention, said to make attention layers two to four times as fast, makes the whole step"
        " faster",
        {"attn": "flash", "amp": "bf16"},
        {"attn": "flash", "lm_dtype": "bf16"},
    ),
    _word(
        "faster",
        "Architecture 3",
        "less repeated work around the encoder",
        {"encoder_trim": "batch_max"},
        {"calibration": "once"},
    ),
)

_MEMORY = (
    _less_memory(
        "Memory 1", "recomputation in the layers that need most", {"grad_checkpointing": "selective"}
    ),
    _less_memory("Memory 2", "batches by sequence length", {"bucket": "window"}, {"bucket": "global"}),
    _less_memory("Memory 3", "sharded training over the GPUs", {"parallel": "fsdp"}),
    _less_memory("Memory 4", "an empty cache after each epoch", {"empty_cache": "epoch"}),
)

_OVERALL = (
    _times("Estimated gains", "the quick wins are two to three times as fast", 2.0, 3.0, *_QUICK_WINS),
    _times("Estimated gains", "all optimisations are four to six times as fast", 4.0, 6.0, *_ALL),
    _busy("Monitoring", "with all optimisations a GPU is more than 80 % busy", 0.8, None, *_ALL),
    _claim(
        "Validation",
        "a benchmark of a few samples shows that answers are as good as before",
        *_ALL,
        kind="predicate",
        figure="results_kept",
        low=1,
    ),
    # 1 where a piece was tried again and the trial ended well; nothing where memory never ran out.
    _claim(
        "Risks",
        "a fallback survives memory running out",
        {"oom": "backoff"},
        kind="predicate",
        figure="retries/retries",
        low=1,
    ),
    _saves("Conclusion", "transfers alone gain 20 to 30 % at once", 0.20, 0.30, *_UNWAITED),
    _times("Conclusion", "larger batches are two to four times as fast", 2.0, 4.0, *_ROWS, *_MANY_ROWS),
    _times("Conclusion", "mixed precision is two to three times as fast", 2.0, 3.0, *_HALF),
    _times("Conclusion", "all together, 24 hours become less than six", 4.0, None, *_ALL),
)

CLAIMS = (*_BOTTLENECKS, *_QUICK, *_MEDIUM, *_ARCHITECTURE, *_MEMORY, *_OVERALL)
