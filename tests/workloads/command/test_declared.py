"""What a configuration makes of the workload: toggles, units, files that decide, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.config.composition import compose
from perfsweep.pipelines.profiling.profiled_process import refuse_other_processes
from perfsweep.workloads import registry
from perfsweep.workloads.api import Parity
from perfsweep.workloads.command.config import CommandConfig
from perfsweep.workloads.command.environment import of_arm
from perfsweep.workloads.command.workload import Command
from perfsweep.workloads.custom_toggles import Change
from perfsweep.workloads.declarations import Level
from perfsweep.workloads.errors import ConfigError, ContractError, UnsupportedHere
from perfsweep.workloads.user_environment import changed

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


def test_classes_and_bounds_of_levels_hold_for_evidence(tmp_path: Path) -> None:
    toggles = {"fast": {"off": "", "on": "--fast", "parity": "tolerance", "bounds": {"loss": 0.1}}}
    level = configured(tmp_path, toggles=toggles, evidence={"json": "loss"}).toggles[0].levels[1]
    assert (level.parity, dict(level.bounds)) == (Parity.TOLERANCE, {"loss": 0.1})


@pytest.mark.parametrize(
    ("units", "message"),
    [("images", "or what the program reports: loss"), ("0", "a number above 0"), ("nan", "above 0")],
)
def test_units_are_a_number_or_something_reported(tmp_path: Path, units: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, units=units, evidence={"json": "loss"})


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


def test_a_plan_names_its_folder_whole_and_levels_as_json_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = Command.planned(CommandConfig("true", toggles={"a": {False: "", True: "-x", 3: "-y"}}))
    assert (planned.folder, list(planned.toggles["a"])) == (str(tmp_path), ["off", "on", "3"])
    with pytest.raises(ConfigError, match=r"workload.folder=nowhere is no folder"):
        Command.planned(CommandConfig("true", folder="nowhere"))
    with pytest.raises(ConfigError, match=r"workload\.data: \S+/missing does not exist"):
        Command.planned(CommandConfig("true", data=["missing"]))


def test_sweeps_are_named_after_the_script_or_the_program(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("")
    assert configured(tmp_path, "python3 job.py").title == "command-job"
    assert configured(tmp_path, "/usr/bin/sort -n").title == "command-sort"


def test_a_command_sees_the_users_variables_and_those_of_its_levels() -> None:
    own = {"PATH": "/bin", "KEEP": "1", "DROP": "1", "OMP_NUM_THREADS": "8"}
    measuring = {
        **own,
        **changed(own, {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "5", "PERFSWEEP_PADDING": "."}),
    }
    levels = [Level("jemalloc", env={"LD_PRELOAD": "lib.so"})]
    changes = [Change(env={"DROP": ""}), Change(env={"OUT": "{scratch}/x"})]
    found = of_arm(levels, changes, {"scratch": "/s"}, measuring)
    expected = {"PATH": "/bin", "KEEP": "1", "OMP_NUM_THREADS": "8", "LD_PRELOAD": "lib.so", "OUT": "/s/x"}
    assert found == expected


def test_toggles_and_evidence_may_be_typed(tmp_path: Path) -> None:
    typed = ["workload.evidence.output=true", "workload.toggles.fast.off=''", "workload.toggles.fast.on=-f"]
    composed = compose("sweep", ["workload=command", *typed]).workload
    assert composed.toggles == {"fast": {"off": "", "on": "-f"}} and composed.evidence == {"output": True}


def test_profilers_of_the_trial_refuse_what_they_cannot_see(make: Make) -> None:
    with pytest.raises(UnsupportedHere, match="its work is done in other processes"):
        refuse_other_processes(make("true"))
