"""What follows a search: what is measured anew, what that says of the winner, and the preset that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

import polars as pl
import pytest
import yaml
from searched import FUSE, NARROW, SLAB, SPACE, Searching, known, searching, tune_command

from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.search import verification
from perfsweep.pipelines.search.factors import Factor, Point
from perfsweep.pipelines.search.search import Observation, SearchResult
from perfsweep.pipelines.search.verification import (
    Verification,
    VerifiedEffect,
    preset_name,
    preset_place,
    write_preset,
)
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.api import Device, LevelValue

WRONG = Factor("wrong", (None, "on"))
EXPECTED = {
    ("fuse", 0): (0.25, 0.01),
    ("fuse", 1): (-0.25, 0.01),
    ("narrow", 0): (0.02, 0.02),
    ("narrow", 1): (-0.02, 0.02),
    ("slab", 0): (0.1, 0.01),
}
STATED = {
    "baseline": Observation(0.0),
    "fuse=on": Observation(-0.25, 0.0001),
    "narrow=on": Observation(-0.02, 0.0001),
    "wrong=on": Observation(None, reason="departs", outcome="different"),
}


def effect(
    toggle: str, level: str, ratio: float | None, verdict: str | None, **fields: object
) -> VerifiedEffect:
    design = str(fields.pop("design", "arms"))
    low, high = (ratio * 0.98, ratio * 1.02) if ratio else (None, None)
    outcome, parity = str(fields.pop("outcome", "")), fields.pop("parity", "identical")
    assert not fields
    return VerifiedEffect(design, toggle, level, ratio, low, high, verdict, outcome, parity)  # type: ignore[arg-type]


NAIVE_FASTER = effect("tuned", "vs naive", 0.7, "faster")


def left_out(toggle: str, ratio: float | None, verdict: str | None, **fields: object) -> VerifiedEffect:
    return effect(toggle, "on", ratio, verdict, design="leave_one_out", **fields)


@dataclass
class Verified:
    """A verification whose sweeps have the effects that are stated for them, one after another."""

    search: Searching
    status: int
    printed: list[str]
    asked: list[SweepCommand] = field(default_factory=list)


def verified(
    runs: Path,
    result: SearchResult,
    *rounds: Sequence[VerifiedEffect],
    stated: Mapping[str, Observation] = STATED,
    points: Sequence[Point] = ((1, 0, 0), (0, 1, 0)),
    factors: Sequence[Factor] = (FUSE, NARROW, SLAB),
    status: int = DONE,
    reference_levels: Mapping[str, LevelValue] = MappingProxyType({}),
    **tune: object,
) -> Verified:
    search = searching(runs / "search", stated, factors, reference_levels=reference_levels)
    known(search, *points)
    search.driver.result = result
    done = Verified(search, -1, [])
    left = list(rounds)

    def measure(command: SweepCommand) -> int:
        done.asked.append(command)
        tables = SweepFolder(runs / str(command.name)).tables_dir
        tables.mkdir(parents=True)
        kinds = {"ratio": pl.Float64, "low": pl.Float64, "high": pl.Float64}
        rows = [asdict(one) for one in left.pop(0)]
        pl.DataFrame(rows, schema_overrides=kinds).write_parquet(tables / "effects.parquet")
        return status

    verification = Verification(search.driver.console, tune_command(runs, **tune), search.driver, measure)
    done.status = verification.run()
    assert not left
    done.printed = search.printed.splitlines()
    return done


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def result(best: Point | None, **changes: object) -> SearchResult:
    best_levels = {"fuse": 1, "narrow": 1, "slab": 1}
    return SearchResult(best, **{"expected": EXPECTED, "best_levels": best_levels, **changes})  # type: ignore[arg-type]


def presets(runs: Path) -> list[Path]:
    return list(runs.glob("conf/toggles/*.yaml"))


def lines_with(done: Verified, *starts: str) -> list[str]:
    return [line for line in done.printed if line.startswith(starts)]


def test_a_winner_that_fresh_rounds_bear_out_is_kept_as_a_preset(tmp_path: Path) -> None:
    fresh = [NAIVE_FASTER, effect("tuned", "vs all_on", 0.9, "faster"), left_out("fuse", 0.8, "faster")]
    fresh.append(left_out("slab", 0.95, "faster"))
    done = verified(tmp_path, result((1, 0, 1)), fresh)
    assert done.status == DONE
    assert done.printed == [
        "",
        "searched 3 of 12 arms in 12 timing trials; all of them would take 36 (33%)",
        f"the search's report: {tmp_path}/search/report.html",
        "",
        "tuned: fuse=on, slab=2",
        "against the baseline: 1.43x faster (1.40 .. 1.46), results identical",
        "against everything on: 1.11x faster (1.09 .. 1.13), results identical",
        "- kept fuse=on: 1.25x faster (1.23 .. 1.28), results identical",
        "- kept slab=2: 1.053x faster (1.032 .. 1.074), results identical",
        "- dropped narrow=on: 1.020x faster (+-4.0%) by the search, which is within the noise",
        "preset: " + str(tmp_path / "conf/toggles/tuned-tunable-cpu.yaml"),
        f"use it: perfsweep run workload=toys.tunable:Tunable 'hydra.searchpath=[file://{tmp_path}/conf]'"
        " toggles=tuned-tunable-cpu",
    ]
    (preset,) = presets(tmp_path)
    facts, levels = preset.read_text().split("fuse:")
    assert levels == " 'on'\nslab: 2\n"
    lines = facts.splitlines()
    assert lines[:3] == [
        "# toys.tunable:Tunable on cpu: 1.43x faster (1.40 .. 1.46), results identical against the baseline",
        "# limits: results no looser than tolerance; for a long run",
        "# kept fuse=on: 1.25x faster (1.23 .. 1.28), results identical",
    ]
    assert lines[-1] == f"# evidence: {tmp_path}/search-verified"


def test_a_level_that_fresh_rounds_have_no_time_of_is_kept_for_what_the_search_says_of_it(
    tmp_path: Path,
) -> None:
    fresh = [NAIVE_FASTER, left_out("fuse", None, None, outcome="oom"), left_out("slab", 0.95, "faster")]
    done = verified(tmp_path, result((1, 0, 1)), fresh)
    assert lines_with(done, "- kept")[0] == "- kept fuse=on: 1.28x faster (+-2.0%) by the search"


def test_winner_reference_everything_on_and_each_level_left_out_are_measured_together(tmp_path: Path) -> None:
    done = verified(tmp_path, result((1, 0, 1)), [NAIVE_FASTER])
    (asked,) = done.asked
    assert asked.name == "search-verified"
    assert asked.sweep.references == {
        "naive": SPACE.complete({}),
        "all_on": SPACE.complete({"fuse": "on", "narrow": "on", "slab": 2}),
    }
    best = SPACE.complete({"fuse": "on", "slab": 2})
    arms, leave_one_out = asked.sweep.designs
    assert (arms.kind, arms.arms) == ("arms", {"tuned": best})
    assert (leave_one_out.kind, leave_one_out.best, leave_one_out.toggles) == (
        "leave_one_out",
        best,
        ["fuse", "slab"],
    )


@pytest.mark.parametrize(
    ("verdict", "status", "refused"),
    [
        (Verdict.FASTER, DONE, None),
        (Verdict.UNDECIDED, DONE, None),
        (Verdict.SLOWER, SOME_FAILED, "the comparison does not bear the search out"),
        (Verdict.NO_DIFFERENCE, SOME_FAILED, "the comparison does not bear the search out"),
        (Verdict.HELD_BACK, SOME_FAILED, "the times decide nothing"),
    ],
)
def test_a_preset_is_written_unless_fresh_rounds_contradict_the_search_or_say_no_time(
    tmp_path: Path, verdict: Verdict, status: int, refused: str | None
) -> None:
    done = verified(tmp_path, result((1, 0, 0)), [effect("tuned", "vs naive", 0.97, verdict.value)])
    assert (done.status, len(presets(tmp_path))) == (status, int(refused is None))
    said = [line for line in done.printed if line.endswith("nothing is written")]
    assert said == ([f"{refused}: nothing is written"] if refused else [])


@pytest.mark.parametrize(
    ("useless", "why"),
    [
        (left_out("narrow", 1.1, "slower"), "costs time"),
        (left_out("narrow", None, None, outcome="inert"), "does nothing"),
    ],
)
def test_a_level_that_is_worth_nothing_beside_the_others_is_taken_out_and_the_rest_measured_anew(
    tmp_path: Path, useless: VerifiedEffect, why: str
) -> None:
    done = verified(tmp_path, result((1, 1, 0)), [NAIVE_FASTER, useless], [NAIVE_FASTER])
    assert [command.name for command in done.asked] == ["search-verified", "search-verified-2"]
    assert f"narrow {why} with the others: once more without" in done.printed
    assert "tuned: fuse=on" in done.printed
    assert f"- dropped narrow=on: {why} with the others" not in done.printed
    assert f"- dropped narrow: {why} with the others" in done.printed
    assert list(done.asked[1].sweep.references) == ["naive"], "everything on would bring it back"


@pytest.mark.parametrize(
    ("ratio", "tune", "again"),
    [
        (1.1, {}, True),
        (1.01, {}, False),  # the interval reaches below one
        (1.1, {"iterations": 100.0}, False),  # set-up counts too, which fresh rounds leave out
    ],
)
def test_where_everything_on_is_faster_for_sure_it_is_verified_instead(
    tmp_path: Path, ratio: float, tune: dict, again: bool
) -> None:
    fresh = [NAIVE_FASTER, effect("tuned", "vs all_on", ratio, "slower")]
    done = verified(tmp_path, result((1, 0, 0)), *([fresh, [NAIVE_FASTER]] if again else [fresh]), **tune)
    assert ("everything on is faster: once more with it" in done.printed) is again
    assert ("tuned: fuse=on, narrow=on" in done.printed) is again


@pytest.mark.parametrize(
    ("ruled_out", "words", "status"),
    [
        (True, "every other arm was ruled out; nothing is written", SOME_FAILED),
        (False, "nothing that was tried is faster than the baseline; nothing is written", DONE),
    ],
)
def test_where_the_reference_is_best_no_sweep_follows_and_every_toggle_says_why(
    tmp_path: Path, ruled_out: bool, words: str, status: int
) -> None:
    dropped = {"wrong": "changes results"}
    done = verified(
        tmp_path,
        result((0, 0, 0), dropped=dropped, expected={("narrow", 1): (0.05, 0.01)}),
        factors=(FUSE, NARROW, WRONG),
        points=((0, 0, 1),) if ruled_out else ((0, 1, 0), (0, 0, 1)),
    )
    assert (done.status, done.asked) == (status, [])
    assert words in done.printed
    assert lines_with(done, "- ") == [
        "- dropped fuse=on: not legal with the others",
        "- dropped narrow=on: 1.051x slower (+-2.0%) by the search",
        "- dropped wrong: changes results",
    ]


def test_a_preset_is_called_after_what_pays_there() -> None:
    device = Device("cuda", name="NVIDIA H100 80GB (SXM)")
    assert preset_name("digits", device) == "tuned-digits-nvidia-h100-80gb-sxm"


def test_a_preset_lies_where_commands_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = f"'hydra.searchpath=[file://{tmp_path / 'runs/conf'}]'"
    assert preset_place("fast", Path("runs")) == (Path("runs/conf/toggles/fast.yaml"), [path])
    Path("perfsweep.yaml").write_text("conf: mine\n")
    assert preset_place("fast", Path("runs")) == (Path("mine/toggles/fast.yaml"), [])
    Path("conf").mkdir()
    assert preset_place("fast", Path("runs")) == (Path("mine/toggles/fast.yaml"), []), "another's conf"
    monkeypatch.setattr(verification, "files", lambda package: tmp_path / package.removeprefix("perfsweep."))
    assert preset_place("fast", Path("runs")) == (Path("conf/toggles/fast.yaml"), [])


def test_a_preset_says_what_is_known_of_it_and_reads_as_levels(tmp_path: Path) -> None:
    file = tmp_path / "new/fast.yaml"
    write_preset(file, {"slab": 8, "amp": "off"}, ["20 % faster", "two\nlines"])
    text = file.read_text()
    assert text.splitlines()[:3] == ["# 20 % faster", "# two", "# lines"]
    assert list(yaml.safe_load(text).items()) == [("slab", 8), ("amp", "off")]
