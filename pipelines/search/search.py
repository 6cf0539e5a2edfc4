"""Which arms a search for the fastest one measures next.

The order that proved cheapest for noisy times: the ladder first, each level by itself, then a fractional
design over all toggles at once, and single changes of the best arm until none of them promises anything.
Pure: steps go out, what is known of all arms comes back, so that simulated machines drive it as real ones do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.search.ladders import Frontier, Rung, climb, fastest, frontier, largest_feasible
from pipelines.search.surrogate import Factor, Known, Point, predict

LADDER_LIMIT = 10
"""Most sizes that the climb measures."""
WIDTH = 5
"""Most arms that a polishing step adds to the best one."""
PASSES = 4
"""Most polishing steps."""
SHARE = 0.25
"""Part of the trials of an exhaustive search that are taken at most; one polishing step is had in any case.
"""
PROMISE = 1.5
"""An arm is tried while its predicted time less so many standard deviations is under the best."""
NEGLIGIBLE = math.log(1.005)
"""Gains under this are not worth an arm."""
COUNTED = 1024
"""Most arms that are told apart into legal and illegal ones to count them."""
ENUMERATED = 4096
"""Most arms among which the prediction looks for the best."""


@dataclass(frozen=True)
class Seen:
    """What is known of an arm: log cost against the reference with its variance, or why it is out of the
    question."""

    value: float | None
    variance: float = 0.0
    reason: str = ""
    outcome: str = ""
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Step:
    """Arms to be measured together. `base` is among them where they are compared with it instead of the
    reference."""

    name: str
    points: tuple[Point, ...]
    base: Point | None = None


@dataclass(frozen=True)
class Answer:
    """How a search ended.

    Attributes
    ----------
    best : the fastest arm that keeps to the limits; None: not even the reference does
    expected : predicted log cost of an arm against the reference, by what each toggle would be changed to on
        the best arm
    dropped : toggles that left the search early, with the reason
    highs : the value of each toggle that the search took as its best by itself
    """

    best: Point | None
    expected: Mapping[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    highs: Mapping[str, int] = field(default_factory=dict)


View = Mapping[Point, Seen]
Search = Generator[Step, View, Answer]


def screens(count: int) -> np.ndarray:
    """[arms, toggles] of 0 and 1: of two toggles all combinations, of three half, of four 8 arms, of five to
    eight 16.

    Every level by itself is measured already, so that half of the combinations of few toggles is enough.
    """
    if count <= 2:
        return np.array(list(itertools.product((0, 1), repeat=count)), dtype=int).reshape(2**count, count)
    from pyDOE3 import fracfact

    from pipelines.plan.fractional import GENERATORS

    known = {3: {3: "a b -ab"}, 4: {4: "a b c abc"}, **GENERATORS}[count]
    return (fracfact(known[min(known)]).astype(int) + 1) // 2


def exhaustive(factors: Sequence[Factor], legal: Callable[[Point], bool]) -> int:
    """How many arms there are; illegal ones are told apart where there are not very many."""
    ranges = [range(len(factor.values)) for factor in factors]
    count = math.prod(map(len, ranges))
    return count if count > COUNTED else sum(map(legal, itertools.product(*ranges)))


def search(factors: Sequence[Factor], legal: Callable[[Point], bool], budget: int | None = None) -> Search:
    """Find the fastest arm.

    Parameters
    ----------
    factors : the toggles; one at most is a ladder
    legal : whether an arm may exist
    budget : bytes that an arm may need, for the prediction of sizes that cannot fit
    """
    hunt = _Hunt(factors, legal)
    for stage in (hunt.ladder(budget), hunt.alone(), hunt.screen(), hunt.polish()):
        yield from stage
        if hunt.lost():
            break
    return hunt.answer()


def explore(factor: Factor, budget: int | None, limit: int) -> Generator[Step, View, Frontier]:
    """Find the fastest size of one ladder, its cliff, and the largest size that fits, in at most `limit`
    measurements."""
    numbers = {int(value): n for n, value in enumerate(factor.values) if isinstance(value, int)}
    sizes, known = sorted(numbers), {}
    stages = (lambda: climb(sizes, budget, limit), lambda: largest_feasible(sizes, known, budget, limit))
    for begin in stages:
        stage = begin()
        wanted = next(stage, None)
        while wanted:
            view = yield Step("ladder", tuple((numbers[size],) for size in wanted))
            known = {size: _rung(size, view[n,]) for size, n in numbers.items() if (n,) in view}
            try:
                wanted = stage.send(known)
            except StopIteration:
                wanted = None
    return frontier(sizes, known, budget)


class _Hunt:
    """What a search knows while it runs."""

    def __init__(self, factors: Sequence[Factor], legal: Callable[[Point], bool]) -> None:
        self.factors, self.legal = factors, legal
        self.origin = tuple(factor.start for factor in factors)
        self.at = self.origin
        self.rung = next((i for i, factor in enumerate(factors) if factor.sizes), None)
        self.toggles = [i for i in range(len(factors)) if i != self.rung]
        self.highs: dict[int, int] = {}
        self.dropped: dict[str, str] = {}
        self.view: View = {}
        self.measured = 0  # arms of all steps, repeated ones and references included

    def lost(self) -> bool:
        """Whether the reference itself is out of the question, so that nothing can be held against it."""
        seen = self.view.get(self.origin)
        return seen is not None and seen.value is None

    def ask(
        self, name: str, points: Sequence[Point], base: Point | None = None
    ) -> Generator[Step, View, None]:
        """Have arms measured; a step without any new one is none."""
        if points:
            together: tuple[Point, ...] = tuple(dict.fromkeys([*([base] if base else []), *points]))
            self.measured += len({*together, self.origin})
            self.view = yield Step(name, together, base)

    def ladder(self, budget: int | None) -> Generator[Step, View, None]:
        """The best size with all else as in the reference."""
        if self.rung is None:
            return
        sizes = {
            int(v): i for i, v in enumerate(self.factors[self.rung].values) if isinstance(v, (int, float))
        }
        usable = [
            size for size in sorted(sizes) if self.legal(self.moved(self.origin, self.rung, sizes[size]))
        ]
        steps = climb(usable, budget, LADDER_LIMIT)
        wanted = next(steps, None)
        while wanted:
            yield from self.ask(
                "ladder", [self.moved(self.origin, self.rung, sizes[size]) for size in wanted]
            )
            seen = {
                size: self.view.get(self.moved(self.origin, self.rung, number))
                for size, number in sizes.items()
            }
            known = {size: _rung(size, one) for size, one in seen.items() if one is not None}
            try:
                wanted = steps.send(known)
            except StopIteration:
                if best := fastest(known):
                    self.at = self.moved(self.origin, self.rung, sizes[best.size])
                return

    def alone(self) -> Generator[Step, View, None]:
        """Each level by itself: what cannot run, or changes results, leaves the search here."""
        trials = {(i, n): self.moved(self.at, i, n) for i in self.toggles for n in self.others(i)}
        trials = {key: point for key, point in trials.items() if self.legal(point)}
        yield from self.ask("alone", list(trials.values()), self.at)
        for i in self.toggles:
            found = {n: self.view[point] for (j, n), point in trials.items() if j == i and point in self.view}
            fits = {n: seen.value for n, seen in found.items() if seen.value is not None}
            if fits:
                self.highs[i] = min(fits, key=lambda n: fits[n])
            elif found:
                self.dropped[self.factors[i].name] = next(iter(found.values())).reason
            elif others := self.others(i):  # it needs another toggle's level beside it
                self.highs[i] = others[0]

    def screen(self) -> Generator[Step, View, None]:
        """All toggles that are left at once, at the size found."""
        names = list(self.highs)
        rows = screens(len(names)) if 2 <= len(names) <= 8 else []
        points = []
        for row in rows:
            point = self.at
            for i, on in zip(names, row, strict=True):
                point = self.moved(point, i, self.highs[i]) if on else point
            if point not in self.view and self.legal(point):
                points.append(point)
        yield from self.ask("screen", points)

    def polish(self) -> Generator[Step, View, None]:
        """Single changes of the best arm, and the arm that all that is known predicts to be the best."""
        most = SHARE * exhaustive(self.factors, self.legal)
        for number in range(PASSES):
            best = self.best()
            if best is None:
                return
            promising = self.promising(best)
            if not promising or (number and self.measured + len({*promising, best, self.origin}) > most):
                return
            yield from self.ask(f"polish {number + 1}", promising, best)

    def promising(self, best: Point) -> list[Point]:
        """Arms not measured yet that may well be faster than the best, the likeliest first."""
        candidates = [
            point
            for point in {*self.changes(best), *self.corners()}
            if point not in self.view and self.legal(point)
        ]
        candidates = sorted(point for point in candidates if not self.hopeless(point))
        if not candidates:
            return []
        means, errors = self.predicted([best, *candidates])
        reach = {point: means[i + 1] - PROMISE * errors[i + 1] for i, point in enumerate(candidates)}
        worth = [point for point in candidates if reach[point] < means[0] - NEGLIGIBLE]
        return sorted(worth, key=lambda point: reach[point])[:WIDTH]

    def changes(self, best: Point) -> list[Point]:
        """All arms that differ from the best in one toggle; on the ladder only its neighbours."""
        found = [
            self.moved(best, i, n)
            for i in self.toggles
            for n in range(len(self.factors[i].values))
            if n != best[i]
        ]
        if self.rung is not None:
            found += [self.moved(best, self.rung, n) for n in self.neighbours(best[self.rung])]
        return [point for point in found if self.allowed(point)]

    def neighbours(self, number: int) -> list[int]:
        """The next smaller and the next larger size."""
        assert self.rung is not None
        sizes = self.factors[self.rung].sizes
        here = sizes[number]
        ordered = sorted((size, i) for i, size in enumerate(sizes) if size is not None)
        if here is None:
            return []
        below = [i for size, i in ordered if size < here]
        above = [i for size, i in ordered if size > here]
        return [*below[-1:], *above[:1]]

    def corners(self) -> list[Point]:
        """Every combination of the levels that are best by themselves, at every size; none where there are
        too many."""
        choices = [
            sorted({factor.start, self.highs.get(i, factor.start)})
            if i != self.rung
            else list(range(len(factor.values)))
            for i, factor in enumerate(self.factors)
        ]
        return list(itertools.product(*choices)) if math.prod(map(len, choices)) <= ENUMERATED else []

    def allowed(self, point: Point) -> bool:
        """Whether no toggle that has left the search is in it."""
        return all(
            self.factors[i].name not in self.dropped or point[i] == self.factors[i].start
            for i in self.toggles
        )

    def hopeless(self, point: Point) -> bool:
        """Whether an arm of the same levels but a smaller size ran out of memory already."""
        if self.rung is None or (here := self.factors[self.rung].sizes[point[self.rung]]) is None:
            return False
        for other, seen in self.view.items():
            size = self.factors[self.rung].sizes[other[self.rung]]
            alike = self.moved(other, self.rung, 0) == self.moved(point, self.rung, 0)
            if alike and seen.outcome == "oom" and size is not None and size <= here:
                return True
        return False

    def predicted(self, points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of log costs, from all arms that ran."""
        known = {point: seen for point, seen in self.view.items() if seen.value is not None}
        values = np.array([seen.value for seen in known.values()])
        variances = np.array([seen.variance for seen in known.values()])
        return predict(self.factors, Known(list(known), values, variances), points)

    def best(self) -> Point | None:
        """Of the arms that were measured and keep to the limits the fastest by all that is known; of equals
        the plainest."""
        runs = sorted(point for point, seen in self.view.items() if seen.value is not None)
        if not runs:
            return None
        means, _ = self.predicted(runs)
        near = [point for point, mean in zip(runs, means, strict=True) if mean <= means.min() + NEGLIGIBLE]
        return min(
            near, key=lambda point: sum(one != other for one, other in zip(point, self.origin, strict=True))
        )

    def answer(self) -> Answer:
        """The best arm, and what changing it would cost."""
        best = self.best()
        names = {self.factors[i].name: n for i, n in self.highs.items()}
        if best is None:
            return Answer(None, {}, self.dropped, names)
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
        return Answer(best, expected, self.dropped, names)

    def others(self, i: int) -> list[int]:
        """The values of a toggle but the one it starts from."""
        return [n for n in range(len(self.factors[i].values)) if n != self.factors[i].start]

    @staticmethod
    def moved(point: Point, i: int, number: int) -> Point:
        """An arm with one toggle changed."""
        return (*point[:i], number, *point[i + 1 :])


def _rung(size: int, seen: Seen) -> Rung:
    return Rung(
        size, seen.value, math.sqrt(seen.variance), seen.peak_bytes, seen.reason, seen.outcome == "oom"
    )
