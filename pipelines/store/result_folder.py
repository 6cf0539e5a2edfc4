"""A folder for what a person takes home of a trial: made empty before anything is written into it."""

from __future__ import annotations

from pathlib import Path

from perfsweep.workloads.errors import ConfigError

PARTIAL = ".partial"
"""Behind the name of a folder that is still written, or whose writing broke off."""


def create(folder: Path) -> Path:
    """Make an empty folder, or take one that is there.

    Raises
    ------
    ConfigError
        It holds something, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        full = any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"keep={folder}: {error.strerror}; name a folder that can be written") from error
    if full:
        raise ConfigError(f"keep={folder}: holds something already; name another folder, or empty this one")
    return folder
