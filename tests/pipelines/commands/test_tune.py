"""perfsweep tune and frontier on simulated machines; the small check at the end is real."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from measured import SimulatedLaunch
from rich.console import Console
from toys.tunable import BYTES_EACH, OPTIMUM, log_cost

from perfsweep.pipelines import cli
from perfsweep.pipelines.commands import frontier
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.search.factors import ladder_factor
from perfsweep.pipelines.search.ladders import LadderResult, MemoryModel, SizeResult
from perfsweep.workloads.api import Level, Levels, Numbers, Toggle
from perfsweep.workloads.errors import ConfigError

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
        with pytest.raises(SystemExit) as end:
            cli.main(list(words))
        out = self.capsys.readouterr()
        return int(end.value.code or 0), out.out + out.err


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


@pytest.mark.slow
def test_a_level_that_does_nothing_beside_the_others_is_not_recommended(at: Shell) -> None:
    def counters(levels: Levels) -> dict[str, float]:
        alone = levels["narrow"] == "on" and levels["fuse"] == "off"
        return {"did_narrow": float(alone), "did_fuse": float(levels["fuse"] == "on")}

    words = [*TUNE, "tune.toggles=[fuse,narrow]", "measure.rounds=6"]
    status, out = at.on(simulated(counters_of=counters))(*words)
    assert status == 0, out
    assert "narrow does nothing with the others: once more without" in out
    assert "tuned: fuse=on\n" in out
    assert "dropped narrow: does nothing with the others" in out
    assert yaml.safe_load((at.folder / "runs/conf/toggles/tuned-tunable-cpu.yaml").read_text()) == {
        "fuse": "on"
    }


@pytest.mark.slow
def test_where_fresh_rounds_find_everything_on_faster_it_is_recommended(at: Shell) -> None:
    """In the search `extra` costs time, as noise may have it; in the verification it does not."""

    def changing(levels: Levels) -> float:
        lucky = not any("verified" in name for name in machine.launched)
        return cost(levels) * (1.0 if lucky or levels["extra"] == "off" else 0.6)

    machine = SimulatedLaunch(changing, noise=0.01, spikes=0.0)
    status, out = at.on(machine)(*TUNE, "tune.toggles=[fuse,extra]", "measure.rounds=6")
    assert status == 0, out
    assert "everything on is faster: once more with it" in out
    assert "tuned: fuse=on, extra=on\n" in out
    assert yaml.safe_load((at.folder / "runs/conf/toggles/tuned-tunable-cpu.yaml").read_text()) == {
        "fuse": "on",
        "extra": "on",
    }


@pytest.mark.slow
def test_memory_compiling_and_parity_limit_what_may_win(at: Shell) -> None:
    machine = simulated(compile_of=lambda levels: 30.0 if levels["share"] == "on" else 0.0)
    status, out = at.on(machine)(
        *(
            *TUNE,
            "tune.toggles=[fuse,narrow,share]",
            "tune.ladder=slab",
            "tune.sizes=[4,8,16,32]",
            "measure.rounds=6",
        ),
        *("tune.parity=exact", "tune.compile_s=10", f"tune.memory_gib={(3e8 + 20 * BYTES_EACH) / 2**30:.4f}"),
    )
    assert status == 0, out
    assert "left out: narrow=on: its results may move as far as tolerance, and tune.parity=exact" in out
    assert "dropped share: compiles for 30.0 s, and tune.compile_s=10" in out
    assert yaml.safe_load((at.folder / "runs/conf/toggles/tuned-tunable-cpu.yaml").read_text()) == {
        "fuse": "on",
        "slab": 16,
    }


@pytest.mark.slow
def test_set_up_and_compiling_count_for_the_stated_number_of_iterations(at: Shell) -> None:
    machine = simulated(compile_of=lambda levels: 60.0 if levels["fuse"] == "on" else 0.0)
    few = [*TUNE, "tune.toggles=[fuse,narrow]", "measure.rounds=6", "tune.iterations=100", "name=few"]
    status, out = at.on(machine)(*few)
    assert status == 0, out
    assert "tuned: narrow=on" in out and re.search(r"dropped fuse=on: [\d.]+x slower", out)


@pytest.mark.parametrize(
    ("machine", "words", "said"),
    [
        (
            {"wrong": lambda levels: "on" in (levels["fuse"], levels["narrow"])},
            "every other arm was ruled out; no preset is written",
            "dropped fuse: changes results",
        ),
        (
            {"peak_of": lambda levels: 1e12},
            "no feasible arm: not even the baseline: out: oom",
            "too much memory",
        ),
    ],
)
def test_where_nothing_can_be_recommended_the_end_says_why(
    at: Shell, machine: dict, words: str, said: str
) -> None:
    status, out = at.on(simulated(**machine))(*TUNE, "tune.toggles=[fuse,narrow]", "tune.memory_gib=1")
    assert status == 1, out
    assert words in out and said in out
    assert not list(at.folder.glob("runs/conf/**/*.yaml"))


@pytest.mark.slow
def test_where_everything_costs_time_the_reference_stays(at: Shell) -> None:
    status, out = at.on(simulated())(*TUNE, "tune.toggles=[extra]")
    assert status == 0, out
    assert "nothing that was tried is faster than the baseline; no preset is written" in out
    assert re.search(r"dropped extra=on: [\d.]+x slower", out)


MISTAKES = [
    ([], "tune.toggles is empty: name up to 8 of fuse, narrow"),
    (["tune.toggles=[fuze]"], "did you mean fuse"),
    (["tune.toggles=[slab]"], "slab has no level to try but 1"),
    (["tune.ladder=mode"], "mode is no ladder"),
    (["tune.toggles=[slab]", "tune.ladder=slab"], "slab is in tune.toggles and in tune.ladder"),
    (
        ["tune.toggles=[narrow,gpu_only]", "tune.parity=exact"],
        "the limits leave nothing to search: narrow=on",
    ),
    (["tune.toggles=[fuse]", "tune.parity=loose"], "tune.parity=loose is unknown"),
    (["tune.toggles=[fuse]", "tune.iterations=0"], "tune.iterations=0.0 must be above zero"),
    (["tune.toggles=[fuse]", "tune.memory_gib=2", "measure.memory_gib=1"], "contradict one another"),
    (["tune.toggles=[fuse]", "tune.memory_gib=1e9"], "is more than the"),
    (["tune.toggles=[fuse]", "tune.rounds=1"], "tune.rounds=1 must be at least 2"),
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
    assert "left out: narrow=on: its results may move as far as tolerance, and tune.parity=exact" in out
    assert "fuse" in out and not (at.folder / "runs").exists()


def test_a_dry_run_of_a_ladder_shows_its_sizes(at: Shell) -> None:
    machine = simulated()
    words = ("frontier.sizes=[8,16,32]", "frontier.memory_gib=2", "tracking=disabled", "dry_run=true")
    status, out = at.on(machine)("frontier", "workload=toys.tunable:Tunable", *words)
    assert (status, machine.launched) == (0, []), out
    assert "tunable-frontier: slab in 8, 16, 32\nmemory: 2.00 GiB; next to it " in out
    assert "records: runs/tunable-frontier" in out


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
        (["frontier.sizes=[4,2048]"], "2048 is not a level of slab"),
        (["frontier.memory_gib=-1"], "must be above zero"),
    ],
)
def test_a_mistake_about_a_frontier_is_one_sentence(at: Shell, words: list[str], said: str) -> None:
    status, out = at("frontier", "workload=toys.tunable:Tunable", *words)
    assert status == 2, out
    assert said in out and "Traceback" not in out


@pytest.mark.slow
def test_a_folder_of_ones_own_keeps_the_preset_in_its_configuration(at: Shell) -> None:
    (at.folder / "configs").mkdir()
    (at.folder / "perfsweep.yaml").write_text("conf: configs\n")
    status, out = at.on(simulated())(*TUNE, "tune.toggles=[fuse]", "measure.rounds=6")
    assert status == 0, out
    assert yaml.safe_load((at.folder / "configs/toggles/tuned-tunable-cpu.yaml").read_text()) == {
        "fuse": "on"
    }
    assert "use it: perfsweep run workload=toys.tunable:Tunable toggles=tuned-tunable-cpu" in out
    assert re.search(r"kept fuse=on: \d.*x faster.*, results identical", out), (
        "without its only level the winner is the reference"
    )


@pytest.mark.slow
def test_a_real_search_ends_with_a_verdict_and_never_keeps_what_changes_results(at: Shell) -> None:
    measure = [
        "measure.iterations=12",
        "measure.warmup_max=8",
        "measure.evidence_iterations=2",
        "measure.counting_iterations=2",
        "measure.servers=1",  # each imports torch anew, in each step of the search
    ]
    words = ["tune.toggles=[fuse,wrong]", "tune.rounds=2", "measure.rounds=3"]
    status, out = at(*TUNE, *words, *measure, "workload.wait_ms=8")
    too_noisy = "the times decide nothing: no preset is written" in out  # on a machine that others use too
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


SWITCH = Toggle("amp", (Level("off"), Level("on")), "a switch")


@pytest.mark.parametrize(
    ("toggles", "name", "found"),
    [([SWITCH, ladder("slab")], None, "slab"), ([SWITCH, ladder("slab"), ladder("batch")], "batch", "batch")],
)
def test_the_ladder_is_the_one_that_is_named_or_the_only_one(toggles: list, name, found: str) -> None:
    assert frontier.chosen({one.name: one for one in toggles}, name).name == found


@pytest.mark.parametrize(
    ("toggles", "name", "says"),
    [
        (
            [ladder("slab"), ladder("batch")],
            None,
            "says which ladder to climb; this workload has: slab, batch",
        ),
        ([SWITCH], None, "this workload has: none"),
        ([SWITCH, ladder("slab")], "slob", "frontier.toggle=slob is unknown; the ladders .* are: slab"),
    ],
)
def test_another_choice_is_refused_with_those_that_there_are(toggles: list, name, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        frontier.chosen({one.name: one for one in toggles}, name)


def size(number: int, ratio: float | None = None, **own: Any) -> SizeResult:
    return SizeResult(number, None if ratio is None else math.log(ratio), **{"error": 0.01, **own})


def result(*measured: SizeResult, **own: Any) -> LadderResult:
    ran = [one for one in measured if one.ran]
    fastest = min(ran, key=lambda one: one.log_time or 0.0, default=None)
    given = {"cliff": None, "largest": ran[-1] if ran else None, "sure": True, "memory": None, "budget": None}
    return LadderResult(measured, fastest, **{**given, **own})


def test_the_answer_names_the_fastest_and_the_largest_size() -> None:
    found = result(size(1, 1.0), size(2, 0.8, error=0.02), size(4, 0.9))
    assert frontier.lines("slab", found) == [
        "fastest: slab=2, 1.25x faster (+-4.0%) against slab=1",
        "largest that fits: slab=4, where the ladder ends",
        "3 sizes measured",
    ]


def test_a_cliff_is_the_change_between_its_two_sizes() -> None:
    one, other = size(2, 0.8), size(4, 1.0)
    found = frontier.lines("slab", result(size(1, 1.0), one, other, cliff=(one, other)))
    assert found[1] == "cliff: a unit at 4 is 1.25x slower than at 2"


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


@pytest.mark.parametrize(("each", "told"), [(2.5 * MB, True), (0.0, False), (-1.0, False)])
def test_memory_of_each_is_told_where_it_grows(each: float, told: bool) -> None:
    found = frontier.lines("slab", result(size(1, 1.0), memory=MemoryModel(100.0 * MB, each)))
    assert ("peak memory: 100 MB + 2.5 MB for each" in found) is told


def test_where_no_size_runs_each_has_its_reason() -> None:
    found = result(size(1, reason="no memory"), size(2, reason="no kernel"))
    assert frontier.lines("slab", found) == ["no size of slab runs: 1: no memory; 2: no kernel"]


@pytest.mark.parametrize(("limit", "told"), [(3 * 2**29, "memory: 1.50 GiB"), (None, "memory: not known")])
def test_sizes_memory_and_levels_beside_them_are_told_beforehand(limit: int | None, told: str) -> None:
    out = StringIO()
    sweep: Any = SimpleNamespace(
        manifest=SimpleNamespace(sweep=SimpleNamespace(name="mine")),
        folder=SimpleNamespace(path="runs/mine"),
        reference=SimpleNamespace(label="amp=bf16"),
    )
    frontier._show(Console(file=out, width=100), sweep, ladder_factor("slab", [1, 2, 4, 8], 1), limit)
    text = out.getvalue()
    assert f"{told}; next to it amp=bf16" in text and "mine: slab in 1, 2, 4, 8" in text
    assert "records: runs/mine" in text


@pytest.mark.parametrize(("ratio", "status"), [(1.0, 0), (None, 1)])
def test_the_table_has_measured_and_predicted_sizes(ratio: float | None, status: int) -> None:
    out = StringIO()
    measured = size(1, ratio, peak_bytes=300 * MB, reason="" if ratio else "no memory")
    sweep: Any = SimpleNamespace(folder=SimpleNamespace(report_file="report.html"))
    found = result(measured, size(2, 1.5), skipped={8: 5000.0 * MB}) if ratio else result(measured)
    assert frontier.report(Console(file=out, width=100), "slab", found, sweep) == status
    text = " ".join(out.getvalue().split())
    assert "300 MB" in text and text.endswith("report: report.html")
    assert all(f"- {line}" in text for line in frontier.lines("slab", found))
    if ratio:
        assert "2 1.50x slower (+-2.0%)" in text and "8 5000 MB predicted, not tried" in text
    else:
        assert "1 300 MB no memory" in text


def fewer(toggle: Toggle) -> Any:
    """The sizes that may go with the other toggles, each with what its level needs."""
    space = Space((toggle, SWITCH))
    sweep: Any = SimpleNamespace(
        space=space, reference=SimpleNamespace(levels=space.complete({}), label="naive")
    )
    return frontier._legal(sweep, ladder_factor(toggle.name, [1, 2, 4, 8], 1))


def test_sizes_that_no_legal_arm_has_are_not_climbed() -> None:
    two = Level(2, conflicts={"amp": ("off", "on")})
    found = fewer(Toggle("slab", (Level(1), two, Level(4), Level(8)), "sizes"))
    assert (found.values, found.sizes, found.start) == ((1, 4, 8), (0.0, 2.0, 3.0), 0)


def test_a_ladder_of_one_legal_size_is_none() -> None:
    never: Any = {"conflicts": {"amp": ("off", "on")}}
    toggle = Toggle("slab", (Level(1), *(Level(n, **never) for n in (2, 4, 8))), "sizes")
    with pytest.raises(ConfigError, match="slab has fewer than two sizes that go with naive"):
        fewer(toggle)
