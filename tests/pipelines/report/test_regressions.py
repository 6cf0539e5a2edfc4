"""A sweep against others: which arm became slower, in a table, in notes, and in an object."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from perfsweep.pipelines.analysis.across.baselines import Baseline, Change, Changes, store
from perfsweep.pipelines.analysis.columns import Style, row_values
from perfsweep.pipelines.report.regressions import (
    JudgedChange,
    against,
    change_columns,
    compare_with,
    judged,
    show,
    stored_baseline,
)

ROUNDS = {"p000-0": 100.0, "p000-1": 102.0, "p000-2": 98.0}


def times(factor: float) -> dict[str, float]:
    return {number: time * factor for number, time in ROUNDS.items()}


def baseline(sweep: str, **fields: object) -> Baseline:
    values = {
        "workload": "toy",
        "unit": "pair",
        "config": "{}",
        "method": "m",
        "data": "",
        "device": "cpu",
        "torch": "2.13",
        "commit": f"of {sweep}",
        "reference": "naive",
        "rounds": {"naive": times(1.0), "amp": times(1.0)},
        **fields,
    }
    return Baseline(sweep=sweep, **values)  # type: ignore[arg-type]


THEN = baseline("june", rounds={"naive": times(1.0), "amp": times(1.0), "old": times(1.0)})
NOW = baseline("july", rounds={"naive": times(1.0), "amp": times(1.2), "new": times(1.0)})
(CHANGES,) = compare_with(NOW, [THEN])


def test_an_arm_beyond_the_margin_is_slower() -> None:
    assert [(one.then, one.change.label, one.verdict) for one in judged(CHANGES, 0.05)] == [
        ("june", "naive", ""),
        ("june", "amp", "slower"),
    ]
    assert [one.verdict for one in judged(CHANGES, 0.3)] == ["", ""]


def test_each_of_the_others_is_compared_in_the_order_given() -> None:
    found = compare_with(NOW, [THEN, baseline("may")])
    assert [(one.then.sweep, one.now.sweep) for one in found] == [("june", "july"), ("may", "july")]


def test_a_program_is_told_the_same() -> None:
    told = against(CHANGES, 0.05)
    assert (told.sweep, told.commit, told.other_machine) == ("june", "of june", False)
    assert told.moved == ("commit: of june -> of july",)
    assert (told.missing, told.slower) == (("old", "new"), ("amp",))


@pytest.mark.parametrize(
    ("relative", "cells", "values"),
    [
        (
            (1.3, 1.2, 1.4),
            ["amp", "1.10x slower", "1.05 .. 1.15", "1.30x slower", "1.20 .. 1.40", "slower"],
            (1.3, 1.2, 1.4),
        ),
        (None, ["amp", "1.10x slower", "1.05 .. 1.15", "", "", "slower"], (None, None, None)),
    ],
)
def test_a_row_has_the_change_of_the_time_and_of_its_ratio_to_the_reference(
    relative: tuple[float, float, float] | None, cells: list[str], values: tuple
) -> None:
    row = JudgedChange("june", Change("amp", 1.1, 1.05, 1.15, relative), "slower")
    columns = change_columns("naive")
    assert [one.cell(row) for one in columns if one.key not in FILE_ONLY] == cells
    assert row_values(columns, row) == {
        "arm": "amp",
        "ratio": 1.1,
        "low": 1.05,
        "high": 1.15,
        "relative": values[0],
        "relative_low": values[1],
        "relative_high": values[2],
        "verdict": "slower",
    }
    assert next(one for one in columns if one.key == "relative").heading == "against naive"
    assert next(one for one in columns if one.key == "verdict").style(row) is Style.ALARM


FILE_ONLY = ("low", "high", "relative_low", "relative_high")


def shown(*changes: Changes) -> list[str]:
    output = StringIO()
    show(Console(file=output, width=200), changes, 0.05)
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
    (moved,) = compare_with(NOW, [baseline("june", device="gpu", rounds=THEN.rounds)])
    lines = "\n".join(shown(moved))
    assert "the devices differ, so only ratios to the baseline are judged" in lines
    assert "the devices differ" not in "\n".join(shown(CHANGES))


def test_a_file_is_a_stored_baseline_and_a_folder_is_none(tmp_path: Path) -> None:
    store(THEN, tmp_path / "june.json")
    assert stored_baseline(str(tmp_path / "june.json")) == THEN
    assert stored_baseline(str(tmp_path)) is None
