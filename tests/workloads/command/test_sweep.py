"""A sweep of a command through the ordinary pipelines: times, parity, outcomes, the user's environment."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.api import Device
from perfsweep.workloads.user_environment import user_environment

pytestmark = pytest.mark.workloads

PROGRAM = """
import json, os, sys

options = dict(word.removeprefix("--").split("=") for word in sys.argv[1:])
total = 0
for number in range(int(options["work"])):
    total += number % 7
if options.get("end") == "early":
    sys.exit("out of luck")
with open("environment.json", "w") as file:
    json.dump(dict(os.environ), file)
print(json.dumps({"answer": 42 if options.get("sum") != "wrong" else 43}))
"""

TOGGLES = {
    "work": {"whole": "--work=2000000", "half": "--work=1000000"},
    "sum": {"right": "", "wrong": "--sum=wrong"},
    "end": {"late": "", "early": "--end=early"},
    "idle": {False: "", True: "--idle=1", "witness": "output_bytes"},
}
OF_PYTHON = {"LC_CTYPE", "PYTEST_CURRENT_TEST"}
"""Set by the interpreter of the program, or meanwhile by that of the test."""


@dataclass(frozen=True)
class Done:
    """A finished sweep."""

    folder: Path
    trials: pl.DataFrame
    comparison: Comparison
    environ: dict[str, str]

    def effect(self, toggle: str) -> EffectResult:
        return next(one for one in self.comparison.effects if one.effect.toggle == toggle)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    home = tmp_path_factory.mktemp("user")
    (home / "job.py").write_text(PROGRAM)
    own = {"command": f"{sys.executable} -I -S job.py", "folder": str(home), "toggles": TOGGLES}
    command = SweepCommand(
        workload={"name": "command", **own, "evidence": {"json": ["answer"]}},
        measure=MeasureConfig(rounds=5, servers=1, jobs=1, timeout_s=60, repeats=0),
        sweep=SweepConfig(name="toy", designs=[DesignConfig("one_at_a_time")]),
        runs=str(home / "runs"),
    )
    environ = dict(os.environ)
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(home / "runs" / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    broken = launch.launch(folder, manifest, list(manifest.packs), command.cluster, Device())
    assert not broken
    # Processor time is what a loaded machine does not stretch; that it was loaded is no matter here.
    trials = collect.collect(folder, manifest).with_columns(
        ns_per_unit=pl.col("cpu_ns_per_unit"), disturbed=pl.lit("")
    )
    return Done(home, trials, compare.compare(folder, manifest, trials), environ)


def test_half_the_work_of_the_command_is_found_by_the_time_of_its_processes(done: Done) -> None:
    result = done.effect("work")
    assert result.ratio == pytest.approx(0.5, abs=0.15)
    assert result.verdict is Verdict.FASTER
    assert result.parity is not None and result.parity.verdict is ParityVerdict.IDENTICAL


def test_another_result_is_different(done: Done) -> None:
    result = done.effect("sum")
    assert result.verdict is Verdict.DIFFERENT and "answer" in result.parity_text


def test_a_level_that_crashes_fails_with_what_it_said(done: Done) -> None:
    result = done.effect("end")
    assert (result.word, result.ratio) == ("failed", None)
    assert "status 1 instead of 0; last it wrote: out of luck" in result.note


def test_memory_is_the_commands_and_times_are_of_single_runs(done: Done) -> None:
    ok = done.trials.filter((pl.col("kind") == "timing") & (pl.col("outcome") == "ok"))
    assert ok.height == 5 * 4 and (ok["units"] == 1).all()
    assert ok["peak_bytes"].min() > 5e6 and ok["peak_bytes"].max() < 40e6  # type: ignore[operator]


def test_the_command_sees_the_environment_that_the_sweep_was_started_in(done: Done) -> None:
    seen = json.loads((done.folder / "environment.json").read_text())
    assert {k: v for k, v in seen.items() if k not in OF_PYTHON} == {
        k: v for k, v in user_environment(done.environ).items() if k not in OF_PYTHON
    }
