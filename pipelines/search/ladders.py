"""Which sizes of a ladder to measure next, and what the measured say: the fastest, the cliff, the largest.

Pure: sizes go out, results come back. A search is a generator that yields sizes and is sent the results of
all sizes measured so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfsweep.workloads.api import LevelValue, Numbers, Toggle
from perfsweep.workloads.errors import ConfigError

CLIFF = 0.10
"""A size whose unit takes so much longer than at the best smaller size lies beyond the cliff."""
MEMORY_SLACK = 1.1
"""Sizes predicted to need more than this share of the budget are not tried."""
TIE_LEAST, TIE_MOST = math.log(1.01), math.log(1.03)
"""Sizes closer than their error are equal, within these bounds, and the smaller one is taken."""
MOST_POWERS = 20
"""Of two that a ladder without an end has."""
COARSE_SIZES = 5
"""Sizes, about, that a first look at a long ladder takes."""


@dataclass(frozen=True)
class SizeResult:
    """One size: log time per unit against the baseline with its standard error, or why there is none."""

    size: int
    log_time: float | None
    error: float = 0.0
    peak_bytes: int | None = None
    reason: str = ""
    out_of_memory: bool = False

    @property
    def ran(self) -> bool:
        """Whether the size has a time."""
        return self.log_time is not None


SizeResults = Mapping[int, SizeResult]


@dataclass(frozen=True)
class MemoryModel:
    """Peak memory of a size: `fixed` + `each` * size, in bytes."""

    fixed: float
    each: float

    def peak_bytes(self, size: int) -> float:
        """The predicted peak."""
        return self.fixed + self.each * size


@dataclass(frozen=True)
class LadderResult:
    """What is known of a ladder.

    Attributes
    ----------
    cliff : the largest size before the time per unit jumps, and the smallest one after it
    sure : whether the next larger size is known, or predicted, not to fit; or there is none
    skipped : sizes never tried, with the peak that was predicted for them, in bytes
    """

    measured: tuple[SizeResult, ...]
    fastest: SizeResult | None
    cliff: tuple[SizeResult, SizeResult] | None
    largest: SizeResult | None
    sure: bool
    memory: MemoryModel | None
    budget: int | None
    skipped: Mapping[int, float] = field(default_factory=dict)


def sizes_of(toggle: Toggle, given: Sequence[int] = ()) -> list[int]:
    """The sizes of a toggle as a ladder: those given, or powers of two over its numbers and declared sizes.

    Raises
    ------
    ConfigError
        The toggle is no ladder, or a given size is not one of its levels.
    """
    declared = sorted(level.value for level in toggle.levels if isinstance(level.value, int))
    if toggle.numbers is not None and not toggle.numbers.integer:
        raise ConfigError(
            f"{toggle.name} is no ladder: its numbers are not integers; its levels are: {toggle.choices}"
        )
    if given:
        return sorted({_size(toggle, size) for size in given})
    if toggle.numbers is None and len(declared) < 3:
        raise ConfigError(
            f"{toggle.name} is no ladder: it has no range of sizes; its levels are: {toggle.choices}"
        )
    return sorted({*declared, *_powers_of_two(toggle.numbers)})


def _powers_of_two(numbers: Numbers | None) -> list[int]:
    if numbers is None:
        return []
    low, high = max(1, int(numbers.low)), numbers.high or math.inf
    first = math.ceil(math.log2(low))
    return [2**power for power in range(first, first + MOST_POWERS) if 2**power <= high]


def _size(toggle: Toggle, given: LevelValue) -> int:
    value = toggle.level(given).value
    if not isinstance(value, int):
        raise ConfigError(f"{toggle.name}={given} is no size of a ladder; give integers")
    return value


def is_ladder(toggle: Toggle) -> bool:
    """Whether a toggle's levels are sizes."""
    try:
        return bool(sizes_of(toggle))
    except ConfigError:
        return False


