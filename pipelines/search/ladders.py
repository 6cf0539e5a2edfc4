"""Which sizes of a ladder to measure next, and what those that are there say: the fastest, the cliff, the
largest.

Pure: sizes go out, rungs come back. A search is a generator that yields sizes and is sent all rungs known so
far.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from workloads.api import LevelValue, Toggle
from workloads.errors import ConfigError

CLIFF = 0.10
"""A size whose unit takes so much longer than at the best smaller size lies beyond the cliff."""
HOPELESS = 1.1
"""Sizes predicted to need more than this share of the budget are not tried."""
TIE_LEAST, TIE_MOST = math.log(1.01), math.log(1.03)
"""Sizes closer than their error are equal, within these bounds, and the smaller one is taken."""
COARSE = 5
"""Rungs, about, that a first look at a long ladder takes."""


@dataclass(frozen=True)
class Rung:
    """One size: log time per unit against the reference with its standard error, or why there is none."""

    size: int
    log_time: float | None
    error: float = 0.0
    peak_bytes: int | None = None
    reason: str = ""
    out_of_memory: bool = False


Rungs = Mapping[int, Rung]


@dataclass(frozen=True)
class MemoryModel:
    """Peak memory of a size: `fixed` + `each` * size, in bytes."""

    fixed: float
    each: float

    def peak_bytes(self, size: int) -> float:
        """The predicted peak."""
        return self.fixed + self.each * size


@dataclass(frozen=True)
class Frontier:
    """What is known of a ladder.

    Attributes
    ----------
    cliff : the largest size before the time per unit jumps, and the smallest one after it
    sure : whether the next larger size is known, or predicted, not to fit; or there is none
    skipped : sizes never tried, with the peak that was predicted for them, in bytes
    """

    rungs: tuple[Rung, ...]
    fastest: Rung | None
    cliff: tuple[Rung, Rung] | None
    largest: Rung | None
    sure: bool
    memory: MemoryModel | None
    budget: int | None
    skipped: Mapping[int, float] = field(default_factory=dict)


def sizes_of(toggle: Toggle, given: Sequence[int] = (), most: int = 20) -> list[int]:
    """The sizes of a toggle as a ladder: those given, else powers of two over its numbers and its declared
    sizes.

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
    powers: list[int] = []
    if toggle.numbers is not None:
        low, high = max(1, int(toggle.numbers.low)), toggle.numbers.high or math.inf
        powers = [
            size for size in (2 ** (math.ceil(math.log2(low)) + i) for i in range(most)) if size <= high
        ]
    return sorted({*declared, *powers})


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


