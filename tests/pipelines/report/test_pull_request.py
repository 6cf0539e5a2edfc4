"""The comment on a pull request: a table, what changed results, what is undecided and what it would take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.report.markdown import MARK, comment
from perfsweep.pipelines.report.version_answer import Answer, Side

BASE, HEAD = Side("HEAD^1", "0123456789abcdef"), Side("HEAD", "fedcba9876543210")
SLOWER = Answer(
    BASE,
    HEAD,
    "slower",
    "identical",
    1,
    0.025,
    workload="train",
    ratio=1.052,
    low=1.041,
    high=1.063,
    rounds=24,
    seconds=93.0,
)
CHANGED = replace(
    SLOWER, verdict="different results", results="different", deviation="loss: 0.001, allowed 1e-06"
)
LEFT = replace(
    SLOWER,
    verdict="undecided",
    reason="about 120 rounds (6 min of trials) would decide, if the estimate stayed",
    seconds_needed=372.0,
)


def written(*answers: Answer) -> list[str]:
    return comment([one.as_json() for one in answers]).splitlines()


def cells(lines: list[str]) -> list[list[str]]:
    rows = [line for line in lines if line.startswith("| `")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_a_comment_can_be_found_again_and_says_the_worst_first() -> None:
    lines = written(replace(SLOWER, verdict="no difference"), SLOWER)
    assert lines[0] == MARK
    assert lines[2] == "### perfsweep: slower"
    assert lines[4] == "`HEAD` (fedcba9876) against `HEAD^1` (0123456789), measured in turn on one machine."


def test_the_table_has_a_row_for_each_workload() -> None:
    rows = cells(written(SLOWER, replace(SLOWER, workload="eval", verdict="faster", ratio=0.9)))
    assert rows[0] == [
        "`train`",
        "**slower**",
        "1.052x slower",
        "1.041 .. 1.063",
        "identical",
        "24 rounds in 93 s",
    ]
    assert rows[1][:3] == ["`eval`", "faster", "1.11x faster"]


def test_what_changed_results_is_named_and_its_time_is_not_shown() -> None:
    lines = written(CHANGED)
    assert "- `train`: loss: 0.001, allowed 1e-06. Its time does not count." in lines
    assert cells(lines)[0][1:5] == ["**different results**", "", "", "**different**"]


def test_what_does_less_work_runs_and_its_time_is_not_shown() -> None:
    lines = written(replace(SLOWER, verdict="fewer units", reason="it ended early"))
    assert "- `train`: it ended early. Its time does not count." in lines
    assert "**What does less work**" in lines and "**What does not run**" not in lines
    assert cells(lines)[0][1:5] == ["**fewer units**", "", "", "identical"]


def test_the_budget_that_is_named_would_do() -> None:
    for seconds in (0.5, 4.0, 9.1, 40.5, 372.0, 4000.0):
        text = comment([replace(LEFT, seconds_needed=seconds).as_json()])
        budget = float(text.partition("measure.budget_s=")[2].partition("`")[0])
        assert seconds * 1.1 <= budget <= seconds * 1.1 + 10


def test_what_is_undecided_says_how_long_it_would_take() -> None:
    (line,) = (line for line in written(SLOWER, LEFT) if "would decide" in line)
    assert line == f"- `train`: {LEFT.reason}. `measure.budget_s=410` allows for that"


def test_what_does_not_run_says_why() -> None:
    failed = replace(
        SLOWER, verdict="failed", results="unchecked", ratio=None, rounds=0, reason="NameError: x"
    )
    assert "- `train`: NameError: x" in written(failed)


@pytest.mark.parametrize("name", ["a|b", "<img src=x>", "a`b", "line\nline"])
def test_a_hostile_name_breaks_no_row_and_opens_no_tag(name: str) -> None:
    text = comment([replace(SLOWER, workload=name, base=Side(name, "0" * 40)).as_json()])
    (row,) = (line for line in text.splitlines() if line.startswith("| `"))
    assert row.replace("\\|", "").count("|") == 7
    assert "<img" not in text


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("faster", 0),
        ("slower", 0),
        ("no difference", 0),
        ("undecided", 1),
        ("failed", 1),
        ("fewer units", 1),
        ("different results", 1),
    ],
)
def test_what_is_called_needs_no_line_below_the_table_and_all_else_has_one(verdict: str, told: int) -> None:
    lines = [line for line in written(replace(SLOWER, verdict=verdict)) if line.startswith("- ")]
    assert len(lines) == told


def test_a_reason_mentions_nobody() -> None:
    assert "@someone" not in comment([replace(LEFT, reason="@someone").as_json()])
