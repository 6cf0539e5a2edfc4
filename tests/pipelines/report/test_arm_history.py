"""Arms over code versions: what changed, what that may rest on, and the picture of it."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from measured import cost, simulated
from object_page import described, differences, table
from rich.console import Console

from perfsweep.checksums import sealed
from perfsweep.pipelines import cli
from perfsweep.pipelines.analysis.across.baselines import Baseline, store
from perfsweep.pipelines.analysis.across.version_history import (
    ArmHistory,
    History,
    Series,
    Version,
    arm_history,
    direction,
    history,
)
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.report import arm_history as reporting
from perfsweep.pipelines.report import regressions
from perfsweep.pipelines.report.pictures.history_picture import FRAME, PANEL, history_chart, write_history
from perfsweep.pipelines.report.pictures.svg import BLUE, RED
from perfsweep.pipelines.statistics.change_points import ALPHA, ChangePoint, ChangePoints
from perfsweep.pipelines.units import bounds_text, speed
from perfsweep.workloads.errors import ConfigError


def version(commit: str, seed: int, fast: float = 0.5, drift: float = 1.0, **fields) -> Baseline:
    """Ten rounds of a reference and an arm on a machine that is `drift` times as slow as usual."""
    rng = np.random.default_rng(seed)
    speeds = {"naive": 1.0, "fast": fast}
    rounds = {
        label: {f"p000-{n}": 1000 * drift * time * math.exp(0.003 * rng.standard_normal()) for n in range(10)}
        for label, time in speeds.items()
    }
    facts = {
        "sweep": f"s-{commit}",
        "workload": "w",
        "unit": "pair",
        "config": "{}",
        "method": "m",
        "data": "d",
    }
    facts |= {"device": "cpu", "torch": "2.13", "commit": commit, "reference": "naive"}
    return Baseline(**{**facts, "rounds": rounds, **fields})


def test_each_version_is_held_against_the_one_before() -> None:
    found = arm_history(
        [version("a", 1), version("b", 2, fast=0.6), version("c", 3, fast=0.6)], "fast"
    ).versions
    assert [one.commit for one in found] == ["a", "b", "c"]
    assert found[0].change is None
    assert [direction(one.change, 0.05, relative=False) for one in found[1:] if one.change] == ["slower", ""]
    assert found[1].change is not None and found[1].change.ratio == pytest.approx(1.2, rel=0.01)


def test_a_row_says_what_became_of_the_arm_and_what_moved_along_but_the_commit() -> None:
    (words,) = [one for one in reporting.version_columns("naive") if one.key == "words"]
    kept = [version("a", 1), version("b", 2, fast=0.6), version("c", 3, fast=0.6, torch="2.14")]
    cells = [words.cell(one) for one in arm_history(kept, "fast").versions]
    assert cells == ["first", "slower", "torch: 2.13 -> 2.14"]


def test_a_machine_that_became_slower_moves_the_time_and_not_the_ratio_to_the_reference() -> None:
    change = arm_history([version("a", 1), version("b", 2, drift=1.3)], "fast").versions[1].change
    assert change is not None and change.relative is not None
    assert change.ratio == pytest.approx(1.3, rel=0.01)
    assert change.relative[0] == pytest.approx(1.0, abs=0.01)


def test_on_another_device_only_the_ratio_to_the_reference_is_judged() -> None:
    found = arm_history([version("a", 1), version("b", 2, drift=3.0, device="older")], "fast").versions[1]
    assert found.other_machine and found.change is not None
    assert direction(found.change, 0.05, relative=True) == ""
    assert direction(found.change, 0.05, relative=False) == "slower"
    assert any(text.startswith("device") for text in found.moved)


def test_versions_without_the_arm_are_left_out_and_an_unknown_arm_is_refused() -> None:
    old = version("a", 1).model_copy(update={"rounds": {"naive": version("a", 1).rounds["naive"]}})
    assert [one.commit for one in arm_history([old, version("b", 2)], "fast").versions] == ["b"]
    with pytest.raises(ConfigError, match=r"--arm quick is in none .* choose from: fast, naive"):
        history([version("a", 1)], ["quick"])


def test_versions_that_did_other_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="data differs"):
        arm_history([version("a", 1), version("b", 2, data="e")], "fast")


def test_the_command_reads_baselines_and_folders_oldest_first(command, tmp_path, capsys) -> None:
    folder, _ = simulated(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6}), cost
    )
    kept = tmp_path / "kept.json"
    with pytest.raises(SystemExit) as ended:
        cli.main(["compare", str(folder.path), "--store", str(kept)])
    assert ended.value.code == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["history", str(kept), str(folder.path), "--arm", "work=single"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "work=single: time per product" in shown and "first" in shown and "1.000x" in shown


def test_all_arms_of_the_newest_version_are_shown_by_default() -> None:
    console = Console(file=io.StringIO(), record=True, width=120)
    reporting.show(console, history([version("a", 1), version("b", 2, fast=0.4)]))
    text = console.export_text()
    assert "naive: time per pair" in text and "fast: time per pair" in text and "faster" in text


@pytest.mark.parametrize(("fast", "slower"), [(0.6, True), (0.5, False), (0.4, False)])
def test_history_says_whether_anything_became_slower(fast: float, slower: bool) -> None:
    assert arm_history([version("a", 1), version("b", 2, fast=fast)], "fast").slower is slower


def twelve(fast_from: dict[int, float], **fields) -> list[Baseline]:
    """Versions of which the arm takes another time from some on."""
    share, versions = 0.5, []
    for number in range(12):
        share = fast_from.get(number, share)
        versions.append(version(f"{number:040x}", number, fast=share, **fields))
    return versions


def stored(versions: list[Baseline], folder: Path) -> list[str]:
    files = [folder / f"{number:02d}.json" for number in range(len(versions))]
    for one, file in zip(versions, files, strict=True):
        store(one, file)
    return [str(file) for file in files]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["history", *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_level_that_changes_is_marked_where_it_begins() -> None:
    found = arm_history(twelve({7: 0.54}), "fast")
    assert [place for place, one in enumerate(found.versions) if one.level] == [7]
    assert found.versions[7].level == pytest.approx(1.08, abs=0.01)
    assert found.points is not None and found.points.p <= ALPHA
    assert arm_history(twelve({7: 0.54}), "naive").versions[7].level is None


def test_fewer_than_ten_versions_say_so_and_show_no_change_points() -> None:
    found = arm_history(twelve({5: 0.6})[:9], "fast")
    assert (found.points, found.reason) == (None, "fewer than 10 versions (9)")
    assert not any(one.level for one in found.versions)


def test_on_several_devices_levels_are_those_of_the_ratio_to_the_reference() -> None:
    versions = [
        one.model_copy(update={"device": "older"} if place % 2 else {})
        for place, one in enumerate(twelve({4: 0.6}))
    ]
    found = arm_history(versions, "fast")
    assert found.series.beside_reference
    assert [place for place, one in enumerate(found.versions) if one.level] == [4]
    assert arm_history(versions, "naive").reason == "the devices differ, and it is the baseline"
    lone = [one.model_copy(update={"rounds": {"fast": one.rounds["fast"]}}) for one in versions]
    assert "not every version measured it with the same baseline" in arm_history(lone, "fast").reason


def test_the_table_names_the_new_level_and_how_often_one_is_shown_by_chance() -> None:
    console = Console(file=io.StringIO(), record=True, width=160)
    reporting.show(console, history(twelve({7: 0.6})))
    text = console.export_text()
    assert "new level" in text and "fast: new level from s-" in text and "1.20x slower" in text
    assert "of arms that do not change, 5% at most show one by chance" in " ".join(text.split())
    reporting.show(console, history(twelve({})[:3]))
    assert "no change points are looked for: fewer than 10 versions (3)" in console.export_text()


def test_a_program_is_told_where_levels_change_and_of_which_arms_that_was_not_asked() -> None:
    arms = {one.arm: one for one in reporting.history_object(history(twelve({7: 0.6})), 1, None).arms}
    slow, fast = arms["naive"], arms["fast"]
    (point,) = fast.change_points
    assert (point.version, point.commit, point.ratio) == (7, f"{7:040x}", pytest.approx(1.2, abs=0.01))
    assert fast.p is not None and fast.p <= ALPHA and fast.slower and fast.reason == ""
    assert (slow.change_points, slow.slower) == ((), False)
    few = reporting.history_object(history(twelve({})[:3]), 0, "a.svg")
    assert {(one.p, one.reason) for one in few.arms} == {(None, "fewer than 10 versions (3)")}
    assert (few.number, few.picture, few.exit) == (3, "a.svg", 0)


@pytest.mark.parametrize(
    ("paired", "words"),
    [(False, "versions are not interleaved"), (True, "changes are paired within its rounds")],
)
def test_whether_changes_are_paired_is_told_to_people_and_to_programs(paired: bool, words: str) -> None:
    found = replace(history([version("a", 1), version("b", 2)]), interleaved=paired)
    console = Console(file=io.StringIO(), record=True, width=160)
    reporting.show(console, found)
    assert words in " ".join(console.export_text().split())
    assert reporting.history_object(found, 0, None).interleaved is paired


@pytest.mark.parametrize("width", [80, 100])
def test_changes_intervals_and_words_stay_whole_at_eighty_columns(width: int) -> None:
    long = {"sweep": "tuned-probe1d-of-somebody-with-a-name"}
    then, now = version("a" * 40, 1, **long), version("b" * 40, 2, fast=0.6, **long)
    console = Console(file=io.StringIO(), width=width)
    reporting.show(console, history([then, now], ["fast"]))
    regressions.show(console, regressions.compare_with(now, [then]), 0.05)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    change = history([then, now], ["fast"]).arms[0].versions[1].change
    assert change is not None
    for whole in (speed(change.ratio), bounds_text(change.ratio, change.low, change.high), "slower"):
        assert sum(whole in line for line in lines) >= 2, whole


def test_the_object_is_as_the_page_says_and_so_is_the_status(tmp_path, capsys) -> None:
    files = stored(twelve({7: 0.6}), tmp_path)
    plain, words, _ = run(capsys, *files)
    status, said, errors = run(capsys, *files, "--json")
    found = json.loads(said)
    assert (plain, status, found["exit"], errors) == (1, 1, 1, "")
    assert differences("history --json", said) == [] and "new level" in words
    by_arm = {one["arm"]: one for one in found["arms"]}
    assert (by_arm["fast"]["slower"], by_arm["naive"]["slower"]) == (True, False)
    (point,) = by_arm["fast"]["change_points"]
    assert (point["version"], point["commit"]) == (7, f"{7:040x}")
    assert point["ratio"] == by_arm["fast"]["versions"][7]["level"] == pytest.approx(1.2, abs=0.01)
    assert by_arm["fast"]["versions"][0]["ratio"] is None


def test_the_rows_are_as_the_page_says(tmp_path, capsys) -> None:
    status, said, errors = run(capsys, *stored(twelve({})[:2], tmp_path), "--csv")
    rows = table(said)
    assert (status, errors, len(rows)) == (0, "", 4)
    assert list(rows[0]) == list(described("history --csv")[""])
    assert {one["schema"] for one in rows} == {"perfsweep.history.csv/1"}
    assert [one["arm"] for one in rows] == ["naive", "naive", "fast", "fast"]
    assert rows[0]["ratio"] == "" and float(rows[1]["ratio"]) == pytest.approx(1.0, abs=0.01)


def test_the_picture_has_a_panel_for_each_arm_and_a_line_where_a_level_begins(tmp_path, capsys) -> None:
    picture = tmp_path / "new" / "history.svg"
    files = stored(twelve({7: 0.6}), tmp_path)
    _, said, errors = run(capsys, *files, "--json", "--picture", str(picture))
    assert json.loads(said)["picture"] == str(picture) and f"picture: {picture}" in errors
    drawn = ElementTree.parse(picture).getroot()
    words = ["".join(one.itertext()).strip() for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"naive", "fast", "change of time, %"} <= set(words)
    text = picture.read_text()
    assert text.count("stroke-dasharray") == 1 and "var(--red)" in text and "--red: #" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--json", "--csv"], "--json and --csv are different answers; ask for one at a time"),
        (["--picture", "a.gif"], "--picture a.gif: cannot write this kind of file. Give a name that ends in"),
        (["--json", "--arm", "quick"], "--arm quick is in none of these sweeps; choose from: fast, naive"),
    ],
)
def test_a_mistake_is_one_sentence_and_stdout_stays_empty_for_a_program(
    words: list[str], sentence: str, tmp_path, capsys
) -> None:
    status, said, errors = run(capsys, *stored([version("a", 1)], tmp_path), *words)
    assert status == 2 and sentence in errors and errors.count("\n") == 1
    assert said == ""


@pytest.mark.parametrize("time", ["0", "-1.0", "NaN", "Infinity"])
def test_a_baseline_with_a_time_that_cannot_be_is_refused_by_its_path(time: str, tmp_path, capsys) -> None:
    (file,) = stored([version("a", 1)], tmp_path)
    values = {name: one for name, one in json.loads(Path(file).read_text()).items() if name != "crc32"}
    values["rounds"]["fast"]["p000-0"] = float(time)
    Path(file).write_text(json.dumps(sealed(values)))
    status, said, errors = run(capsys, file, "--json")
    assert (status, said) == (2, "") and "is no baseline that `perfsweep compare --store` wrote" in errors
    values["rounds"]["fast"]["p000-0"] = 500.0
    Path(file).write_text(json.dumps(sealed(values)))
    assert run(capsys, file, "--json")[0] == 0


def arm(
    *ratios: float, name: str = "fast", points: tuple[tuple[int, float], ...] = (), **fields
) -> ArmHistory:
    values = tuple(math.log(ratio) for ratio in ratios)
    off = {"low": tuple(v + math.log(0.9) for v in values), "high": tuple(v + math.log(1.1) for v in values)}
    series = Series(fields.pop("beside", False), values, **off)
    commits = fields.pop("commits", [f"{n:040x}" for n in range(len(ratios))])
    versions = tuple(
        Version(name, f"sweep number {n}", commit, 5, 1.0, None, False, ())
        for n, commit in enumerate(commits)
    )
    found = ChangePoints(tuple(ChangePoint(*one) for one in points), 0.01) if points else None
    return ArmHistory(name, versions, series, found, "")


def panels(*arms: ArmHistory):
    return history_chart(History("pair", "naive", 0.05, False, 3, arms), 700).axes


def test_each_arm_has_a_panel_with_its_change_in_percent_against_its_first_version() -> None:
    first, second = panels(arm(1.0, 1.5, 0.5), arm(2.0, 2.0, name="naive", beside=True))
    (points,) = [
        one for one in first.collections if hasattr(one, "get_sizes") and len(one.get_offsets()) == 3
    ]
    assert [float(y) for _, y in points.get_offsets()] == pytest.approx([0.0, 50.0, -50.0])
    whiskers = first.collections[0].get_segments()
    assert [segment[:, 1].tolist() for segment in whiskers][1] == pytest.approx([35.0, 65.0])
    assert first.get_title(loc="left") == "fast"
    assert second.get_title(loc="left") == "naive, against the baseline"
    assert first.get_ylabel() == "change of time, %"


@pytest.mark.parametrize("width", [500, 700])
def test_a_picture_is_as_wide_as_asked_and_grows_by_a_panel_with_each_arm(width: int) -> None:
    one, two = (
        history_chart(History("pair", "naive", 0.05, False, 3, (arm(1.0, 1.5),) * count), width)
        for count in (1, 2)
    )
    assert tuple(one.bbox.size) == (width, FRAME + PANEL) and tuple(two.bbox.size) == (
        width,
        FRAME + 2 * PANEL,
    )


def names(*ratios: float, **fields) -> list[str]:
    (axes,) = panels(arm(*ratios, **fields))
    return [label.get_text() for label in axes.get_xticklabels()]


def test_versions_are_named_by_their_commit_or_else_by_their_sweep() -> None:
    assert names(1.0, 1.0, commits=["abcdef0123", ""]) == ["abcdef0", "sweep number"]


@pytest.mark.parametrize(("count", "named"), [(24, 24), (25, 13), (48, 24), (49, 17)])
def test_of_many_versions_every_second_or_third_one_is_named(count: int, named: int) -> None:
    assert len(names(*[1.0] * count)) == named


def levels(one: ArmHistory) -> list[tuple[float, float, float]]:
    """Begin, end and height of each level."""
    (axes,) = panels(one)
    found = []
    for lines in axes.collections[2:]:
        ((begin, height), (end, _)) = lines.get_segments()[0]
        found.append((float(begin), float(end), round(float(height), 6)))
    return found


def test_levels_lie_between_changes_and_rise_in_red_and_fall_in_blue() -> None:
    one = arm(1.0, 1.0, 2.0, 2.0, 1.5, 1.5, points=((2, 0.7), (4, -0.3)))
    assert levels(one) == [(-0.4, 1.4, 0.0), (1.6, 3.4, 100.0), (3.6, 5.4, 50.0)]
    (axes,) = panels(one)
    assert [line.get_xdata()[0] for line in axes.lines] == [1.5, 3.5]
    assert [line.get_color() for line in axes.lines] == [RED, BLUE]


def test_without_changes_there_is_one_level() -> None:
    (axes,) = panels(arm(1.0, 1.2, 1.4))
    assert levels(arm(1.0, 1.2, 1.4)) == [(-0.4, 2.4, 20.0)]
    assert list(axes.lines) == []


def test_the_file_says_what_it_shows_and_its_folder_is_made(tmp_path: Path) -> None:
    found = History("pair", "naive", 0.05, False, 3, (arm(1.0, 1.5, 0.5),))
    write_history("--picture", tmp_path / "new" / "h.svg", found)
    assert 'aria-label="1 arms over 3 versions"' in (tmp_path / "new" / "h.svg").read_text()
