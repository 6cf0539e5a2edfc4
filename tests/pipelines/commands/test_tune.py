"""perfsweep tune and frontier on simulated machines; the small check at the end is real."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from measured import SimulatedLaunch
from toys.tunable import BYTES_EACH, OPTIMUM, log_cost
from typed import ended

from perfsweep.pipelines.commands import frontier
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.search.ladders import LadderResult, MemoryModel, SizeResult
from perfsweep.workloads.api import Level, Levels, Numbers, Toggle

BEST = {"fuse": "on", "narrow": "on", "share": "on", "slab": OPTIMUM}
TUNE = ["tune", "workload=toys.tunable:Tunable", "tracking=disabled"]
LADDER = ["tune.ladder=slab", "tune.sizes=[8,16,32,64,128,256]"]


def cost(levels: Levels) -> float:
    return math.exp(log_cost(levels))


def memory(levels: Levels) -> float:
    return 3e8 + BYTES_EACH * int(levels["slab"])


@dataclass
class Shell:
    """A folder in which commands are run, with a simulated machine in the place of this one."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def on(self, machine: SimulatedLaunch) -> Shell:
        self.monkeypatch.setattr(launch, "launch", machine)
        return self

    def __call__(self, *words: str) -> tuple[int, str]:
        """Exit status and everything printed."""
        self.monkeypatch.setattr(sys, "argv", ["perfsweep", *words])
        return ended(*words), "".join(self.capsys.readouterr())


@pytest.fixture
def at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    yield Shell(tmp_path, monkeypatch, capsys)


def simulated(**changes) -> SimulatedLaunch:
    return SimulatedLaunch(cost, **{"peak_of": memory, "noise": 0.01, "spikes": 0.0, **changes})


@pytest.mark.slow
def test_an_interrupted_search_says_what_it_learnt_and_the_same_command_finishes_and_keeps_a_preset(
    at: Shell,
) -> None:
    machine = simulated(wrong=lambda levels: levels["wrong"] == "on")
    words = [*TUNE, "tune.toggles=[fuse,narrow,extra,share,wrong]", *LADDER, "measure.rounds=6"]
    machine.break_at = "p003"
    status, out = at.on(machine)(*words)
    assert status == 130, out
    assert (
        "learnt so far" in out
        and "not verified" in out
        and "The same command continues where it stopped" in out
    )

    machine.break_at = None
    before = list(machine.launched)
    status, out = at(*words)
    assert status == 0, out
    assert not set(before) & set(machine.launched[len(before) :]), "what was measured is not measured again"
    assert re.search(r"kept fuse=on: [\d.]+x faster", out) and "leave one out" in out
    assert re.search(r"dropped extra=on: [\d.]+x slower", out)
    assert "dropped wrong: changes results: departs from the baseline: sum" in out
    assert "against the baseline: " in out and "against everything on: " in out
    assert (at.folder / "runs/tunable-tune/report.html").exists() and (
        at.folder / "runs/tunable-tune-verified/report.html"
    ).exists()

    preset = at.folder / "runs/conf/toggles/tuned-tunable-cpu.yaml"
    assert yaml.safe_load(preset.read_text()) == BEST
    assert "against the baseline" in preset.read_text()
    use = (
        next(line for line in out.splitlines() if line.startswith("use it: "))
        .split("perfsweep run ")[1]
        .replace("'", "")
    )
    status, out = at("sweep", *use.split(), "axes.extra=[on]", "dry_run=true", "tracking=disabled")
    assert status == 0, out
    assert "fuse=on,narrow=on" in out and f"slab={OPTIMUM}" in out


def test_where_not_even_the_baseline_fits_the_end_says_so(at: Shell) -> None:
    machine = simulated(peak_of=lambda levels: 1e12)
    status, out = at.on(machine)(*TUNE, "tune.toggles=[fuse]", "tune.memory_gib=1")
    assert status == 1, out
    assert "no feasible arm: not even the baseline: out: oom" in out and "too much memory" in out
    assert not list(at.folder.glob("runs/conf/**/*.yaml")) and list(at.folder.glob("runs/*/report.html"))


MISTAKES = [
    ([], "tune.toggles is empty: name up to 8 of fuse, narrow"),
    (["tune.toggles=[slab]"], "slab has no level to try but 1"),
    (["tune.toggles=[fuse]", "tune.memory_gib=2", "measure.memory_gib=1"], "contradict one another"),
]


