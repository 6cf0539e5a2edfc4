"""Where a trial's metrics go: to memory, or from the loop to W&B where that is the toggle under test.

Importing this module imports neither wandb nor its settings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.workloads.errors import UnsupportedHere


class BufferedLog:
    """Keeps rows of metrics in memory until after the measurement.

    Values may be tensors of one element; they are read in `arrays`, because reading one waits for its device.
    A tensor that the workload overwrites later must be cloned by the workload.
    """

    calls = commits = 0
    """Calls of W&B, and rows committed: none."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def __call__(self, row: Mapping[str, Any]) -> None:
        # An attached loss would keep its graph alive, and with it the memory that a trial measures.
        self._rows.append({key: _detached(value) for key, value in row.items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """One float64 array [rows] for each key, with NaN where a row lacks it."""
        keys = dict.fromkeys(key for row in self._rows for key in row)
        return {key: np.array([float(row.get(key, np.nan)) for row in self._rows]) for key in keys}

    def __len__(self) -> int:
        return len(self._rows)

    def shorten(self, rows: int) -> None:
        """Keep so many rows and forget later ones."""
        del self._rows[rows:]

    def close(self) -> None:
        """Nothing to close."""


class LiveLog:
    """Sends rows of metrics to W&B from inside the loop, where that is what an arm measures.

    Parameters
    ----------
    commit_every : of this many rows one is committed. W&B merges uncommitted rows, so that of those with the
        same keys the last one stays.
    scratch_dir : the offline run goes there
    """

    def __init__(self, commit_every: int, scratch_dir: Path) -> None:
        from perfsweep.pipelines.config.tracking import own_environment, settings, settings_of

        self.calls = self.commits = 0
        self._commit_every = commit_every
        scratch_dir.mkdir(parents=True, exist_ok=True)
        with own_environment(scratch_dir):
            # W&B makes folders when it is imported, and leaves them where its process is ended by force.
            # Sockets stay in TMPDIR: the way to a sweep may be too long for one.
            before, tempfile.tempdir = tempfile.tempdir, str(scratch_dir)
            try:
                import wandb
            except ModuleNotFoundError as error:
                raise UnsupportedHere("logging to W&B needs wandb, which this environment lacks") from error
            finally:
                tempfile.tempdir = before

            self._run = wandb.init(
                settings=settings_of(wandb, settings(scratch_dir, run_id="live", project="perfsweep"))[0]
            )

    def __call__(self, row: Mapping[str, Any]) -> None:
        self.calls += 1
        commit = self.calls % self._commit_every == 0
        self.commits += commit
        self._run.log(dict(row), commit=commit)

    def arrays(self) -> dict[str, np.ndarray]:
        """Nothing: rows went to W&B."""
        return {}

    def __len__(self) -> int:
        return 0

    def shorten(self, rows: int) -> None:
        """Nothing: rows went to W&B."""

    def close(self) -> None:
        """Finish the run and end W&B's background process."""
        import wandb

        self._run.finish()
        wandb.teardown()


MetricLog = BufferedLog | LiveLog
"""Takes one row of metrics per iteration."""


def _detached(value: Any) -> Any:
    return value.detach() if getattr(value, "requires_grad", False) else value
