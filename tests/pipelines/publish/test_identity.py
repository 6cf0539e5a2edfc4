"""What tells a sweep from its namesakes in W&B outlives damage to the file that it stands in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfsweep.pipelines.publish.runs import identity
from perfsweep.pipelines.store.records import SweepFolder


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder(tmp_path)


def test_it_is_drawn_once(folder: SweepFolder) -> None:
    first = identity(folder)
    assert re.fullmatch(r"[0-9a-f]{6}", first)
    assert identity(folder) == first


@pytest.mark.parametrize("damage", ["", "5ee", "5eed00\n5eed00\n5eed", "\0\0\0"])
def test_of_a_damaged_file_it_is_that_of_what_was_published(folder: SweepFolder, damage: str) -> None:
    (folder.wandb_dir / ".locks").mkdir(parents=True)
    (folder.wandb_dir / ".locks" / "5eed00-0123456789abcdef-p000").touch()
    (folder.wandb_dir / "sweep.id").write_text(damage)
    assert identity(folder) == "5eed00"
    assert (folder.wandb_dir / "sweep.id").read_text() == "5eed00"


def test_of_a_damaged_file_before_anything_was_published_it_is_drawn_anew(folder: SweepFolder) -> None:
    folder.wandb_dir.mkdir()
    (folder.wandb_dir / "sweep.id").write_text("5ee")
    drawn = identity(folder)
    assert re.fullmatch(r"[0-9a-f]{6}", drawn)
    assert identity(folder) == drawn
