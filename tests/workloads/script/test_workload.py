"""What a script is as a workload: from its text and configuration, and from some iterations of it."""

# Drives `watched` of perfsweep.workloads.script.
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from loops import loop
from scripted import Start, Write, run

from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.toggles import TOGGLES
from perfsweep.workloads.script.workload import Script

LOADED = """
from torch.utils.data import DataLoader, TensorDataset
rows = iter(DataLoader(TensorDataset(torch.randn(80, 4)), batch_size=2, shuffle=False))
"""
"""A loader of forty batches, of which an iteration takes one."""

FROM_LOADER = """
    optimizer.zero_grad()
    loss = (net(next(rows)[0]) ** 2).mean()
    loss.backward()
    optimizer.step()
"""


def planned(folder: Path, text: str, **fields: Any) -> type[Script]:
    (folder / "My_Train.py").write_text(text)
    found = Script.configured(ScriptConfig("My_Train.py", folder=str(folder), **fields))
    assert issubclass(found, Script)
    return found


def test_a_script_says_what_it_is_by_its_text(tmp_path: Path) -> None:
    plain = planned(tmp_path, "import torch")
    assert (plain.__name__, plain.title, plain.unit) == ("Script_My_Train", "my_train", "iteration")
    assert (plain.start, plain.ranks, plain.iteration) == ("fork", 1, "optimizer.step")
    assert plain.files == (tmp_path / "My_Train.py",) and plain.origin == str(tmp_path / "My_Train.py")
    assert plain.toggles == TOGGLES
    assert planned(tmp_path, "from torch.utils.data import DataLoader").unit == "iteration", "until it runs"
    assert planned(tmp_path, "import torch", units=32).unit == "example"
    assert planned(tmp_path, "import os\nos.environ['A'] = 'b'").start == "exec"
    assert planned(tmp_path, "import torch", ranks=3).ranks == 3
    assert planned(tmp_path, "import perfsweep").iteration == "marks"
    assert planned(tmp_path, "import perfsweep", iteration="loader").iteration == "loader"


def test_a_toggle_of_the_scripts_own_stands_in_the_place_of_ours(tmp_path: Path) -> None:
    own = {"amp": {"off": "", "on": "--amp"}, "width": {32: "", 64: "--width=64"}}
    found = planned(tmp_path, "import torch", toggles=own)
    names = [toggle.name for toggle in found.toggles]
    assert names[-2:] == ["amp", "width"] and len(names) == len(set(names)) == len(TOGGLES) + 1
    assert [level.value for level in found.toggles[-2].levels] == ["off", "on"]


@pytest.mark.parametrize(("fields", "each"), [({}, 2), ({"units": 7}, 7)])
def test_progress_is_examples_or_what_an_iteration_is_said_to_be(
    start: Start, write: Write, fields: dict[str, Any], each: int
) -> None:
    script = start(write(loop(head=LOADED, step=FROM_LOADER)), **fields)
    assert script.progress() == 0
    assert script.numbers() == {"last_loss": float(script._watched.losses[0])} == script.numbers()
    script._watched.losses.clear()
    assert script.numbers() == {}
    assert run(script, 4).progress() == 4 * each
    assert script.counters()["iterations"] == 4


def test_a_script_that_updates_by_hand_shows_the_gradients_of_its_models(start: Start, write: Write) -> None:
    step = """
    net.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    for parameter in net.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
    done()
"""
    script = start(write(loop(head="def done(): pass", step=step)), iteration="train:done")
    script.prepare_evidence()
    found = run(script, 2).evidence()
    assert found.tensors["first_gradient"].tolist() == [2, 2, 2, 2, 2]
    assert len(found.tensors["losses"]) == 3


SEEDED = {"off": "", "on": {"args": "--seed=1"}}


@pytest.mark.parametrize(
    ("toggles", "known"),
    [
        ({}, True),
        ({"seed": {**SEEDED, "parity": "stochastic"}}, False),
        ({"seed": {"off": "", "on": {"ranks": 2}}}, False),
    ],
)
def test_data_are_identified_unless_some_level_has_others(
    start: Start, write: Write, toggles: dict[str, Any], known: bool
) -> None:
    levels = dict.fromkeys(toggles, "off")
    script = start(write(loop(head=LOADED, step=FROM_LOADER)), levels, toggles=toggles)
    assert len(script.data_digest()) == (64 if known else 0)


def test_arguments_of_levels_are_filled_in_too(start: Start, write: Write, tmp_path: Path) -> None:
    toggles = {"save": {"off": "--out=none", "on": "--out={scratch}/{seed}"}}
    start(write(loop(head="import sys")), {"save": "on"}, toggles=toggles, args="--out=x --n={seed}")
    assert sys.argv[1:] == [f"--out={tmp_path}/scratch/rank0/0", "--n=0"]
