"""What the LatentWire report says about its optimisations, list by list and in its own words.

A share of the step time saved, p, is the speed ratio 1 / (1 - p). "About" is read as within ten per cent.
A combination lists the levels that it needs too, so that it is an arm as it is written.
"""

from __future__ import annotations

from typing import Any

from perfsweep.workloads.api import Claim, Device, LevelValue
from perfsweep.workloads.claims import Arm, Report
from perfsweep.workloads.toggles import needs_cuda, needs_tensor_cores

SOURCE = "LatentWire report"
_REPORT = Report(SOURCE)
_claim, _word, _less_memory = _REPORT.claim, _REPORT.word, _REPORT.less_memory


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
_WORKERS = ({"num_workers": 4}, {"loader": "dataloader", "num_workers": 4})
_TOKENISED = ({"tokenise": "pre"}, {"tokenise": "cache"})
_ROWS = ({"micro_batch": 64}, {"micro_batch": 128, "effective_batch": 128})
_MANY_ROWS = tuple({"micro_batch": rows, "effective_batch": 1024} for rows in (256, 512))
_HALF = ({"amp": "fp16"}, {"amp": "bf16"})
_KEPT_STATES = ({"k_loss": "kv"}, {"teacher": "slice_header"}, {"teacher": "cache_h"})


def _needs_their_gpus(device: Device) -> str | None:
    """Reason why a figure of four H100 can be ruled on here by nothing."""
    if reason := needs_cuda(device):
        return reason
    return None if device.count > 1 else "is a figure of 4 H100, and this is one device"


def _saves(section: str, text: str, low: float, high: float, *arms: Arm) -> Claim:
    """A claim that an overhead of `low` to `high` of the step time goes away."""
    return _claim(section, text, *arms, low=1 / (1 - low), high=1 / (1 - high))


def _times(section: str, text: str, low: float, high: float | None, *arms: Arm, **more: Any) -> Claim:
    return _claim(section, text, *arms, low=low, high=high, **more)


def _fact(
    section: str, text: str, figure: str, low: float | None, high: float | None, *arms: Arm, **more: Any
) -> Claim:
    return _claim(section, text, *arms, kind="predicate", figure=figure, low=low, high=high, **more)


_THEIRS: dict[str, Any] = {"unsupported": _needs_their_gpus, "setting": {"preset": ("full", "full8b")}}
_ON_TENSOR_CORES: dict[str, Any] = {"unsupported": needs_tensor_cores}
_HOURS = "seconds_per_iteration*training_steps"
_HOUR_S = 3600.0
_FORMULA = "Memory-safe formula: batch_size = min(512, available_memory // model_memory)"
_LARGE_BATCH = "For 4x H100 (80GB each): batch_size=256-512"
_LARGER_BATCH = "Increase batch size: Change default from 1 to 64-128"
_QUICK_GAIN = "After Quick Wins: ~8-12 hours (2-3x speedup)"
_BATCH_GAIN = "Increasing batch sizes (2-4x speedup)"
_AMP_GAIN = "Adding mixed precision (2-3x speedup)"

_BOTTLENECKS = (
    _saves("1", "~20-30% performance overhead from blocking transfers", 0.20, 0.30, *_UNWAITED),
    _fact("2", "DataLoader with num_workers=4: Parallel data loading", "worker_batches", 1, None, *_WORKERS),
    _word("faster", "2", "No DataLoader usage: CPU bottleneck during data preparation", *_LOADED),
    _saves("3", "~10-15% overhead from repeated tokenization", 0.10, 0.15, *_TOKENISED),
    _less_memory(
        "4",
        "Creating new tensors instead of in-place operations: loss.backward() instead of total_loss += loss",
        {"accum": "backward_each"},
    ),
    _fact(
        "5",
        "Default batch size of 1: 4x H100 GPUs running at ~10% utilization",
        "device_busy_share",
        0.09,
        0.11,
        {"micro_batch": 1},
        **_THEIRS,
    ),
    _word(
        "faster",
        "5",
        f"{_LARGE_BATCH}; with gradient accumulation: effective_batch=1024",
        *_MANY_ROWS,
        contradicts=_LARGER_BATCH,
    ),
    _fact(
        "5", _FORMULA, "rows_chosen", 256, 512, {"micro_batch": "auto"}, **_THEIRS, contradicts=_LARGER_BATCH
    ),
    _saves(
        "6",
        "Loop over K tokens instead of parallel computation: ~5-10% overhead",
        0.05,
        0.10,
        {"k_loss": "batched"},
    ),
    _times("7", "2-3x speedup possible with AMP", 2.0, 3.0, *_HALF, **_ON_TENSOR_CORES),
    _saves("8", "KV cache not properly reused across steps: ~15-20% overhead", 0.15, 0.20, *_KEPT_STATES),
)

