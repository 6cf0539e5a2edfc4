"""The folder that is measured in: what its perfsweep.yaml adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.config import home
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
