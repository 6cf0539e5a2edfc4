"""Rows a sweep has produced, by its files alone, and rows a backend holds before and after `publish`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from loopback import Loopback
from recorded import Built, publish_here

from perfsweep.pipelines.publish.publishing import publish
from perfsweep.pipelines.store.records import SweepFolder


def produced(folder: SweepFolder) -> int:
    """Rows of the rounds that both arms finished, counted from the files alone."""
    rows: dict[tuple[str, str], list[int]] = {}
    for file in folder.path.glob("trials/*/p000-r*/iterations.npz"):
        if (file.parent / "record.json").exists():
            _, stage, attempt = file.parent.name.split("-")
            with np.load(file) as arrays:
                rows.setdefault((stage, attempt), []).append(
                    len(arrays["wall_ns"]) + len(arrays["warmup_wall_ns"])
                )
    latest: dict[str, tuple[str, int]] = {}
    for (stage, attempt), counts in rows.items():
        if len(counts) == 2:
            latest[stage] = max(latest.get(stage, ("", 0)), (attempt, sum(counts)))
    return sum(count for _, count in latest.values())


class Rows(NamedTuple):
    """Rows trials produced, rows a backend held before and after publishing, runs that a rerun changed."""

    produced: int
    before: int
    after: int
    again: int

    @property
    def complete(self) -> bool:
        """Whether every row arrived, each once."""
        return 0 < self.produced == self.after and self.again == 0


def concluded(folder: SweepFolder, backend: Loopback) -> Rows:
    """Publish twice, and count."""
    before = backend.rows()
    done = publish(folder)
    assert done.complete, done
    after = backend.rows()
    again = publish_here(Built(folder, folder.read_manifest()), server=backend.url)
    return Rows(produced(folder), before, after, again.new)
