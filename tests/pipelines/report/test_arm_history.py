"""Arms over versions, and a sweep against others: what changed, what that may rest on, and its picture."""

from __future__ import annotations

import io
import json
import math
import re
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from measured import baseline, cost, simulated
from object_page import described, differences, table
from rich.console import Console
from typed import ended

from perfsweep.checksums import sealed
from perfsweep.pipelines.analysis.baselines import Baseline, Change, Changes, compare_baselines, store
from perfsweep.pipelines.analysis.columns import Style, Where, row_values
from perfsweep.pipelines.analysis.version_history import history
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.report import arm_history as reporting
from perfsweep.pipelines.report.arm_history import JudgedChange, change_columns, show_against
from perfsweep.pipelines.report.picture_file import history_chart
from perfsweep.pipelines.units import bounds_text, speed


def version(commit: str, seed: int, fast: float = 0.5, drift: float = 1.0, **fields) -> Baseline:
    """Ten rounds of a reference and an arm on a machine that is `drift` times as slow as usual."""
    rng = np.random.default_rng(seed)
    speeds = {"naive": 1.0, "fast": fast}
    rounds = {
        label: {f"p000-{n}": 1000 * drift * time * math.exp(0.003 * rng.standard_normal()) for n in range(10)}
        for label, time in speeds.items()
    }
    return baseline(rounds, **{"sweep": f"s-{commit}", "commit": commit, **fields})


def test_the_command_reads_baselines_and_folders_oldest_first(command, tmp_path, capsys) -> None:
    folder, _ = simulated(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6}), cost
    )
    kept = tmp_path / "kept.json"
    assert ended("compare", str(folder.path), "--store", str(kept)) == 0
    capsys.readouterr()
    status, shown, _ = run(capsys, str(kept), str(folder.path), "--arm", "work=single")
    assert status == 0
    assert "work=single: time per product" in shown and "first" in shown and "1.000x" in shown


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
    return ended("history", *words), *capsys.readouterr()


def test_changes_intervals_and_words_stay_whole_at_eighty_columns() -> None:
    long = {"sweep": "tuned-probe1d-of-somebody-with-a-name"}
    then, now = version("a" * 40, 1, **long), version("b" * 40, 2, fast=0.6, **long)
    console = Console(file=io.StringIO(), width=80)
    reporting.show(console, history([then, now], ["fast"]))
    show_against(console, [compare_baselines(then, now)], 0.05)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    change = history([then, now], ["fast"]).arms[0].versions[1].change
    assert change is not None
    for whole in (speed(change.ratio), bounds_text(change.ratio, change.low, change.high), "slower"):
        assert sum(whole in line for line in lines) >= 2, whole


def test_below_the_tables_it_says_how_changes_were_judged_and_where_levels_begin() -> None:
    def said(baselines: list[Baseline]) -> list[str]:
        console = Console(file=io.StringIO(), width=300)
        reporting.show(console, history(baselines, ["fast", "naive"]))
        return console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    commit = f"{7:x}" * 40
    changed = [*twelve({7: 0.6})[:7], version(commit, 7, 0.6), *twelve({7: 0.6})[8:]]
    lines = said(changed)
    rows = [re.split("  +", line.strip()) for line in lines]
    assert next(row for row in rows if row[0] == f"s-{commit}") == [
        *(f"s-{commit}", "7777777777", "10", "600 ns", "1.20x slower", "1.19 .. 1.20"),
        *("1.20x slower (1.20 .. 1.20)", "1.20x slower", "slower"),
    ]
    assert [row[-1] for row in rows if row[0] == changed[0].sweep] == ["first", "first"]
    judged = [
        "- slower and faster: the interval lies wholly beyond 5% of the version before; on another device"
        " only the ratio to naive is judged",
        "- versions are not interleaved: a machine that drifted moves all arms at once",
    ]
    looked = (
        "arms; of arms that do not change, 5% at most show one by chance, and more on a machine that drifts"
    )
    begins = f"- fast: new level from s-{commit} (7777777777) on, 1.20x slower"
    assert lines[-4:] == [*judged, begins, f"- change points were looked for in 2 of 2 {looked}"]
    few = "fewer than 10 versions"
    assert said(twelve({})[:2])[-3:] == [*judged, f"- no change points are looked for: {few} (2)"]
    late = [one.model_copy(update={"rounds": {"naive": one.rounds["naive"]}}) for one in twelve({})[:5]]
    assert said([*late, *twelve({})[5:]])[-2:] == [
        f"- change points were looked for in 1 of 2 {looked}",
        f"- no change points are looked for in fast: {few} (7)",
    ]
    texts = [
        one.key for one in reporting.version_columns("naive") if not one.number and Where.HTML in one.where
    ]
    assert texts == ["sweep", "commit", "words"], "all others are numbers, on the right of their columns"


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
    assert 'aria-label="2 arms over 12 versions"' in text
    fast, naive = history_chart(history(twelve({7: 0.6}), ["fast", "naive"]), 860).axes
    spans = [
        [[float(x) for x, _ in segment] for one in axes.collections[2:] for segment in one.get_segments()]
        for axes in (fast, naive)
    ]
    assert spans == [[[-0.4, 6.4], [6.6, 11.4]], [[-0.4, 11.4]]], "a level lies below and over its versions"
    assert [(axes.get_title(loc="left"), axes.get_xlim()) for axes in (fast, naive)] == [
        *(("fast", (-0.6, 11.6)), ("naive", (-0.6, 11.6)))
    ]


