"""Do answers survive a second sweep? The same equal arms, measured by one sweep after the other.

    python tests/benchmarks/table_sweeps.py digits latentwire --sweeps 10

Each sweep is ``perfsweep sweep workload=W sweep=placebo``: copies of the reference that only keep junk in
memory, so that every effect is none. Prints how many intervals miss zero, how many sweeps call anything, how
far an arm's effect moves between sweeps against its own standard error, and what trials had in common. With
``--levels passes=merged`` each sweep has those levels too, whose effects must come out equal in all. Where
levels are per cent of work that is planted, intervals are counted that hold it (PYTHONPATH=tests/support):

    python tests/benchmarks/table_sweeps.py peers.workload:Peer --levels plant=1,2,5,50 --sweeps 20

Finished sweeps in the folder are read again and not measured again.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

SMALL = {
    "latentwire": ("workload.preset=test", "toggles.effective_batch=4", "toggles.micro_batch=4"),
    "script": (f"workload.path={Path(__file__).parents[2] / 'examples' / 'train_digits.py'}",),
    "spd": (
        "workload.batch_size=2",
        "workload.components=8",
        "workload.log_every=4",
        "workload.eval_every=8",
        "workload.save_every=8",
        "measure.iterations=8",
        "measure.evidence_iterations=3",
        "measure.counting_iterations=1",
        "measure.warmup_max=8",
    ),
    "prover": ("toggles.slab_size=16", "workload.queries=4", "workload.corruptions=7"),
}
"""What a workload needs, or what makes its steps short."""

STOP = ("measure.precision=0.01", "measure.budget_s=30")
"""Arms stop at this half-width, and what is left after so many seconds."""

CALLED = ("faster", "slower")

QUANTILE = 2.09
"""Of Student's t with the twenty or so degrees of freedom that five servers of six arms have."""


@dataclass(frozen=True)
class Sweeps:
    """Effects of placebos [sweeps, placebos] as log ratios, with their intervals, and who was called."""

    log_ratios: np.ndarray
    low: np.ndarray
    high: np.ndarray
    called: np.ndarray
    levels: pl.DataFrame
    faults: tuple[float, float]
    servers: float

    @property
    def errors(self) -> np.ndarray:
        """Standard errors, from the intervals' widths."""
        return (self.high - self.low) / (2 * QUANTILE)

    @property
    def spread(self) -> float:
        """How far effects move between sweeps, in their own standard errors: one if these are true."""
        deviations = self.log_ratios.std(axis=0, ddof=1)
        return float(np.sqrt(np.mean(deviations**2 / np.mean(self.errors**2, axis=0))))

    @property
    def mean(self) -> tuple[float, float]:
        """The mean of all effects as a log ratio, none if there is no bias, and its standard error."""
        means = self.log_ratios.mean(axis=1)
        return float(means.mean()), float(means.std(ddof=1)) / math.sqrt(len(means))


def measure(workload: str, number: int, runs: Path, options: list[str]) -> Path:
    """Run one sweep, or finish it; return its folder."""
    name = f"trust-{workload.replace(':', '-')}-{number}"
    command = [
        sys.executable,
        "-m",
        "perfsweep.pipelines.cli",
        "sweep",
        f"workload={workload}",
        "sweep=placebo",
    ]
    command += [
        f"name={name}",
        f"runs={runs}",
        "tracking=disabled",
        *SMALL.get(workload, ()),
        *STOP,
        *options,
    ]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return runs / name


