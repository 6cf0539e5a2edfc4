"""A tuned arm as a preset: its name, its place, and what stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from perfsweep.pipelines.config import presets
from perfsweep.pipelines.config.presets import PresetFile, preset_file, preset_name, write
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (Device("cpu", name="Some CPU"), "tuned-digits-cpu"),
        (Device("cuda", name="NVIDIA H100 80GB (SXM)"), "tuned-digits-nvidia-h100-80gb-sxm"),
        (Device("cuda"), "tuned-digits-cuda"),
    ],
)
def test_a_preset_is_called_after_what_pays_there(device: Device, name: str) -> None:
    assert preset_name("digits", device) == name


def test_a_preset_lies_where_commands_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = preset_file("fast", Path("runs"))
    assert found.file == Path("runs/conf/toggles/fast.yaml")
    path = f"'hydra.searchpath=[file://{tmp_path / 'runs/conf'}]'"
    assert found.override == f"{path} toggles=fast"
    Path("perfsweep.yaml").write_text("conf: mine\n")
    assert preset_file("fast", Path("runs")) == PresetFile(Path("mine/toggles/fast.yaml"))
    Path("conf").mkdir()
    assert preset_file("fast", Path("runs")).file == Path("mine/toggles/fast.yaml"), "another's conf"
    monkeypatch.setattr(presets, "files", lambda package: tmp_path / package.removeprefix("perfsweep."))
    found = preset_file("fast", Path("runs"))
    assert (found.file, found.override) == (Path("conf/toggles/fast.yaml"), "toggles=fast")


def test_a_preset_says_what_is_known_of_it_and_reads_as_levels(tmp_path: Path) -> None:
    file = tmp_path / "new/fast.yaml"
    write(PresetFile(file), {"slab": 8, "amp": "off"}, ["20 % faster", "two\nlines"])
    text = file.read_text()
    assert text.splitlines()[:3] == ["# 20 % faster", "# two", "# lines"]
    assert list(yaml.safe_load(text).items()) == [("slab", 8), ("amp", "off")]


def test_a_preset_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError, match=r"cannot be written \(.*\); what was measured stays: the same command"
    ):
        write(PresetFile(tmp_path / "file/fast.yaml"), {}, [])