_QUICK = (
    _word("faster", "Quick win 1", "Enable non-blocking transfers", *_UNWAITED),
    _claim(
        "Quick win 2",
        _LARGER_BATCH,
        *_ROWS,
        {"micro_batch": "auto"},
        kind="qualitative",
        word="faster",
        contradicts=_LARGE_BATCH,
    ),
    _claim(
        "Quick win 3",
        "Enable mixed precision: Add AMP with minimal code changes",
        *_HALF,
        kind="qualitative",
        word="faster",
        **_ON_TENSOR_CORES,
    ),
    _word(
        "faster",
        "Quick win 4",
        "Use fused optimizer: Already implemented but ensure it's active",
        {"optimizer": "fused"},
    ),
)

_MEDIUM = (
    _word("faster", "Medium term 1", "Add DataLoader: Replace manual batching with DataLoader", *_LOADED),
    _word(
        "faster",
        "Medium term 2",
        "Pre-compute tokenizations: Cache all tokenizations before training",
        *_TOKENISED,
    ),
    _less_memory(
        "Medium term 3", "Optimize gradient accumulation: Use in-place operations", {"accum": "backward_each"}
    ),
)

_ARCHITECTURE = (
    _word(
        "slower",
        "Architecture 1",
        "Implement gradient checkpointing: Trade compute",
        {"grad_checkpointing": "on"},
    ),
    _less_memory(
        "Architecture 1", "Implement gradient checkpointing: for memory", {"grad_checkpointing": "on"}
    ),
    _fact(
        "Architecture 2",
        "Use Flash Attention 2: 2-4x speedup on attention layers",
        "attention_speedup",
        2.0,
        4.0,
        {"attn": "flash", "amp": "bf16"},
        {"attn": "flash", "lm_dtype": "bf16"},
    ),
    _word(
        "faster",
        "Architecture 3",
        "Optimize encoder architecture: Reduce redundant computations",
        {"encoder_trim": "batch_max"},
        {"calibration": "once"},
    ),
)

_MEMORY = (
    _less_memory(
        "Memory 1",
        "Use gradient checkpointing for memory-intensive layers",
        {"grad_checkpointing": "selective"},
    ),
    _less_memory(
        "Memory 2",
        "Implement dynamic batching based on sequence length",
        {"bucket": "window"},
        {"bucket": "global"},
    ),
    _less_memory("Memory 3", "Use ZeRO optimization for model parallel training", {"parallel": "fsdp"}),
    _less_memory(
        "Memory 4", "Clear cache after each epoch: torch.cuda.empty_cache()", {"empty_cache": "epoch"}
    ),
)


def _hours(text: str, low: float, high: float, *arms: Arm) -> Claim:
    return _fact("Estimated gains", text, _HOURS, low * _HOUR_S, high * _HOUR_S, *arms, **_THEIRS)


_OVERALL = (
    _hours("Current: ~24 hours for full training", 0.9 * 24, 1.1 * 24, {"micro_batch": 1}),
    _hours("After Quick Wins: ~8-12 hours", 8, 12, *_QUICK_WINS),
    _times("Estimated gains", _QUICK_GAIN, 2.0, 3.0, *_QUICK_WINS, contradicts=f"{_BATCH_GAIN}; {_AMP_GAIN}"),
    _hours("With All Optimizations: ~4-6 hours", 4, 6, *_ALL),
    _times("Estimated gains", "With All Optimizations: ~4-6 hours (4-6x speedup)", 4.0, 6.0, *_ALL),
    _fact("Monitoring", "GPU utilization (target: >80%)", "device_busy_share", 0.8, None, *_ALL, **_THEIRS),
    _fact(
        "Validation",
        "Run small benchmark (100 samples): Verify no accuracy degradation",
        "results_kept",
        1,
        None,
        *_ALL,
        setting={"data_n": (100,)},
    ),
    # 1 where a piece was tried again and the trial ended well; nothing where memory never ran out. Without a
    # GPU the kernel ends the process, and nothing is raised that could be caught.
    _fact(
        "Risks",
        "Have fallback for OOM scenarios",
        "retries/retries",
        1,
        None,
        {"oom": "backoff"},
        unsupported=needs_cuda,
    ),
    _saves("Conclusion", "Fixing GPU-CPU transfers (immediate 20-30% gain)", 0.20, 0.30, *_UNWAITED),
    _times(
        "Conclusion",
        _BATCH_GAIN,
        2.0,
        4.0,
        *_ROWS,
        *_MANY_ROWS,
        {"micro_batch": "auto"},
        contradicts=_QUICK_GAIN,
    ),
    _times("Conclusion", _AMP_GAIN, 2.0, 3.0, *_HALF, **_ON_TENSOR_CORES, contradicts=_QUICK_GAIN),
    _times("Conclusion", "reduce training time from 24 hours to under 6 hours", 4.0, None, *_ALL),
    _fact(
        "Conclusion",
        "reduce training time to under 6 hours while maintaining model quality",
        _HOURS,
        None,
        6 * _HOUR_S,
        *_ALL,
        **_THEIRS,
    ),
)

CLAIMS = (*_BOTTLENECKS, *_QUICK, *_MEDIUM, *_ARCHITECTURE, *_MEMORY, *_OVERALL)