def collect(folders: list[Path]) -> Sweeps:
    """Read the tables of finished sweeps."""
    tables = [pl.read_parquet(folder / "tables" / "effects.parquet") for folder in folders]
    effects = [table.filter(pl.col("design") == "placebo").sort("level") for table in tables]
    others = pl.concat([table.filter(pl.col("design") != "placebo") for table in tables])
    trials = pl.concat([pl.read_parquet(folder / "tables" / "trials.parquet") for folder in folders])
    timing = trials.filter((pl.col("kind") == "timing") & (pl.col("outcome") == "ok"))
    faults = timing.select(pl.col("minor_faults") / pl.col("iterations")).to_series()
    return Sweeps(
        np.array([[math.log(ratio) for ratio in table["ratio"]] for table in effects]),
        np.array([[math.log(low) for low in table["low"]] for table in effects]),
        np.array([[math.log(high) for high in table["high"]] for table in effects]),
        np.array([[verdict in CALLED for verdict in table["verdict"]] for table in effects]),
        others,
        (float(np.median(faults)), float(np.quantile(faults, 0.95))),
        timing["server"].n_unique() / len(folders),
    )


def level_row(level: str, effects: pl.DataFrame) -> str:
    """One level's effect in all sweeps, whose chi square is near its degrees of freedom if they agree."""
    effects = effects.filter(pl.col("level") == level)
    logs = effects.select(pl.col("ratio", "low", "high").log()).to_numpy()
    errors = (logs[:, 2] - logs[:, 1]) / (2 * QUANTILE)
    mean = float(np.average(logs[:, 0], weights=1 / errors**2))
    chi2 = float(np.sum(((logs[:, 0] - mean) / errors) ** 2)) / max(1, len(logs) - 1)
    called = {verdict: effects.filter(pl.col("verdict") == verdict).height for verdict in CALLED}
    held = ""
    if level.isdecimal():
        planted = math.log1p(int(level) / 100)
        held = f"{int(((logs[:, 1] <= planted) & (planted <= logs[:, 2])).sum())} of {len(logs)}"
    low, high = np.exp(logs[:, 0].min()), np.exp(logs[:, 0].max())
    return (
        f"| {level} | {called['slower']}, {called['faster']} of {len(logs)} |"
        f" {math.exp(mean):.4f} ({low:.4f} .. {high:.4f}) | {chi2:.2f} | {held} |"
    )


def row(workload: str, found: Sweeps) -> str:
    """One line of the table in Markdown."""
    sweeps, placebos = found.log_ratios.shape
    missing = int(((found.low > 0) | (found.high < 0)).sum())
    width = math.expm1(float(np.median(found.high - found.low)) / 2)
    return (
        f"| {workload} | {sweeps} x {placebos} | {missing} of {sweeps * placebos} |"
        f" {int(found.called.any(axis=1).sum())} of {sweeps} | {found.spread:.2f} |"
        f" {found.mean[0]:+.1%} ({2 * found.mean[1]:.1%}) | {width:.1%} |"
        f" {found.servers:.0f} | {found.faults[0]:.0f}, {found.faults[1]:.0f} |"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--levels", default="", help="that every sweep carries too: passes=merged, plant=1,2,5"
    )
    arguments, options = parser.parse_known_args()
    toggle, _, levels = arguments.levels.partition("=")
    if levels:
        options.append(f"sweep.designs=[{{kind: one_at_a_time, levels: {{{toggle}: [{levels}]}}}}]")
    print("| workload | sweeps x placebos | intervals that miss zero | sweeps that call one |", end="")
    print(" sd between sweeps / standard error | mean effect (two standard errors) |", end="")
    print(" median half-width | servers | faults an iteration: median, 95 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    found = {}
    for workload in arguments.workloads:
        folders = [measure(workload, n, arguments.runs, options) for n in range(arguments.sweeps)]
        found[workload] = collect(folders)
        print(row(workload, found[workload]), flush=True)
    for workload in arguments.workloads if levels else ():
        print(f"\n| {workload}, {toggle} | called slower, faster |", end="")
        print(" ratio (least .. most) | chi2/df | intervals that hold it |")
        print("|---|---|---|---|---|")
        print(*(level_row(level, found[workload].levels) for level in levels.split(",")), sep="\n")


if __name__ == "__main__":
    main()
