"""How often `perfsweep history` shows a change point where there is none, and finds one: as Markdown.

``python tests/benchmarks/table_change_points.py``

Series of one value for each version go through the code that `history` asks. Seeds are fixed, so that the
tables are always the same; in brackets stand two standard errors of the simulation.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from perfsweep.pipelines.statistics.change_points import ChangePoints, find_change_points

Noise = Callable[[np.random.Generator, int], np.ndarray]
Table = Iterator[Sequence[str]]

LENGTHS = (10, 20)


def correlated(correlation: float) -> Noise:
    """Values of which each carries a share of the one before, as on a machine that drifts."""

    def noise(rng: np.random.Generator, n: int) -> np.ndarray:
        fresh = rng.standard_normal(n + 50) * math.sqrt(1 - correlation**2)
        values = [fresh[0]]
        for one in fresh[1:]:
            values.append(correlation * values[-1] + one)
        return np.array(values[50:])

    return noise


def with_spikes(rng: np.random.Generator, n: int) -> np.ndarray:
    """One value in ten lies five standard deviations above the others."""
    return rng.standard_normal(n) + 5 * (rng.random(n) < 0.1)


NOISES: dict[str, Noise] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "heavy tails (Student's t, 3 degrees)": lambda rng, n: rng.standard_t(3, n),
    "one in ten five deviations slower": with_spikes,
    "each version correlated with the one before by 0.3": correlated(0.3),
    "by 0.6": correlated(0.6),
}


def share(hits: Sequence[bool]) -> str:
    """A share with two standard errors."""
    mean = float(np.mean(hits))
    return f"{mean:.3f} ({2 * math.sqrt(mean * (1 - mean) / len(hits)):.3f})"


def false_alarms(count: int) -> Table:
    """Share of series without a change that show one."""
    yield "noise", *(f"{n} versions" for n in LENGTHS)
    for name, noise in NOISES.items():
        cells = []
        for n in LENGTHS:
            rng = np.random.default_rng(11)
            cells.append(share([bool(find_change_points(noise(rng, n)).points) for _ in range(count)]))
        yield name, *cells


def found(count: int) -> Table:
    """Share of planted steps found at their version or a neighbour, and of series with further points."""
    yield (
        "step, in standard deviations between versions",
        *(f"{n}: {where}" for n in LENGTHS for where in ("middle", "last 3")),
        "more than one point, 20: middle",
    )
    for step in (2.0, 3.0, 4.0, 6.0):
        cells = []
        more: list[bool] = []
        for n in LENGTHS:
            for place in (n // 2, n - 3):
                rng = np.random.default_rng(12)
                seen = [_of_step(rng, n, place, step) for _ in range(count)]
                cells.append(share([_has(one, place) for one in seen]))
                if (n, place) == (20, 10):
                    more = [len(one.points) > 1 for one in seen]
        yield f"{step:g}", *cells, share(more)


def _of_step(rng: np.random.Generator, n: int, place: int, step: float) -> ChangePoints:
    return find_change_points(rng.standard_normal(n) + step * (np.arange(n) >= place))


def _has(points: ChangePoints, place: int) -> bool:
    return any(abs(point.index - place) <= 1 for point in points.points)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000, help="simulated series for each figure")
    count = parser.parse_args().series
    for title, table in (("False alarms", false_alarms(count)), ("Steps that are found", found(count))):
        head, *rows = table
        print(
            f"\n{title}\n",
            *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)),
            sep="\n",
        )


if __name__ == "__main__":
    main()
