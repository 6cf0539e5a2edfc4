"""What keeps publishers apart: a lock for each run, and a folder aside for each publisher that later ones
clear away.

Locks are the kernel's: they end with the process that holds them, however it ends.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.store.records import SweepFolder

_ASIDE = ".publishing-"
_ALIVE = "alive"


@contextmanager
def held(folder: SweepFolder, run_id: str) -> Iterator[bool]:
    """Hold the lock of one run, so that two publishers never write it at once; False where another one has
    it."""
    place = folder.wandb_dir / ".locks"
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / run_id) as ours:
        yield ours


@contextmanager
def staging(place: Path) -> Iterator[Path]:
    """A folder below `place` for a publisher's own files; folders of publishers that were killed go first."""
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(f"{_ASIDE}*"):
        _clear(left)
    with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=place, ignore_cleanup_errors=True) as aside:
        taken = Path(aside) / f"{_ALIVE}.tmp"
        with _locked(taken):
            taken.replace(taken.with_suffix(""))  # nobody sees the name before the lock is held
            yield Path(aside)


def _clear(left: Path) -> None:
    if (left / _ALIVE).exists():
        with _locked(left / _ALIVE) as dead:
            if dead:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