def climb(sizes: Sequence[int], budget: int | None, limit: int) -> Generator[list[int], SizeResults, None]:
    """Find the fastest size: up until it gets worse by a tenth or does not fit, then around best and cliff.

    A long ladder is climbed in large steps first. Sizes that the memory of smaller ones predicts not to fit
    are skipped.
    """
    stride = _stride(len(sizes))
    known: SizeResults = {}
    for first in range(0, len(sizes), 2 * stride):
        chosen = _untried(sizes, [first, first + stride], known, budget, limit)
        if not chosen:
            break
        known = yield chosen
        if _past_the_best(known):
            break
    while stride > 1:
        stride //= 2
        best = fastest(known)
        middle = sizes.index(best.size) if best else 0
        around = [middle - stride, middle + stride] if best else [0]
        if chosen := _untried(sizes, around, known, budget, limit):
            known = yield chosen
    while (cliff := _cliff(_fitting(known))) is not None:
        low, high = (sizes.index(side.size) for side in cliff)
        chosen = _untried(sizes, [(low + high) // 2], known, budget, limit)
        if not chosen:
            return
        known = yield chosen


def _stride(count: int) -> int:
    """A power of two that leaves about `COARSE_SIZES` sizes to look at; 1 for short ladders."""
    return 1 if count <= COARSE_SIZES + 3 else 2 ** max(0, math.floor(math.log2(count / COARSE_SIZES)))


def largest_feasible(
    sizes: Sequence[int], known: SizeResults, budget: int | None, limit: int
) -> Generator[list[int], SizeResults, None]:
    """Find the largest size that fits: where memory predicts it first, then by halving what is left."""
    trusted = True
    while len(known) < limit:
        low, high = _bracket(sizes, known, budget)
        if high - low <= 1:
            return
        middle = (low + high) // 2
        if trusted and (memory_model(known) is not None or budget is None):
            may_fit = _memory_test(known, budget)
            middle = max((i for i in range(low + 1, high) if may_fit(sizes[i])), default=low + 1)
        known = yield [sizes[middle]]
        trusted = known[sizes[middle]].ran  # a prediction that failed once is not asked again


def summary(sizes: Sequence[int], known: SizeResults, budget: int | None) -> LadderResult:
    """What the sizes measured so far say."""
    fits, model, may_fit = _fitting(known), memory_model(known), _memory_test(known, budget)
    skipped = [size for size in sizes if size not in known and not may_fit(size)]
    low, high = _bracket(sizes, known, budget)
    return LadderResult(
        measured=tuple(known[size] for size in sorted(known)),
        fastest=fastest(known),
        cliff=_cliff(fits),
        largest=fits[-1] if fits else None,
        sure=bool(fits) and high - low <= 1,
        memory=model,
        budget=budget,
        skipped={size: model.peak_bytes(size) for size in skipped} if model else {},
    )


def fastest(known: SizeResults) -> SizeResult | None:
    """The size with the shortest time per unit; of equal ones the smallest."""
    fits = _fitting(known)
    if not fits:
        return None
    best = min(fits, key=_log_time)
    return next(one for one in fits if _log_time(one) - _log_time(best) <= _tie(one, best))


def _fitting(known: SizeResults) -> list[SizeResult]:
    """Sizes that ran, in order."""
    return sorted((one for one in known.values() if one.ran), key=lambda one: one.size)


def _log_time(one: SizeResult) -> float:
    assert one.log_time is not None, "only sizes that ran are compared"
    return one.log_time


def memory_model(known: SizeResults) -> MemoryModel | None:
    """Least squares through the peaks that are there; None with fewer than two sizes."""
    peaks = {one.size: float(one.peak_bytes) for one in known.values() if one.peak_bytes and one.ran}
    if len(peaks) < 2:
        return None
    each, fixed = np.polyfit(list(peaks), list(peaks.values()), 1)
    # A slope downwards is noise: the best guess is that size does not matter.
    return MemoryModel(float(fixed), float(each)) if each > 0 else MemoryModel(max(peaks.values()), 0.0)


def _memory_test(known: SizeResults, budget: int | None, slack: float = 1.0) -> Callable[[int], bool]:
    """Whether a size is predicted to fit into the budget; everything may while there is no prediction."""
    model = memory_model(known)
    if model is None or budget is None:
        return lambda size: True
    return lambda size: model.peak_bytes(size) <= slack * budget


def _tie(one: SizeResult, best: SizeResult) -> float:
    if one.size == best.size:
        return 0.0
    return min(max(TIE_LEAST, 2 * math.hypot(one.error, best.error)), TIE_MOST)


def _untried(
    sizes: Sequence[int], indices: Sequence[int], known: SizeResults, budget: int | None, limit: int
) -> list[int]:
    """The sizes at these indices that exist, are not known, may fit, and that the limit leaves room for."""
    may_fit = _memory_test(known, budget, MEMORY_SLACK)
    too_large = min((one.size for one in known.values() if one.out_of_memory), default=math.inf)
    untried = [sizes[i] for i in indices if 0 <= i < len(sizes) and sizes[i] not in known]
    return [size for size in untried if may_fit(size) and size < too_large][: max(0, limit - len(known))]


def _past_the_best(known: SizeResults) -> bool:
    """Whether the largest size so far does not run, or is a tenth slower than the best."""
    top, fits = known[max(known)], _fitting(known)
    if not top.ran:
        return bool(fits) or top.out_of_memory
    return _log_time(top) > min(map(_log_time, fits)) + math.log1p(CLIFF)


def _cliff(fits: Sequence[SizeResult]) -> tuple[SizeResult, SizeResult] | None:
    """The first jump between neighbours that leads a tenth above the best smaller size."""
    for number in range(1, len(fits)):
        best_before = min(map(_log_time, fits[:number]))
        if _log_time(fits[number]) - best_before > math.log1p(CLIFF):
            return fits[number - 1], fits[number]
    return None


def _bracket(sizes: Sequence[int], known: SizeResults, budget: int | None) -> tuple[int, int]:
    """Indices of the largest size that fits (-1: none) and of the smallest above predicted or seen not to."""
    may_fit = _memory_test(known, budget, MEMORY_SLACK)
    low = max((i for i, size in enumerate(sizes) if size in known and known[size].ran), default=-1)
    above = range(low + 1, len(sizes))
    beyond = [i for i in above if not (known[sizes[i]].ran if sizes[i] in known else may_fit(sizes[i]))]
    return low, min(beyond, default=len(sizes))