@pytest.mark.parametrize(
    ("words", "said"), MISTAKES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_mistake_is_one_sentence(at: Shell, words: list[str], said: str) -> None:
    status, out = at(*TUNE, *words)
    assert status == 2, out
    assert said in out
    assert "Traceback" not in out and len(out.strip().splitlines()) == 1


def test_a_dry_run_of_a_search_says_what_it_leaves_out_and_measures_nothing(at: Shell) -> None:
    machine = simulated()
    status, out = at.on(machine)(*TUNE, "tune.toggles=[fuse,narrow]", "tune.parity=exact", "dry_run=true")
    assert (status, machine.launched) == (0, []), out
    assert (
        "left out: narrow=on: its results may move further than tune.parity=exact; allow it with tolerance"
        in out
    )
    assert "fuse" in out and not (at.folder / "runs").exists()


@pytest.mark.slow
def test_a_frontier_has_the_fastest_size_its_cliff_and_what_does_not_fit(at: Shell) -> None:
    budget = 3e8 + 300 * BYTES_EACH
    machine = simulated(noise=0.003)
    status, out = at.on(machine)(
        *(
            "frontier",
            "workload=toys.tunable:Tunable",
            "tracking=disabled",
            f"frontier.memory_gib={budget / 2**30:.4f}",
        )
    )
    assert status == 0, out
    assert f"fastest: slab={OPTIMUM}" in out
    assert re.search(r"cliff: a unit at 128 is [\d.]+x slower than at 64", out)
    assert "largest that fits: slab=256; 512 is predicted to need" in out
    assert "peak memory: 300 MB + 1.05 MB for each" in out
    page = (at.folder / "runs/tunable-frontier/report.html").read_text()
    assert "Frontier of slab" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frontier.toggle=mode"], "mode is no ladder"),
        (["frontier.toggle=size"], "the ladders of this workload are: slab"),
    ],
)
def test_a_mistake_about_a_frontier_is_one_sentence(at: Shell, words: list[str], said: str) -> None:
    status, out = at("frontier", "workload=toys.tunable:Tunable", *words)
    assert status == 2, out
    assert said in out and "Traceback" not in out


@pytest.mark.slow
def test_a_real_search_ends_with_a_verdict_and_never_keeps_what_changes_results(at: Shell) -> None:
    measure = [
        "measure.iterations=12",
        "measure.warmup_max=8",
        "measure.evidence_iterations=2",
        "measure.counting_iterations=2",
        "measure.servers=1",
        "cluster.executor=inprocess",
    ]
    words = ["tune.toggles=[fuse,wrong]", "tune.rounds=2", "measure.rounds=3"]
    status, out = at(*TUNE, *words, *measure, "workload.wait_ms=8")
    too_noisy = "the times decide nothing: nothing is written" in out  # on a machine that others use too
    assert status == (1 if too_noisy else 0), out
    assert "dropped wrong: changes results" in out
    assert (at.folder / "runs/tunable-tune/report.html").exists()
    for preset in at.folder.glob("runs/conf/toggles/*.yaml"):
        assert "wrong" not in yaml.safe_load(preset.read_text())


@pytest.mark.slow
def test_a_trial_that_needs_more_memory_than_it_may_ends_as_out_of_memory(at: Shell) -> None:
    status, out = at(
        *(
            "run",
            "workload=toys.tunable:Tunable",
            "measure.memory_gib=0.01",
            "measure.iterations=2",
            "measure.warmup_max=5",
        ),
        "workload.wait_ms=1",
    )
    assert status == 1, out
    assert "oom: peak memory of" in out and "is over the 0.01 GiB of measure.memory_gib" in out


MB = 10**6


def ladder(name: str, **levels: Any) -> Toggle:
    return Toggle(name, (Level(1, **levels), Level(2), Level(4), Level(8)), "sizes", numbers=Numbers(1))


def size(number: int, ratio: float | None = None, **own: Any) -> SizeResult:
    return SizeResult(number, None if ratio is None else math.log(ratio), **{"error": 0.01, **own})


def result(*measured: SizeResult, **own: Any) -> LadderResult:
    ran = [one for one in measured if one.ran]
    fastest = min(ran, key=lambda one: one.log_time or 0.0, default=None)
    given = {"cliff": None, "largest": ran[-1] if ran else None, "sure": True, "memory": None, "budget": None}
    return LadderResult(measured, fastest, **{**given, **own})


@pytest.mark.parametrize(
    ("measured", "own", "beyond"),
    [
        ((size(1, 1.0), size(2, reason="CUDA out of memory")), {}, "; 2 does not run: CUDA out of memory"),
        (
            (size(1, 1.0),),
            {"skipped": {8: 5.0 * 2**30, 4: 2.5 * 2**30}, "budget": 2**31},
            "; 4 is predicted to need 2.50 of 2.00 GiB and was not tried",
        ),
        ((size(1, 1.0),), {"sure": False}, "; larger sizes were not tried: raise frontier.measurements"),
        ((size(1, 1.0),), {}, ", where the ladder ends"),
    ],
    ids=["it does not run", "it is predicted not to", "it is not known", "there is none"],
)
def test_why_nothing_larger_is_told(measured: tuple, own: dict, beyond: str) -> None:
    assert f"largest that fits: slab=1{beyond}" in frontier.lines("slab", result(*measured, **own))


def test_the_answer_of_a_frontier_has_speeds_with_their_errors_and_memory_by_size() -> None:
    one, two, four = size(1, 1.0), size(2, 0.5, error=0.02), size(4, 1.0)
    memory = MemoryModel(300e6, 2.5e6)
    assert frontier.lines("slab", result(one, two, four, cliff=(two, four), memory=memory)) == [
        "fastest: slab=2, 2.00x faster (+-4.0%) against slab=1",
        "cliff: a unit at 4 is 2.00x slower than at 2",
        "largest that fits: slab=4, where the ladder ends",
        "peak memory: 300 MB + 2.5 MB for each",
        "3 sizes measured",
    ]
