"""Files that training goes on from, or that are none: each is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import named_files
from perfsweep.workloads.weight_files import write_safetensors

FOREIGN = (
    b"",
    b"hello",
    b"step,loss\n1,2\n",
    b"PK\x03\x04\x00\x00\x08\x08" + bytes(24),
    b"X\x1a\x80\xb8\xaa\xb8\x1d\xc4",
    b"\x80\x02}q\x00.",
)


def test_a_file_of_another_kind_is_no_checkpoint_and_holds_no_values(tmp_path: Path) -> None:
    file = tmp_path / "notes.pt"
    for content in FOREIGN:
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=r"^workload\.resume=.* is no whole checkpoint \(\w+.*\); give"):
            named_files.read(file)
        with pytest.raises(ConfigError, match=r"is no whole file of torch\.save \(\w+.*\); copy it again"):
            named_files.read_values(file)


def test_a_checkpoint_has_all_its_parts_and_those_that_it_lacks_are_named(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pt"
    whole = dict.fromkeys(named_files.PARTS, 1)
    torch.save(whole, file)
    assert named_files.read(file) == whole
    torch.save({name: 1 for name in whole if name not in ("step", "scaler")}, file)
    with pytest.raises(
        ConfigError, match=r"is no checkpoint of SPD: it lacks scaler, step; give another one"
    ):
        named_files.read(file)
    torch.save({**whole, "optimizer": {"state": {}, "param_groups": []}}, file)
    with pytest.raises(ConfigError, match=r"was saved by an earlier version.*workload\.values_path"):
        named_files.read(file)
    torch.save([1], file)
    with pytest.raises(ConfigError, match="it lacks generator, optimizer, "):
        named_files.read(file)
    for other, said in (
        (tmp_path, "is a folder; give the checkpoint.pt"),
        (tmp_path / "x", "does not exist"),
    ):
        with pytest.raises(ConfigError, match=said):
            named_files.read(other)


def test_values_come_from_either_kind_of_file_and_must_be_tensors(tmp_path: Path) -> None:
    values = {
        "components.a.V": torch.arange(6.0).view(2, 3),
        "none": torch.zeros(0, 2),
        "one": torch.tensor(2.5),
    }
    write_safetensors(tmp_path / "v.safetensors", values)
    torch.save(values, tmp_path / "v.pth")
    for name in ("v.safetensors", "v.pth"):
        found = named_files.read_values(tmp_path / name)
        assert found.keys() == values.keys()
        assert all(torch.equal(found[key], value) for key, value in values.items())
    torch.save({"a": 1}, tmp_path / "v.pth")
    with pytest.raises(ConfigError, match="holds no tensors by name; save the state_dict"):
        named_files.read_values(tmp_path / "v.pth")
    with pytest.raises(ConfigError, match="is no file; give the decomposition"):
        named_files.read_values(tmp_path)
