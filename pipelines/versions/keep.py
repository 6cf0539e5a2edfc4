"""Keeps the code of versions in a sweep's folder, where its trials find it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.schema import Version
from perfsweep.pipelines.versions import tree
from perfsweep.pipelines.versions.repository import WORKTREE, Repository
from perfsweep.workloads.errors import ConfigError


def keep(code_dir: Path, version: Version, others: Iterable[Path]) -> None:
    """Write the code of a version into the sweep's folder, unless it is there or the sweep's own runs.

    Parameters
    ----------
    others : files of the workload outside of the repository

    Raises
    ------
    ConfigError
        It is not what was planned any more: files were edited meanwhile, or the commit is gone.
    """
    place = code_snapshot.sources_place(code_dir, version.sources)
    if not version.sources or place.is_dir():
        return
    found = tree.read(Repository(Path(version.repository)), version.commit or WORKTREE, others)
    if found.digest != version.sources:
        raise ConfigError(
            f"{version.name}: files of {version.repository} changed while the sweep was"
            " planned; start the same command again"
        )
    tree.export(found, place)
