"""What of a sweep is done, pack by pack, on a terminal."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from perfsweep.pipelines.report.sweep_status import PackStatus, SweepStatus, show


def pack(name: str, rounds: int = 6, planned: int = 6, **fields: object) -> PackStatus:
    values = {"arms": 3, "trials": 20, "not_ok": 2, "job": None, "note": None, **fields}
    return PackStatus(pack=name, rounds=rounds, rounds_planned=planned, **values)  # type: ignore[arg-type]


def shown(*packs: PackStatus, skipped: tuple[str, ...] = ()) -> list[list[str]]:
    """Cells of the lines that are printed."""
    output = StringIO()
    status = SweepStatus(
        sweep="demo", workload="toy", folder="runs/demo", exit=0, packs=packs, skipped=skipped
    )
    show(Console(file=output, width=120), status)
    lines = [line for line in output.getvalue().splitlines() if line.strip("┏┓┡┩┗┛└┘━─┴┳╇┯ ")]
    return [[cell.strip() for cell in line.replace("┃", "│").strip("│").split("│")] for line in lines]


@pytest.mark.parametrize(
    ("rounds", "planned", "done"), [(5, 6, False), (6, 6, True), (7, 6, True), (0, 0, True)]
)
def test_a_pack_is_done_once_all_its_rounds_are_there(rounds: int, planned: int, done: bool) -> None:
    assert pack("p000", rounds, planned).is_done is done


def test_each_pack_has_a_line() -> None:
    assert shown(pack("p000"), pack("p001", rounds=2)) == [
        ["demo: toy"],
        ["pack", "arms", "rounds finished", "trials", "not ok"],
        ["p000", "3", "6 of 6", "20", "2"],
        ["p001", "3", "2 of 6", "20", "2"],
    ]


def test_jobs_and_what_is_known_of_them_stand_there_where_any_pack_has_one() -> None:
    assert shown(pack("p000", job="PENDING", note="waits for a node"), pack("p001"))[1:] == [
        ["pack", "arms", "rounds finished", "trials", "not ok", "job", "note"],
        ["p000", "3", "6 of 6", "20", "2", "PENDING", "waits for a node"],
        ["p001", "3", "6 of 6", "20", "2", "", ""],
    ]


def test_files_that_could_not_be_read_are_named_as_they_are() -> None:
    assert shown(pack("p000"), skipped=("[bold]a.json is damaged",))[-1] == [
        "skipped: [bold]a.json is damaged"
    ]