@pytest.mark.parametrize("time", ["0", "NaN"])
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


ROUNDS = {"p000-0": 100.0, "p000-1": 102.0, "p000-2": 98.0}


def times(factor: float) -> dict[str, float]:
    return {number: time * factor for number, time in ROUNDS.items()}


THEN = baseline(
    sweep="june", commit="of june", rounds={"naive": times(1.0), "amp": times(1.0), "old": times(1.0)}
)
NOW = baseline(
    sweep="july", commit="of july", rounds={"naive": times(1.0), "amp": times(1.2), "new": times(1.0)}
)
CHANGES = compare_baselines(THEN, NOW)


def test_a_row_has_the_change_of_the_time_and_of_its_ratio_to_the_reference() -> None:
    row = JudgedChange("june", Change("amp", 1.1, 1.05, 1.15, (1.3, 1.2, 1.4)), "slower")
    columns = change_columns("naive")
    cells = ["amp", "1.10x slower", "1.05 .. 1.15", "1.30x slower", "1.20 .. 1.40", "slower"]
    assert [one.cell(row) for one in columns if one.key not in FILE_ONLY] == cells
    times = {"ratio": 1.1, "low": 1.05, "high": 1.15}
    relative = {"relative": 1.3, "relative_low": 1.2, "relative_high": 1.4}
    assert row_values(columns, row) == {"arm": "amp", **times, **relative, "verdict": "slower"}
    assert next(one for one in columns if one.key == "relative").heading == "against naive"
    assert next(one for one in columns if one.key == "verdict").style(row) is Style.ALARM
    assert [one.key for one in columns if not one.number] == ["arm", "verdict"]


FILE_ONLY = ("low", "high", "relative_low", "relative_high")


def shown(*changes: Changes) -> list[str]:
    output = StringIO()
    show_against(Console(file=output, width=200), changes, 0.05)
    return [line.strip() for line in output.getvalue().splitlines() if line.strip()]


DRIFT = (
    "slower: the interval lies wholly above +5%; rounds of two sweeps are not interleaved, so a machine that"
    " drifted in between shows up as a change of all arms together"
)


def test_a_person_reads_a_table_with_what_moved_and_what_only_one_of_them_has() -> None:
    lines = shown(CHANGES)
    assert lines[0] == "july against june: time now / then"
    assert [line.split()[0] for line in lines if line.startswith(("naive", "amp"))] == ["naive", "amp"]
    notes = [line.removeprefix("- ") for line in lines[-3:]]
    assert notes == ["commit: of june -> of july", DRIFT, "only in one of the two: old, new"]


def test_on_other_devices_only_ratios_to_the_reference_are_judged_and_that_is_said() -> None:
    moved = compare_baselines(baseline(THEN.rounds, sweep="june", device="gpu"), NOW)
    lines = "\n".join(shown(moved))
    assert "the devices differ, so only ratios to the baseline are judged" in lines
    assert "the devices differ" not in "\n".join(shown(CHANGES))
