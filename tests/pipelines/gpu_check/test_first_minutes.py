"""The script for the first minutes on a GPU node keeps parts to limits, and names what ended badly."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

DAY = Path(__file__).parents[2] / "gpu_day"


def test_one_call_runs_both_halves_and_names_what_ended_badly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(DAY))
    import first_minutes
    from first_minutes import Part

    def right(kept: Path) -> list[list[Part]]:
        return [
            [Part("fine", ("sh", "-c", f"echo well; echo record > {kept}/record"), 60)],
            [Part("broken", ("sh", "-c", "echo why; exit 3"), 60), Part("late", ("sleep", "60"), 0.0)],
        ]

    def fast(kept: Path) -> list[list[Part]]:
        return [[Part("quick", (sys.executable, "-S", "-c", "print('0.1 s')"), 60)]]

    monkeypatch.setattr(first_minutes, "HALVES", {"right": right, "fast": fast})
    monkeypatch.setattr(first_minutes, "GRACE_S", 0.0)
    assert first_minutes.main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    for words in (
        "== fine: status 0",
        "== broken: status 3",
        "== late: ended after its limit",
        "== quick: status 0",
    ):
        assert words in said
    assert said.rstrip().endswith("ended badly: late, broken") or said.rstrip().endswith("broken, late")
    with tarfile.open(tmp_path / "kept.tar.gz") as kept:
        assert "kept/record" in kept.getnames()
    assert first_minutes.main([str(tmp_path), "fast"]) == 0
