"""What the table of arms shows of one, and what the file holds of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.analysis.arm_columns import ARMS
from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.columns import Where, row_values, visible_columns
from perfsweep.pipelines.analysis.phases import PhaseShare
from perfsweep.pipelines.store.records import Outcome
from perfsweep.pipelines.units import MB

PHASES = (
    PhaseShare("forward", "device", 600_000.0),
    PhaseShare("backward", "host", 300_000.0),
    PhaseShare("rest", "host", 9_999.0),
)
FULL = ArmResult(
    label="amp=bf16",
    rounds=6,
    ns_per_unit=1e6,
    peak_bytes=7 * MB,
    outcomes={"ok": 9, "oom": 2},
    iteration_ns=4e6,
    phases=PHASES,
    name="tuned",
    mfu=0.123,
    id="abc",
    minor_faults=1234.4,
    major_faults=2.0,
    system_ns=5000.0,
    run_delay=0.025,
    ranks=4,
    nodes=2,
    collectives=0.3,
    straggling=0.0,
)
BARE = ArmResult("amp=bf16", 0, None, None, {})


def cells(arm: ArmResult, where: Where = Where.HTML) -> dict[str, str]:
    return {one.key: one.cell(arm) for one in visible_columns(ARMS, [arm], where)}


def test_a_person_reads_of_an_arm() -> None:
    assert cells(FULL) == {
        "name": "tuned",
        "label": "amp=bf16",
        "ns_per_unit": "1 ms",
        "iteration_ns": "4 ms",
        "phases": "forward 600 us (device), backward 300 us",  # the rest is under a hundredth
        "rounds": "6",
        "peak_bytes": "7 MB",
        "minor_faults": "1,234",
        "run_delay": "2.5%",
        "mfu": "12.3%",
        "ranks": "4 on 2 nodes",
        "collectives": "30%",
        "straggling": "0%",
        "trials": "9 ok, 2 oom",
    }


def test_quantities_stand_on_the_right_and_words_on_the_left() -> None:
    numbers = {one.key for one in visible_columns(ARMS, [FULL], Where.HTML) if one.number}
    assert set(cells(FULL)) - numbers == {"name", "label", "phases", "trials"}


def test_of_an_arm_without_a_round_a_person_reads_its_label() -> None:
    shown = {key: text for key, text in cells(BARE).items() if text}
    assert shown == {"name": "amp=bf16"}


def test_markdown_leaves_levels_and_rounds_to_the_page() -> None:
    assert set(cells(FULL)) - set(cells(FULL, Where.MARKDOWN)) == {"label", "rounds"}


def test_a_file_holds_of_an_arm() -> None:
    values = row_values(ARMS, FULL)
    assert {key: value for key, value in values.items() if value != 0} == {
        "name": "tuned",
        "label": "amp=bf16",
        "ns_per_unit": 1e6,
        "paired_ns": None,
        "iteration_ns": 4e6,
        "rounds": 6,
        "peak_bytes": 7 * MB,
        "minor_faults": 1234.4,
        "major_faults": 2.0,
        "system_ns": 5000.0,
        "run_delay": 0.025,
        "mfu": 0.123,
        "ranks": 4,
        "nodes": 2,
        "collectives": 0.3,
        "ok": 9,
        "oom": 2,
        "arm": "abc",
        "on_gpu": "",
    }
    without_any = {one.value for one in Outcome} - {"ok", "oom"}
    assert {key for key, value in values.items() if value == 0} == {*without_any, "straggling"}


@pytest.mark.parametrize(("name", "shown"), [("tuned", True), ("amp=bf16", False), ("", False)])
def test_levels_stand_beside_a_name_that_is_not_made_of_them(name: str, shown: bool) -> None:
    assert ("label" in cells(replace(FULL, name=name))) is shown


@pytest.mark.parametrize(
    ("ranks", "nodes", "text"), [(4, 2, "4 on 2 nodes"), (4, 1, "4"), (4, None, "4"), (None, None, None)]
)
def test_ranks_say_how_many_nodes_they_lie_on_where_these_are_several(
    ranks: int | None, nodes: int | None, text: str | None
) -> None:
    assert cells(replace(FULL, ranks=ranks, nodes=nodes)).get("ranks") == text


def test_the_six_longest_phases_are_shown_and_a_hundredth_of_the_time_is_enough() -> None:
    many = tuple(PhaseShare(f"p{number}", "host", 10_000.0) for number in range(8))
    assert cells(replace(FULL, phases=many))["phases"].split(", ") == [f"p{n} 10 us" for n in range(6)]
