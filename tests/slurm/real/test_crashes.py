"""A workload that raises on a node is told at the desk, with its line; the log has the traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import Bench

pytestmark = pytest.mark.slow


def test_what_the_users_code_raised_on_a_node_is_on_the_terminal_and_in_the_log(bench: Bench) -> None:
    words = [word for word in bench.sweep() if not word.startswith(("workload", "axes", "sweep=", "toggles"))]
    done = bench.perfsweep(*words, "workload=toys.defective:Raises", "sweep=ablation", "measure.rounds=3")
    assert done.returncode == 1, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "baseline: failed: ValueError: the toy was told to break" in said
    assert "defective.py:" in said.replace(" ", "")
    logs = [file.read_text() for file in Path(bench.folder).glob("runs/*/trials/*/*/log.txt")]
    assert any("Traceback (most recent call last)" in text and "told to break" in text for text in logs)
