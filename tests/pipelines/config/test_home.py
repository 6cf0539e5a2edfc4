"""The folder somebody measures in, and what its `perfsweep.yaml` adds."""

from __future__ import annotations

from pathlib import Path

import pytest
from folder_names import NAMES

from perfsweep.pipelines.config import composition, home
from perfsweep.workloads.errors import ConfigError

PARTS = ("workload", "measure", "cluster", "name")


def added(folder: Path, text: str, *typed: str, allowed: tuple[str, ...] = PARTS) -> list[str]:
    (folder / "perfsweep.yaml").write_text(text)
    return home.overrides(allowed, typed, folder)


def test_a_folder_without_a_file_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.overrides(PARTS, (), tmp_path) == []
    monkeypatch.chdir(tmp_path)
    Path("perfsweep.yaml").write_text("overrides: [name=x]")
    assert home.overrides(PARTS, ()) == ["name=x"]


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ((), ["measure.rounds=7", "cluster=site", "++name=x"]),
        (("measure.rounds=9",), ["cluster=site", "++name=x"]),
        (("+measure.rounds=9", "~cluster"), ["++name=x"]),
        (("name=y", "measure.iterations=3"), ["measure.rounds=7", "cluster=site"]),
    ],
)
def test_what_is_typed_wins(tmp_path: Path, typed: tuple, kept: list[str]) -> None:
    text = "overrides:\n- measure.rounds=7\n- cluster=site\n- ++name=x\n- tracking.mode=online\n"
    assert added(tmp_path, text, *typed) == kept


def test_what_means_nothing_to_a_command_is_left_out(tmp_path: Path) -> None:
    text = "overrides: [measure.rounds=7, cluster=site, cluster.gpus=1]"
    assert added(tmp_path, text, allowed=("measure",)) == ["measure.rounds=7"]


@pytest.mark.parametrize("text", ["", "overrides:", "conf:\noverrides: []"])
def test_an_empty_file_adds_nothing(tmp_path: Path, text: str) -> None:
    assert added(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zeal: 1\nalso: 2", "also is unknown; it has conf and overrides"),
        ("overrides: name=x", "overrides must be a list of texts such as cluster=site"),
        ("overrides: [cluster]", "overrides must be a list"),
        ("overrides: [3]", "overrides must be a list"),
        ("conf: nowhere", "conf=nowhere is no folder; create it, or remove the line"),
    ],
)
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


def test_configurations_are_found_in_folders_as_people_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path.joinpath(*NAMES)
    (folder / "mine/cluster").mkdir(parents=True)
    (folder / "mine/cluster/site.yaml").write_text("defaults: [local, _self_]\nslots: 3\n")
    (folder / "perfsweep.yaml").write_text("conf: mine\noverrides: [cluster=site]\n")
    monkeypatch.chdir(folder)
    assert composition.compose("sweep", ["workload=selftest"]).cluster.slots == 3


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("conf: mine", "mine"),
        ("overrides: []\nconf: 'mine'  # there", "mine"),
        ('conf: "my own"', "my own"),
        ("conf:", None),
        ("# conf: mine", None),
        ("other: mine", None),
        ("conf", None),
        (None, None),
    ],
)
def test_completion_finds_the_folder_and_complains_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, folder: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("perfsweep.yaml").write_text(text)
    assert home.conf_folder() == (None if folder is None else Path(folder))
