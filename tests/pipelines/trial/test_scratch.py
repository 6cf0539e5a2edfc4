"""Scratch folders of trials: beside the record, or on the node's own disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.trial import scratch


@pytest.mark.parametrize("local", [True, False], ids=["on the node", "beside the record"])
def test_every_rank_makes_the_same_folder_and_one_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    node, trial = tmp_path / "node", tmp_path / "arm" / "p000-r000-0"
    trial.mkdir(parents=True)
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(node) if local else "")
    for _ in range(2):
        (scratch.make(trial) / "rank0").mkdir(exist_ok=True)
    assert (trial / "scratch").resolve().is_relative_to(node if local else trial)
    scratch.remove(trial)
    assert not list(trial.iterdir()), "not even a link"
    assert not local or not list(node.iterdir())
    scratch.remove(trial)


def test_another_node_makes_its_own_behind_the_same_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = tmp_path / "arm" / "p000-r000-0"
    trial.mkdir(parents=True)
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(tmp_path / "node"))
    scratch.make(trial)
    (tmp_path / "node" / "arm-p000-r000-0").rmdir()  # as it looks from another node's disk
    assert scratch.make(trial).is_dir()
