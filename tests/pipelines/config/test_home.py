"""The folder that is measured in: what its perfsweep.yaml adds, and the presets that lie there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from perfsweep.pipelines.config import home, presets
from perfsweep.pipelines.config.presets import PresetFile, preset_file, preset_name, write
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

PARTS = ("workload", "measure", "cluster", "name")


def added(folder: Path, text: str, *typed: str, allowed: tuple[str, ...] = PARTS) -> list[str]:
    (folder / "perfsweep.yaml").write_text(text)
    return home.overrides(allowed, typed, folder)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ((), ["measure.rounds=7", "cluster=site", "++name=x"]),
        (("measure.rounds=9",), ["cluster=site", "++name=x"]),
        (("name=y", "measure.iterations=3"), ["measure.rounds=7", "cluster=site"]),
    ],
)
def test_what_is_typed_wins(tmp_path: Path, typed: tuple, kept: list[str]) -> None:
    text = "overrides:\n- measure.rounds=7\n- cluster=site\n- ++name=x\n- tracking.mode=online\n"
    assert added(tmp_path, text, *typed) == kept


@pytest.mark.parametrize(("text", "says"), [("overrides: [cluster]", "overrides must be a list")])
def test_what_cannot_be_meant_is_refused_with_the_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"perfsweep.yaml: {says}"):
        added(tmp_path, text)


def test_a_folder_of_configurations_comes_first_and_hides_none_of_ours(tmp_path: Path) -> None:
    own = tmp_path / "mine/cluster"
    own.mkdir(parents=True)
    (own / "site.yaml").touch()
    found = added(tmp_path, "conf: mine\noverrides: [cluster=site]")
    assert found == [f"hydra.searchpath=[file://{(tmp_path / 'mine').resolve()}]", "cluster=site"]
    (own / "slurm.yaml").touch()
    with pytest.raises(ConfigError, match=r"would be hidden by perfsweep's own cluster/slurm\.yaml"):
        added(tmp_path, "conf: mine")


def test_a_preset_is_called_after_what_pays_there() -> None:
    device = Device("cuda", name="NVIDIA H100 80GB (SXM)")
    assert preset_name("digits", device) == "tuned-digits-nvidia-h100-80gb-sxm"


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
