"""With what a look at a script ends: the sweep to start, how long it takes, and the command for a patch."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.check.first_look import Seen
from perfsweep.pipelines.commands.scripts import looking as command
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.workloads.api import Evidence

LEVELS = {"amp": ["bf16"], "compile": ["default"], "optimizer": ["fused"], "zero_grad": ["none"]}
LEVELS |= {"num_workers": [2], "tf32": ["on"]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    validation.register()


def told(obstacles: dict[str, str], *args: str, step_ns: float = 1e6, setup_s: float = 1.0) -> list[str]:
    answer: dict[str, Any] = {"sight": {"obstacles": obstacles}, "times_ns": [step_ns], "setup_s": setup_s}
    line = PastedLine("train.py", args)
    words = command.overrides_of(line, {"every": 2})
    return list(command._next(line, words, Seen(answer, Evidence())))


def composed(line: str) -> SweepCommand:
    program, name, *words = shlex.split(line)
    assert (program, name) == ("perfsweep", "sweep")
    return validation.typed(composition.compose("sweep", words), SweepCommand)


def test_the_sweep_has_the_toggles_that_can_act_and_no_others() -> None:
    lines = told(
        {"tf32": "needs CUDA", "num_workers=2": "no", "zero_grad=none": "no", "sdpa": "no"}, "--lr=1 2"
    )
    sweep = composed(lines[3])
    assert sweep.axes == {name: LEVELS[name] for name in ("amp", "compile", "optimizer")}
    assert (sweep.workload["args"], sweep.workload["every"]) == ("'--lr=1 2'", 2)


def test_the_command_for_a_patch_has_the_scripts_arguments_and_what_an_iteration_is() -> None:
    lines = told({}, "--lr=1", "a b")
    assert lines[0].startswith("next: what wins together, as a patch, in about ")
    assert lines[1] == "  perfsweep tune train.py workload.every=2 -- --lr=1 'a b'"


def test_where_nothing_can_act_only_a_profile_is_offered() -> None:
    lines = told(dict.fromkeys(LEVELS, "no"))
    assert [line.split()[1] for line in lines if line.startswith("  perfsweep")] == ["profile"]
