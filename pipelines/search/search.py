"""Which arms a search for the fastest one measures next.

The order that proved cheapest for noisy times: the ladder first, each level by itself, then a fractional
design over all toggles at once, and single changes of the best arm until none of them promises anything.
Pure: proposals go out, observations of all arms come back, so that simulated machines drive it as real ones
do.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from perfsweep.pipelines.search.factors import Factor, Measured, Point, predict
from perfsweep.pipelines.search.ladders import (
    LadderResult,
    SizeResult,
    climb,
    fastest,
    largest_feasible,
    summary,
)

LADDER_LIMIT = 10
"""Most sizes that the climb measures."""
POLISHED_ARMS = 5
"""Most arms that one polishing proposal adds to the best one."""
POLISHING_STEPS = 4
"""Most polishing proposals."""
TRIAL_BUDGET = 0.25
"""Most of the trials of an exhaustive search that are taken, as a share; one polishing proposal is had in any
case."""
CONFIDENCE = 1.5
"""An arm is tried while its lower confidence bound, so many standard deviations down, is under the best."""
NEGLIGIBLE = math.log(1.005)
"""Gains under this are not worth an arm."""
COUNT_LIMIT = 1024
"""Most arms that are told apart into legal and illegal ones to count them."""
ENUMERATION_LIMIT = 4096
"""Most arms among which the prediction looks for the best."""


@dataclass(frozen=True)
class Observation:
    """What is known of an arm: log cost against the baseline and its variance, or why it is ruled out."""

    value: float | None
    variance: float = 0.0
    reason: str = ""
    outcome: str = ""
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Proposal:
    """Arms to be measured together. `base` is one of them where it replaces the baseline."""

    name: str
    points: tuple[Point, ...]
    base: Point | None = None


@dataclass(frozen=True)
class SearchResult:
    """How a search ended.

    Attributes
    ----------
    best : the fastest arm that keeps to the limits; None: not even the baseline does
    expected : predicted log cost of an arm against the baseline, by what each toggle would be changed to on
        the best arm
    dropped : toggles that left the search early, with the reason
    best_levels : the value of each toggle that the search took as its best by itself
    """

    best: Point | None
    expected: Mapping[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    best_levels: Mapping[str, int] = field(default_factory=dict)


Observations = Mapping[Point, Observation]
Search = Generator[Proposal, Observations, SearchResult]


def screens(count: int) -> np.ndarray:
    """[arms, toggles] of 0 and 1: of two toggles all, of three half, of four 8 arms, of five to eight 16.

    Every level by itself is measured already, so that half of the combinations of few toggles is enough.
    """
    if count <= 2:
        return np.array(list(itertools.product((0, 1), repeat=count)), dtype=int).reshape(2**count, count)
    from pyDOE3 import fracfact

    from perfsweep.pipelines.plan.designs import GENERATORS

    known = {3: {3: "a b -ab"}, 4: {4: "a b c abc"}, **GENERATORS}[count]
    return (fracfact(known[min(known)]).astype(int) + 1) // 2


def exhaustive(factors: Sequence[Factor], legal: Callable[[Point], bool]) -> int:
    """How many arms there are; illegal ones are told apart where there are not very many."""
    ranges = [range(len(factor.values)) for factor in factors]
    count = math.prod(map(len, ranges))
    return count if count > COUNT_LIMIT else sum(map(legal, itertools.product(*ranges)))


def search(factors: Sequence[Factor], legal: Callable[[Point], bool], budget: int | None = None) -> Search:
    """Find the fastest arm.

    Parameters
    ----------
    factors : the toggles; one at most is a ladder
    legal : whether an arm may exist
    budget : bytes that an arm may need, for the prediction of sizes that cannot fit
    """
    state = _SearchState(factors, legal)
    for stage in (state.ladder(budget), state.alone(), state.screen(), state.polish()):
        yield from stage
        if state.reference_is_out():
            break
    return state.result()


def stack(factors: Sequence[Factor], legal: Callable[[Point], bool]) -> Search:
    """Measure each level by itself, and then all that surely gain together.

    It takes a part of the trials of `search`, and finds no level that gains only together with others.
    """
    state = _SearchState(factors, legal)
    yield from state.alone()
    if not state.reference_is_out():
        yield from state.together()
    # Fresh rounds of everything on would be rounds of what costs time.
    return dataclasses.replace(state.result(), best_levels=state.stacked)


def explore(
    factor: Factor, budget: int | None, limit: int
) -> Generator[Proposal, Observations, LadderResult]:
    """Find a ladder's fastest size, cliff, and largest size that fits, in at most `limit` measurements."""
    points = {int(value): (n,) for n, value in enumerate(factor.values) if isinstance(value, int)}
    sizes, known = sorted(points), {}
    stages = (lambda: climb(sizes, budget, limit), lambda: largest_feasible(sizes, known, budget, limit))
    for begin in stages:
        stage = begin()
        chosen = next(stage, None)
        while chosen:
            observations = yield Proposal("ladder", tuple(points[size] for size in chosen))
            known = _known_sizes(points, observations)
            try:
                chosen = stage.send(known)
            except StopIteration:
                chosen = None
    return summary(sizes, known, budget)


