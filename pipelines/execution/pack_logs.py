"""Why a pack broke off, as its log and the batch scripts that were to start it tell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfsweep.pipelines.execution import shared_job
from perfsweep.pipelines.execution.submitted import remote_executors
from perfsweep.pipelines.store.records import SweepFolder


def why(folder: SweepFolder, pack: str, notes: Mapping[str, str]) -> str:
    """Tell why a pack broke off: a note, the end of its log, and of what its batch script printed."""
    return "\n".join(filter(None, [notes.get(pack), *_last_lines(folder, pack)]))


def log_files(folder: SweepFolder, pack: str) -> list[Path]:
    """List what a pack and, on a cluster, the batch scripts that were to start it have printed."""
    outputs = [job for _, cls in remote_executors() for job in cls.outputs(folder.path).items()]
    scripts = [path for job, paths in outputs if pack in (job, *shared_job.packs_of(job)) for path in paths]
    return [*scripts, folder.pack_dir(pack) / "log.txt"]


def _last_lines(folder: SweepFolder, pack: str, lines: int = 8) -> Iterator[str]:
    *scripts, log = log_files(folder, pack)
    texts = {file: _text(file) for file in (log, *scripts[-1:])}
    if texts[log] is None:
        yield "the pack never began to write its log"
    elif not texts[log]:
        full = not os.statvfs(folder.path).f_bavail
        yield "its disk is full" if full else "the log is empty: it was killed, or the disk is full"
    for file, text in texts.items():
        if text:
            yield f"the end of {file}:"
            yield "\n".join(text.splitlines()[-lines:])


def _text(file: Path) -> str | None:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return None
