"""``make peers``: the same plants by perfsweep and by four other tools, each for as long as perfsweep takes.

Prints how often each tool called an arm slower, by what was planted; how often it was wrong, as it called an
equal arm different or a slower one faster; and how far its figures lay from what was planted.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from peers.step import PLANTS
from peers.tools import TOOLS, Said, timed


def found(said: Mapping[int, Said], plant: int) -> bool:
    """Whether a plant is called slower."""
    return said[plant].called and said[plant].ratio > 1.0


def wrong(said: Mapping[int, Said]) -> int:
    """How many arms are called what they are not."""
    return sum(one.called and (plant == 0 or one.ratio < 1.0) for plant, one in said.items())


def off(said: Sequence[Mapping[int, Said]]) -> float:
    """Median distance of a figure from what was planted, as a share of the time."""
    return median(abs(one.ratio - 1.0 - plant / 100) for each in said for plant, one in each.items())


def table(said: Mapping[str, Sequence[Mapping[int, Said]]], seconds: Mapping[str, Sequence[float]]) -> str:
    """Rows of Markdown."""
    plants = [plant for plant in PLANTS if plant]
    rows = [["tool", "seconds", *(f"+{plant} % found" for plant in plants), "wrong calls", "figures off by"]]
    rows.append(["---", *["---:"] * (len(rows[0]) - 1)])
    for tool, each in said.items():
        counts = [f"{sum(found(one, plant) for one in each)} of {len(each)}" for plant in plants]
        calls = f"{sum(map(wrong, each))} of {len(each) * len(PLANTS)}"
        rows.append([tool, f"{fmean(seconds[tool]):.0f}", *counts, calls, f"{off(each):.1%}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="repetitions")
    parser.add_argument("--budget", type=float, default=12.0, help="seconds of perfsweep's rounds")
    asked = parser.parse_args()
    tools = [tool for tool in TOOLS if tool != "hyperfine" or shutil.which("hyperfine")]
    said: dict[str, list[dict[int, Said]]] = {tool: [] for tool in tools}
    seconds: dict[str, list[float]] = {tool: [] for tool in tools}
    for number in range(asked.times):
        allowed = asked.budget
        for tool in tools:
            with tempfile.TemporaryDirectory(prefix="peers-") as folder:
                answer, took = timed(tool, Path(folder), allowed)
            said[tool].append(answer)
            seconds[tool].append(took)
            allowed = seconds["perfsweep"][-1]
            figures = ", ".join(
                f"+{plant} %: {one.ratio - 1:+.1%}{' called' if one.called else ''}"
                for plant, one in sorted(answer.items())
            )
            print(f"{number + 1}: {tool}, {took:.0f} s, {figures}", flush=True)
    print(f"\n{table(said, seconds)}")


if __name__ == "__main__":
    main()