class _SearchState:
    """What a search knows while it runs."""

    def __init__(self, factors: Sequence[Factor], legal: Callable[[Point], bool]) -> None:
        self.factors, self.legal = factors, legal
        self.origin = tuple(factor.start for factor in factors)
        self.start = self.origin
        self.ladder_index = next((i for i, factor in enumerate(factors) if factor.sizes), None)
        self.toggles = [i for i in range(len(factors)) if i != self.ladder_index]
        self.best_levels: dict[int, int] = {}
        self.dropped: dict[str, str] = {}
        self.stacked: dict[str, int] = {}
        self.observations: Observations = {}
        self.measured = 0  # arms of all proposals, repeated ones and references included

    def reference_is_out(self) -> bool:
        """Whether the baseline itself is ruled out, so that nothing can be compared with it."""
        reference = self.observations.get(self.origin)
        return reference is not None and reference.value is None

    def propose(
        self, name: str, points: Sequence[Point], base: Point | None = None
    ) -> Generator[Proposal, Observations, None]:
        """Have arms measured, if there are any."""
        if points:
            together: tuple[Point, ...] = tuple(dict.fromkeys([*([base] if base else []), *points]))
            self.measured += len({*together, self.origin})
            self.observations = yield Proposal(name, together, base)

    def ladder(self, budget: int | None) -> Generator[Proposal, Observations, None]:
        """The best size with all else as in the baseline."""
        if self.ladder_index is None:
            return
        points = self._sizes(self.ladder_index)
        climbing = climb([size for size in points if self.legal(points[size])], budget, LADDER_LIMIT)
        chosen = next(climbing, None)
        while chosen:
            yield from self.propose("ladder", [points[size] for size in chosen])
            known = _known_sizes(points, self.observations)
            if best := fastest(known):
                self.start = points[best.size]
            try:
                chosen = climbing.send(known)
            except StopIteration:
                return

    def _sizes(self, ladder: int) -> dict[int, Point]:
        """The baseline at each size of the ladder, in order."""
        values = self.factors[ladder].values
        sizes = sorted((int(value), n) for n, value in enumerate(values) if isinstance(value, (int, float)))
        return {size: self.changed(self.origin, ladder, n) for size, n in sizes}

    def alone(self) -> Generator[Proposal, Observations, None]:
        """Each level by itself: what cannot run, or changes results, leaves the search here."""
        points = {(i, n): self.changed(self.start, i, n) for i in self.toggles for n in self.others(i)}
        points = {key: point for key, point in points.items() if self.legal(point)}
        yield from self.propose("alone", list(points.values()), self.start)
        for i in self.toggles:
            observed = {
                n: self.observations[point]
                for (j, n), point in points.items()
                if j == i and point in self.observations
            }
            costs = {n: one.value for n, one in observed.items() if one.value is not None}
            if costs:
                self.best_levels[i] = min(costs, key=lambda n: costs[n])
            elif observed:
                self.dropped[self.factors[i].name] = next(iter(observed.values())).reason
            elif others := self.others(i):  # it needs another toggle's level with it
                self.best_levels[i] = others[0]

    def together(self) -> Generator[Proposal, Observations, None]:
        """All levels that surely gain by themselves; of levels that exclude each other the better ones."""
        alone = {
            i: self.observations.get(self.changed(self.start, i, n)) for i, n in self.best_levels.items()
        }
        costs = {i: (one.value, math.sqrt(one.variance)) for i, one in alone.items() if one and one.value}
        sure = {i: value + CONFIDENCE * error for i, (value, error) in costs.items()}
        point = self.start
        for i in sorted((i for i, cost in sure.items() if cost < -NEGLIGIBLE), key=lambda i: sure[i]):
            more = self.changed(point, i, self.best_levels[i])
            if self.legal(more):
                point, self.stacked[self.factors[i].name] = more, self.best_levels[i]
        yield from self.propose("stack", [point] if point not in self.observations else [])

    def screen(self) -> Generator[Proposal, Observations, None]:
        """All toggles that are left at once, at the size found."""
        names = list(self.best_levels)
        rows = screens(len(names)) if 2 <= len(names) <= 8 else []
        points = []
        for row in rows:
            point = self.start
            for i, on in zip(names, row, strict=True):
                point = self.changed(point, i, self.best_levels[i]) if on else point
            if point not in self.observations and self.legal(point):
                points.append(point)
        yield from self.propose("screen", points)

    def polish(self) -> Generator[Proposal, Observations, None]:
        """Single changes of the best arm, and the arm that all that is known predicts to be the best."""
        most = TRIAL_BUDGET * exhaustive(self.factors, self.legal)
        for number in range(POLISHING_STEPS):
            best = self.best()
            if best is None:
                return
            promising = self.promising(best)
            if not promising or (number and self.measured + len({*promising, best, self.origin}) > most):
                return
            yield from self.propose(f"polish {number + 1}", promising, best)

    def promising(self, best: Point) -> list[Point]:
        """Arms not measured yet that may well be faster than the best, the likeliest first."""
        candidates = [
            point
            for point in {*self.changes(best), *self.corners()}
            if point not in self.observations and self.legal(point)
        ]
        candidates = sorted(point for point in candidates if not self.cannot_fit(point))
        if not candidates:
            return []
        means, errors = self.predicted([best, *candidates])
        reach = {point: means[i + 1] - CONFIDENCE * errors[i + 1] for i, point in enumerate(candidates)}
        worth = [point for point in candidates if reach[point] < means[0] - NEGLIGIBLE]
        return sorted(worth, key=lambda point: reach[point])[:POLISHED_ARMS]

    def changes(self, best: Point) -> list[Point]:
        """All arms that differ from the best in one toggle; on the ladder only its neighbours."""
        points = [
            self.changed(best, i, n)
            for i in self.toggles
            for n in range(len(self.factors[i].values))
            if n != best[i]
        ]
        if (ladder := self.ladder_index) is not None:
            sizes = self.factors[ladder].sizes
            points += [self.changed(best, ladder, n) for n in self.neighbours(sizes, best[ladder])]
        return [point for point in points if self.allowed(point)]

    @staticmethod
    def neighbours(sizes: Sequence[float | None], number: int) -> list[int]:
        """The next smaller and the next larger size."""
        here = sizes[number]
        ordered = sorted((size, i) for i, size in enumerate(sizes) if size is not None)
        if here is None:
            return []
        below = [i for size, i in ordered if size < here]
        above = [i for size, i in ordered if size > here]
        return [*below[-1:], *above[:1]]

    def corners(self) -> list[Point]:
        """Every combination of the levels best by themselves, at every size; none if there are too many."""
        choices = [
            sorted({factor.start, self.best_levels.get(i, factor.start)})
            if i != self.ladder_index
            else list(range(len(factor.values)))
            for i, factor in enumerate(self.factors)
        ]
        return list(itertools.product(*choices)) if math.prod(map(len, choices)) <= ENUMERATION_LIMIT else []

    def allowed(self, point: Point) -> bool:
        """Whether no toggle that has left the search is in it."""
        return all(
            self.factors[i].name not in self.dropped or point[i] == self.factors[i].start
            for i in self.toggles
        )

    def cannot_fit(self, point: Point) -> bool:
        """Whether an arm of the same levels but a smaller size ran out of memory already."""
        ladder = self.ladder_index
        if ladder is None or (here := self.factors[ladder].sizes[point[ladder]]) is None:
            return False
        out_of_memory = [other for other, one in self.observations.items() if one.outcome == "oom"]
        alike = [other for other in out_of_memory if self.changed(other, ladder, point[ladder]) == point]
        sizes = [self.factors[ladder].sizes[other[ladder]] for other in alike]
        return any(size is not None and size <= here for size in sizes)

    def predicted(self, points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of log costs, from all arms that ran."""
        ran = {point: one for point, one in self.observations.items() if one.value is not None}
        values = np.array([one.value for one in ran.values()])
        variances = np.array([one.variance for one in ran.values()])
        return predict(self.factors, Measured(list(ran), values, variances), points)

    def best(self) -> Point | None:
        """The fastest measured arm within the limits, by all that is known; of equals the plainest."""
        runs = sorted(point for point, one in self.observations.items() if one.value is not None)
        if not runs:
            return None
        means, _ = self.predicted(runs)
        near = [point for point, mean in zip(runs, means, strict=True) if mean <= means.min() + NEGLIGIBLE]
        return min(
            near, key=lambda point: sum(one != other for one, other in zip(point, self.origin, strict=True))
        )

    def result(self) -> SearchResult:
        """The best arm, and what changing it would cost."""
        best = self.best()
        names = {self.factors[i].name: n for i, n in self.best_levels.items()}
        if best is None:
            return SearchResult(None, {}, self.dropped, names)
        changed = {
            (self.factors[i].name, p[i]): p
            for p in self.changes(best)
            for i in range(len(p))
            if p[i] != best[i]
        }
        means, errors = self.predicted([best, *changed.values()])
        expected = {
            key: (float(means[i + 1] - means[0]), float(errors[i + 1])) for i, key in enumerate(changed)
        }
        return SearchResult(best, expected, self.dropped, names)

    def others(self, i: int) -> list[int]:
        """The values of a toggle but the one it starts from."""
        return [n for n in range(len(self.factors[i].values)) if n != self.factors[i].start]

    @staticmethod
    def changed(point: Point, i: int, number: int) -> Point:
        """An arm with one toggle changed."""
        return (*point[:i], number, *point[i + 1 :])


def _known_sizes(points: Mapping[int, Point], observations: Observations) -> dict[int, SizeResult]:
    """What is known of the sizes of a ladder, each with its arm."""
    there = {size: observations[point] for size, point in points.items() if point in observations}
    return {
        size: SizeResult(
            size, one.value, math.sqrt(one.variance), one.peak_bytes, one.reason, one.outcome == "oom"
        )
        for size, one in there.items()
    }
