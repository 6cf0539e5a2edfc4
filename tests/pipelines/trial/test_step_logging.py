"""Where a trial puts its metrics: into memory, or to W&B where that is the toggle under test."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_file import read_run

from perfsweep.pipelines.trial.step_logging import BufferedLog, LiveLog


def test_a_live_log_commits_every_few_rows_keeps_to_its_folder_and_ignores_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_RUN_ID", "stolen")
    monkeypatch.setenv("WANDB_RUN_GROUP", "stolen")  # no setting of ours would hide it
    log = LiveLog(50, tmp_path / "trial/scratch")
    for index in range(120):
        log({"loss": torch.tensor(index / 8), "index": index})  # what a training loop hands over
    print("a line of the workload")
    log.close()
    (path,) = tmp_path.rglob("offline-run-*")
    run = read_run(path)
    rows = [(row["index"], row["loss"]) for row in run.history]
    assert rows == [(index, index / 8) for index in (49, 99, 119)], "finishing saves the last"
    assert (log.calls, log.commits, run.group, run.project) == (120, 2, "", "perfsweep")
    assert (len(log), log.arrays()) == (0, {})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"a line of the workload" in path.read_bytes()]
    assert [path.name for path in (tmp_path / "trial").iterdir()] == ["scratch"]
    assert os.environ["WANDB_RUN_ID"] == "stolen"


ENDED_BY_FORCE = (
    "import os, sys, pathlib; from perfsweep.pipelines.trial.step_logging import LiveLog;"
    " LiveLog(1, pathlib.Path(sys.argv[1])); os._exit(0)"
)


@pytest.mark.slow
def test_a_process_that_is_ended_by_force_leaves_no_folder_of_wandb_in_tmpdir(tmp_path: Path) -> None:
    places = scratch, own = tmp_path / "scratch", tmp_path / "tmp"
    own.mkdir()
    environ = {**os.environ, "TMPDIR": str(own)}
    subprocess.run([sys.executable, "-c", ENDED_BY_FORCE, str(scratch)], env=environ, check=True)
    assert [len([*place.glob("tmp*wandb-*")]) for place in places] == [2, 0]


def test_a_buffered_log_gives_one_array_for_each_key_with_gaps_marked() -> None:
    log = BufferedLog()
    row = {"loss": torch.tensor(2.0, requires_grad=True), "lr": 0.1}
    log(row)
    row["lr"] = 9.0  # the caller may use its mapping again
    log({"loss": torch.tensor(1.5), "accuracy": 1})
    arrays = log.arrays()
    assert list(arrays) == ["loss", "lr", "accuracy"]
    assert all(values.dtype == np.float64 for values in arrays.values())
    np.testing.assert_array_equal(arrays["loss"], [2.0, 1.5])
    np.testing.assert_array_equal(arrays["lr"], [0.1, np.nan])
    np.testing.assert_array_equal(arrays["accuracy"], [np.nan, 1.0])
    assert (log.calls, log.commits) == (0, 0)


def test_a_buffered_log_forgets_the_rows_that_came_after_so_many() -> None:
    log = BufferedLog()
    for loss in (1.0, 2.0, 3.0):
        log({"loss": loss})
    log.shorten(2)
    assert len(log) == 2
    np.testing.assert_array_equal(log.arrays()["loss"], [1.0, 2.0])
    log.shorten(5)
    assert len(log) == 2
    log.shorten(0)
    assert (len(log), log.arrays()) == (0, {})


class _Saved:
    """Something that a graph keeps."""


class _Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, saved: _Saved) -> torch.Tensor:
        ctx.saved = saved
        return value.sum()


def test_a_buffered_log_keeps_no_graph_alive() -> None:
    saved = _Saved()
    kept = weakref.ref(saved)
    log = BufferedLog()
    log({"loss": _Keeping.apply(torch.ones(4, requires_grad=True), saved)})
    del saved
    gc.collect()
    assert kept() is None
    assert log.arrays()["loss"].tolist() == [4.0]
