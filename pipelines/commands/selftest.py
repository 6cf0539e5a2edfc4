"""Can this machine resolve a difference? Placebos, and delays of known size, measured like any sweep."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console

from perfsweep.pipelines.analysis import collect
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.judging import Judge
from perfsweep.pipelines.config.types import DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.tally import trials_ahead
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.report.tables import table_of
from perfsweep.pipelines.report.terminal_table import print_table
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import PLACEBO, Manifest, SweepFolder
from perfsweep.pipelines.terminal import console_here
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Device

DELAYS = (1, 3, 10)
"""Injected, in per cent."""

MUST_RESOLVE = 3
"""A machine that does not resolve this many per cent is not fit to measure on."""


@dataclass(frozen=True)
class Resolution:
    """What was measured of an injected delay; 0 is a placebo, which has none."""

    delay: int
    result: EffectResult

    @property
    def right(self) -> bool:
        """Whether the delay was called slower; or a placebo was called nothing."""
        if self.delay:
            return self.result.verdict is Verdict.SLOWER
        return self.result.verdict in (Verdict.NO_DIFFERENCE, Verdict.UNDECIDED, Verdict.HELD_BACK)

    @property
    def covered(self) -> bool:
        """Whether the interval holds the delay that was injected."""
        low, high = self.result.low, self.result.high
        return low is not None and high is not None and low <= 1 + self.delay / 100 <= high


def selftest(budget: float) -> int:
    """Say whether this machine resolves a delay that is known; status 1 if not."""
    return DONE if run(console_here(), budget) else SOME_FAILED


def run(console: Console, budget_s: float) -> bool:
    """Measure, print the answer, and say whether it resolves 3 % and keeps silent about placebos."""
    started = time.monotonic()
    device = environment.device_facts()
    with tempfile.TemporaryDirectory(prefix="perfsweep-selftest-") as folder:
        trials, manifest, sweep = _measure(console, Path(folder), device, budget_s)
        found = _resolutions(sweep, manifest, trials)
    _show(console, found, trials, time.monotonic() - started)
    return passes(found)


def passes(found: list[Resolution]) -> bool:
    """Whether every delay from 3 % up is resolved, and placebos are called nothing."""
    needed = [one for one in found if one.delay == 0 or one.delay >= MUST_RESOLVE]
    return bool(needed) and all(one.right for one in needed)


def command(runs: Path, budget_s: float) -> SweepCommand:
    """The sweep to measure: short trials, rounds until half a per cent is reached or the budget spent."""
    return SweepCommand(
        workload={"name": "selftest"},
        measure=MeasureConfig(
            rounds=10,
            servers=2,
            evidence_iterations=2,
            counting_iterations=2,
            timeout_s=60,
            margin=0.002,
            precision=0.004,
            rounds_max=400,
            budget_s=budget_s,
            repeats=0,
            placebo=2,
        ),
        sweep=SweepConfig(
            name="selftest", designs=[DesignConfig("one_at_a_time", levels={"delay": list(DELAYS)})]
        ),
        runs=str(runs),
        name="selftest",
    )


def _measure(
    console: Console, runs: Path, device: Device, budget_s: float
) -> tuple[pl.DataFrame, Manifest, SweepFolder]:
    wanted = command(runs, budget_s)
    manifest = plan.make_plan(wanted, device)
    sweep = SweepFolder(runs / manifest.sweep.name)
    launch.prepare(sweep, manifest, "")
    console.print(
        f"measuring placebos and delays of {', '.join(map(str, DELAYS))} % on"
        f" {device.name or device.type}, for at most {budget_s:.0f} s"
    )
    ahead = trials_ahead(manifest, {pack.id: manifest.sweep.measure.rounds for pack in manifest.packs})
    with progress_display.live(console, manifest, ahead, sweep) as progress:
        launch.launch(sweep, manifest, list(manifest.packs), wanted.cluster, device, (), progress)
    return collect.collect(sweep, manifest), manifest, sweep


def _resolutions(sweep: SweepFolder, manifest: Manifest, trials: pl.DataFrame) -> list[Resolution]:
    progress = read_progress(sweep, manifest)
    used = trials.filter(pl.col("used") & (pl.col("outcome") == "ok"))
    found = []
    for result in Judge(manifest, progress, used).effects():
        delay = 0 if result.effect.design == PLACEBO else int(result.effect.level)
        found.append(Resolution(delay, result))
    return sorted(found, key=lambda one: one.delay)


def _show(console: Console, found: list[Resolution], trials: pl.DataFrame, seconds: float) -> None:
    headings = ("injected", "measured", "95 % interval", "rounds", "verdict", "resolved")
    rows = [tuple(_cells(one)) for one in found]
    print_table(console, table_of("self-test", headings, rows, numbers=headings[:4]))
    timing = trials.filter(pl.col("kind") == "timing")
    disturbed = timing.filter(pl.col("disturbed") != "")
    if disturbed.height:
        last = disturbed["disturbed"].to_list()[-1]
        console.print(
            f"{disturbed.height} of {timing.height} timing trials were disturbed, the last by: {last}"
        )
    fit = "resolves" if passes(found) else "does not resolve"
    console.print(
        f"this machine {fit} {MUST_RESOLVE} %, across {timing['server'].n_unique()} fork"
        f" servers; the test took {seconds:.0f} s"
    )


def _cells(one: Resolution) -> list[str]:
    result = one.result
    injected = f"{one.delay} %" if one.delay else f"placebo {result.effect.level}"
    if result.ratio is None or result.low is None or result.high is None:
        return [injected, "", "", str(result.rounds), result.word, "no"]
    return [
        injected,
        f"{math.expm1(math.log(result.ratio)):+.2%}",
        f"{result.low - 1:+.2%} .. {result.high - 1:+.2%}",
        str(result.rounds),
        result.word,
        ("yes" if one.right else "no") + ("" if one.covered else ", interval misses it"),
    ]
