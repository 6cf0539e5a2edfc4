"""A training's state as files and back, of modules small enough to be written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import checkpoint

FACTS = {"dtype": "float32", "sizes": {"latents": 2}, "targets": ["q"]}


class Training:
    """Two modules of which one parameter has never been updated, and their optimiser after two steps."""

    def __init__(self, width: int = 3) -> None:
        torch.manual_seed(0)
        unused = nn.Linear(width, 1, bias=False)
        self.modules = checkpoint.modules_of(nn.Linear(2, width), [unused])  # type: ignore[arg-type, list-item]
        parameters = [p for module in self.modules.values() for p in module.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=0.1)

    def step(self) -> Training:
        self.modules["encoder"](torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        return self

    def state(self) -> dict[str, Any]:
        scalars = {"loss_scale": torch.tensor(8.0), "good": torch.tensor(3), "skipped": torch.tensor(1)}
        updates = {"step": 5, "optimizer": self.optimizer.state_dict(), **scalars}
        return {"step": 4, "updates": updates, "random": torch.get_rng_state()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Training().step().step()
    checkpoint.write(tmp_path / "kept", made.modules, made.state(), FACTS)
    return tmp_path / "kept"


def test_a_training_that_goes_on_has_the_state_that_was_kept(folder: Path) -> None:
    kept, other = Training().step().step(), Training()
    groups = other.optimizer.state_dict()["param_groups"]
    found = checkpoint.resume(folder, other.modules, FACTS, groups)
    expected = kept.state()
    assert (found["step"], found["updates"]["step"]) == (4, 5)
    assert torch.equal(found["random"], expected["random"])
    assert [found["updates"][name].item() for name in checkpoint.SCALARS] == [8.0, 3, 1]
    for values, module in zip(found["modules"], kept.modules.values(), strict=True):
        assert {name: value.tolist() for name, value in values.items()} == {
            name: value.tolist() for name, value in module.state_dict().items()
        }
    moments, right = found["updates"]["optimizer"]["state"], kept.optimizer.state_dict()["state"]
    assert moments.keys() == right.keys() == {0, 1}, "the third was never updated"
    for number, values in right.items():
        assert all(torch.equal(moments[number][name], value) for name, value in values.items())
    assert found["updates"]["optimizer"]["param_groups"] == groups


def test_what_a_damaged_checkpoint_lacks_is_said(folder: Path) -> None:
    other = Training()
    about, held = (
        json.loads((folder / "checkpoint.json").read_text()),
        load_file(folder / "optimizer.safetensors"),
    )
    del held["random"]
    save_file(held, folder / "optimizer.safetensors")
    with pytest.raises(
        ConfigError, match=r"optimizer\.safetensors has random as missing, expected \[\d+\]; copy"
    ):
        checkpoint.resume(folder, other.modules, FACTS, [])
    for name in ("step", "updates"):
        (folder / "checkpoint.json").write_text(json.dumps({**about, name: "5"}))
        with pytest.raises(ConfigError, match=f"checkpoint.json has {name}=5, no whole number; copy"):
            checkpoint.resume(folder, other.modules, FACTS, [])


def test_what_cannot_be_written_is_said(folder: Path, tmp_path: Path) -> None:
    made = Training().step()
    for place in (folder, tmp_path / "none" / "kept"):
        with pytest.raises(ConfigError, match=r"kept cannot be written \(.*\); name another folder"):
            checkpoint.write(place, made.modules, made.state(), FACTS)