def climb(sizes: Sequence[int], budget: int | None, limit: int) -> Generator[list[int], Rungs, None]:
    """Find the fastest size: upwards until it gets worse by a tenth or does not fit, then closer around the
    best and the cliff.

    A long ladder is climbed in large steps first. Sizes that the memory of smaller ones predicts not to fit
    are skipped.
    """
    step = 1 if len(sizes) <= COARSE + 3 else 2 ** max(0, math.floor(math.log2(len(sizes) / COARSE)))
    known: Rungs = {}
    for first in range(0, len(sizes), 2 * step):
        wanted = _worth(sizes, [first, first + step], known, budget, limit)
        if not wanted:
            break
        known = yield wanted
        if _over_the_top(known):
            break
    while step > 1:
        step //= 2
        if (best := fastest(known)) is None:
            around = [0]
        else:
            middle = sizes.index(best.size)
            around = [middle - step, middle + step]
        if wanted := _worth(sizes, around, known, budget, limit):
            known = yield wanted
    while (cliff := _cliff(_fitting(known))) is not None:
        low, high = (sizes.index(rung.size) for rung in cliff)
        wanted = _worth(sizes, [(low + high) // 2], known, budget, limit)
        if not wanted:
            return
        known = yield wanted


def largest_feasible(
    sizes: Sequence[int], known: Rungs, budget: int | None, limit: int
) -> Generator[list[int], Rungs, None]:
    """Find the largest size that fits: where memory predicts it first, then by halving what is left."""
    trusted = True
    while len(known) < limit:
        low, high = _bracket(sizes, known, budget)
        if high - low <= 1:
            return
        model = memory_model(known)
        middle = (low + high) // 2
        if trusted and (model is not None or budget is None):
            fits = [
                i
                for i in range(low + 1, high)
                if model is None or budget is None or model.peak_bytes(sizes[i]) <= budget
            ]
            middle = max(fits, default=low + 1)
        known = yield [sizes[middle]]
        trusted = known[sizes[middle]].log_time is not None


def frontier(sizes: Sequence[int], known: Rungs, budget: int | None) -> Frontier:
    """What the rungs that are there say."""
    rungs = tuple(known[size] for size in sorted(known))
    fits = _fitting(known)
    model = memory_model(known)
    skipped = {
        size: model.peak_bytes(size)
        for size in sizes
        if size not in known and model is not None and budget is not None and model.peak_bytes(size) > budget
    }
    low, high = _bracket(sizes, known, budget)
    return Frontier(
        rungs=rungs,
        fastest=fastest(known),
        cliff=_cliff(fits),
        largest=fits[-1] if fits else None,
        sure=bool(fits) and high - low <= 1,
        memory=model,
        budget=budget,
        skipped=skipped,
    )


def fastest(known: Rungs) -> Rung | None:
    """The size with the shortest time per unit; of equal ones the smallest."""
    fits = _fitting(known)
    if not fits:
        return None
    best = min(fits, key=lambda rung: rung.log_time or 0.0)
    return next(rung for rung in fits if (rung.log_time or 0.0) - (best.log_time or 0.0) <= _tie(rung, best))


def _fitting(known: Rungs) -> list[Rung]:
    """Sizes that ran, in order."""
    return sorted((rung for rung in known.values() if rung.log_time is not None), key=lambda rung: rung.size)


def memory_model(known: Rungs) -> MemoryModel | None:
    """Least squares through the peaks that are there; None with fewer than two sizes."""
    peaks = {
        rung.size: rung.peak_bytes for rung in known.values() if rung.peak_bytes and rung.log_time is not None
    }
    if len(peaks) < 2:
        return None
    each, fixed = np.polyfit(list(peaks), [float(peak) for peak in peaks.values()], 1)
    return (
        MemoryModel(float(fixed), float(each)) if each > 0 else MemoryModel(float(max(peaks.values())), 0.0)
    )


def _tie(one: Rung, best: Rung) -> float:
    if one.size == best.size:
        return 0.0
    return min(max(TIE_LEAST, 2 * math.hypot(one.error, best.error)), TIE_MOST)


def _worth(
    sizes: Sequence[int], numbers: Sequence[int], known: Rungs, budget: int | None, limit: int
) -> list[int]:
    """Of some rungs those that exist, are not known, may fit, and that the limit leaves room for."""
    model = memory_model(known)
    found = [sizes[i] for i in numbers if 0 <= i < len(sizes) and sizes[i] not in known]
    hopeful = [
        size
        for size in found
        if model is None or budget is None or model.peak_bytes(size) <= HOPELESS * budget
    ]
    broken = min((rung.size for rung in known.values() if rung.out_of_memory), default=math.inf)
    return [size for size in hopeful if size < broken][: max(0, limit - len(known))]


def _over_the_top(known: Rungs) -> bool:
    """Whether the largest size so far does not run, or is a tenth slower than the best."""
    top = known[max(known)]
    times = [rung.log_time for rung in known.values() if rung.log_time is not None]
    if top.log_time is None:
        return bool(times) or top.out_of_memory
    return top.log_time > min(times) + math.log1p(CLIFF)


def _cliff(fits: Sequence[Rung]) -> tuple[Rung, Rung] | None:
    """The largest jump upwards between neighbours that leads a tenth above the best smaller size."""
    jumps = []
    for number in range(1, len(fits)):
        before = min(rung.log_time or 0.0 for rung in fits[:number])
        rise = (fits[number].log_time or 0.0) - before
        if rise > math.log1p(CLIFF):
            jumps.append((fits[number - 1], fits[number]))
    return jumps[0] if jumps else None


def _bracket(sizes: Sequence[int], known: Rungs, budget: int | None) -> tuple[int, int]:
    """Numbers of the largest size that fits (-1: none) and of the smallest that does not, or is predicted
    hopeless."""
    low = max(
        (i for i, size in enumerate(sizes) if size in known and known[size].log_time is not None), default=-1
    )
    model = memory_model(known)
    beyond = [
        i
        for i, size in enumerate(sizes)
        if i > low
        and (
            (size in known and known[size].log_time is None)
            or (
                size not in known
                and model is not None
                and budget is not None
                and model.peak_bytes(size) > HOPELESS * budget
            )
        )
    ]
    return low, min(beyond, default=len(sizes))
