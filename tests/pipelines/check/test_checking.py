"""`perfsweep check` on real trials: planted defects are told in plain words, and sound workloads pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from typed import ended

from perfsweep.pipelines.check.rules import Defect
from perfsweep.testing import NotConformant, check_workload

pytestmark = pytest.mark.slow

SOUND = ["Job", "Quiet", "Counted"]
DEFECTS = [
    ("Unseeded", Defect.NOT_REPEATABLE, "already after one iteration, so look at setup()"),
    ("NoEvidence", Defect.NO_EVIDENCE, "no evidence to compare for losses; evidence() returns x, sums"),
    ("Wrong", Defect.RESULTS_CHANGE, "halves=on"),
    ("Cached", Defect.STATE_LEAKS, "what the first left in context.cache_dir"),
]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_workload_keeps_its_contract(name: str) -> None:
    found = check_workload(f"toys.defective:{name}")
    assert found.levels and not found.left_out


def test_what_was_looked_at_is_said_of_a_sound_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("check", "toys.defective:Sound") == 0
    assert "no defects" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "defect", "words"), DEFECTS, ids=[case[0] for case in DEFECTS])
def test_a_planted_defect_is_named_and_no_other(name: str, defect: Defect, words: str) -> None:
    with pytest.raises(NotConformant) as broken:
        check_workload(f"toys.defective:{name}")
    said = str(broken.value)
    assert words in said
    assert [other.value for other in Defect if f"{other.value}: " in said] == [defect.value], said


def test_levels_alone_are_judged_where_the_baseline_is_left_out() -> None:
    found = check_workload("toys.defective:Reads", levels={"halves": ["on"]}, baseline=False)
    assert found.levels == ("halves=on",)
    with pytest.raises(NotConformant, match="halves=on"):
        check_workload("toys.defective:Wrong", levels={"halves": ["on"]}, baseline=False)


def test_the_template_of_new_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended("new", "fresh_start")
    status = ended("check", "fresh_start:FreshStart", "--toggles", "prepare")  # others are not the template's
    assert status == 0, capsys.readouterr().out
