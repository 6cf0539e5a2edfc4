"""What a configuration makes of the workload: toggles, units, files that decide, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads import registry
from perfsweep.workloads.command.config import CommandConfig
from perfsweep.workloads.command.workload import Command
from perfsweep.workloads.errors import ConfigError, ContractError

Make = Callable[..., Command]


def configured(folder: Path, command: str = "true", **fields: Any) -> Any:
    return Command.configured(CommandConfig(command, folder=str(folder), **fields))


def test_toggles_act_on_the_command_and_leave_the_trial_as_it_is(ran: Make) -> None:
    toggles = {"arena": {False: {"env": {"ARENA": ""}}, True: {"env": {"ARENA": "{seed}1"}}}}
    for level, expected in (("off", "none"), ("on", "41")):
        workload = ran(
            "sh -c 'echo arena=${ARENA-none}'",
            {"arena": level},
            seed=4,
            toggles=toggles,
            evidence={"pattern": r"arena=(?P<arena>\w+)", "output": False},
        )
        assert workload._last is not None and workload._last.output.text == f"arena={expected}\n"
        assert not type(workload).needs_exec({"arena": level})


def test_a_level_that_cannot_mean_a_command_is_refused(tmp_path: Path) -> None:
    for body, message in (
        ({"replace": {"a:b": "c:d"}}, r"workload\.toggles\.t\.on\.replace: a command is no Python module"),
        ({"ranks": 2}, r"workload\.toggles\.t\.on\.ranks: write the launcher into the command"),
    ):
        with pytest.raises(ConfigError, match=message):
            configured(tmp_path, toggles={"t": {"off": "", "on": body}})
    with pytest.raises(ContractError, match="bounds los, which is no check"):
        configured(
            tmp_path, toggles={"t": {"off": "", "on": "", "bounds": {"los": 1}}}, evidence={"json": "loss"}
        )


def test_editing_the_program_makes_it_another_and_its_data_does_not(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("one")
    (tmp_path / "data.txt").write_text("one")

    def digest() -> str:
        return registry.digest(registry.sources(configured(tmp_path, "python3 job.py data.txt")))

    before = digest()
    (tmp_path / "data.txt").write_text("two")
    assert digest() == before
    (tmp_path / "job.py").write_text("two")
    assert digest() != before


def test_other_data_are_not_compared(make: Make, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("one")
    workload = make("cat data.txt", data=["data.txt"])
    before = workload.data_digest()
    assert before == workload.data_digest()
    (tmp_path / "data.txt").write_text("two")
    assert workload.data_digest() != before
    assert make("true").data_digest() == ""
