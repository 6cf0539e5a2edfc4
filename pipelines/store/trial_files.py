"""The files of one trial: specification, record, series of iterations, and where its results go.

Their names are in `perfsweep.pipelines.store.records`, whose reader validates what a trial has written.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from perfsweep.pipelines.locks import folder_to_read_in
from perfsweep.pipelines.store.files import (
    json_object,
    read_arrays,
    read_json,
    replaced,
    write_arrays,
    write_atomically,
    write_once,
)
from perfsweep.pipelines.store.trial_schema import SCHEMA, STRICT, Failure, Outcome, TrialRecord, TrialSpec
from perfsweep.pipelines.store.typed_json import Misfit, build, plain
from perfsweep.workloads.api import Evidence
from perfsweep.workloads.errors import ConfigError, RecordError

_NUMBERS, _PARTS = "numbers", "parts"  # evidence.npz keeps these as JSON texts under these names


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """How one of several ranks ended, and when, in seconds since the epoch."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    schema_version: int = SCHEMA
    time: float
    outcome: Outcome
    failure: Failure


def write_record(folder: Path, record: TrialRecord) -> bool:
    """Publish a trial's record; False when another writer was first, whose record stays."""
    return write_once(folder / "record.json", json_object(plain(record)))


def write_rank_failure(folder: Path, rank: int, outcome: Outcome, failure: Failure) -> None:
    """Note why one of several ranks ended; the pack records none of the ends that follow from it."""
    found = RankFailure(time=time.time(), outcome=outcome, failure=failure)
    write_once(folder / f"rank{rank}.json", json_object(plain(found)))


def write_spec(folder: Path, spec: TrialSpec) -> Path:
    """Create a trial's folder with its specification; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "spec.json", json_object(plain(spec)))
    return folder / "spec.json"


def read_spec(file: Path) -> TrialSpec:
    """Read the specification of a trial.

    Raises
    ------
    RecordError
        The file is missing, corrupt or of another schema version.
    """
    values = of_this_schema(file)
    if values is None:
        raise RecordError(f"{file} does not exist; a trial is started with the path of its spec.json")
    try:
        return build(TrialSpec, values)
    except Misfit as error:
        raise RecordError(f"{file} does not fit the schema: {error}") from error


def write_status(folder: Path, stage: str) -> None:
    """Note what a trial is doing: setting up, warming up, timing, saving."""
    write_atomically(
        folder / "status.json", json.dumps({"stage": stage, "pid": os.getpid()}).encode(), sync=False
    )


def _status(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / "status.json").read_text())[name]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def read_status(folder: Path) -> str | None:
    """Read what a trial was last doing."""
    return _status(folder, "stage")


def read_pid(folder: Path) -> int | None:
    """Read which process ran a trial last, as far as that is known."""
    pid = _status(folder, "pid")
    return pid if isinstance(pid, int) else None


def shed(folder: Path, record: TrialRecord) -> None:
    """Remove what nothing asks for any more once a trial has ended well: file systems count files too.

    These are its specification, what it was doing, and empty logs. Folder, record and arrays stay.
    """
    if record.outcome is not Outcome.OK:
        return
    empty = (log for log in folder.glob("log*.txt") if not size_of(log))
    for file in (folder / "spec.json", folder / "status.json", *empty):
        file.unlink(missing_ok=True)


def write_iterations(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the series of a timing trial, int64 [N] each unless said otherwise.

    ``start_ns``, ``wall_ns``, ``device_ns`` (accelerators only), ``host_<phase>`` and
    ``device_<phase>`` in ns, ``log_<key>`` float64, ``warmup_wall_ns`` [W], ``epoch_ns`` [1]: wall clock at
    start_ns[0].
    """
    write_arrays(folder / "iterations.npz", arrays)


def read_iterations(folder: Path) -> dict[str, np.ndarray]:
    """Read what `write_iterations` wrote.

    Raises
    ------
    RecordError
        The file is missing or corrupt.
    """
    return read_arrays(folder / "iterations.npz")


def replay_dir(folder: Path) -> Path:
    """Where an evidence trial of the baseline keeps the states that other arms replay."""
    return folder / "replay"


def write_evidence(folder: Path, evidence: Evidence) -> None:
    """Write evidence as arrays, with the named numbers as one JSON text among them."""
    arrays = {name: np.asarray(tensor) for name, tensor in evidence.tensors.items()}
    numbers = json.dumps({name: float(value) for name, value in evidence.numbers.items()})
    for name, text in ((_NUMBERS, numbers), (_PARTS, json.dumps(evidence.parts))):
        arrays[f"__{name}__"] = np.frombuffer(text.encode(), dtype=np.uint8)
    write_arrays(folder / "evidence.npz", arrays)


def read_evidence(folder: Path) -> Evidence:
    """Read what `write_evidence` wrote.

    Raises
    ------
    RecordError
        The file is missing or corrupt.
    """
    arrays = read_arrays(folder / "evidence.npz")
    try:
        numbers, parts = (json.loads(arrays.pop(f"__{name}__").tobytes()) for name in (_NUMBERS, _PARTS))
    except (KeyError, ValueError) as error:
        raise RecordError(f"{folder / 'evidence.npz'} holds no evidence of ours: {error}") from error
    return Evidence(arrays, numbers, parts)


_ARRAYS = ("iterations.npz", "evidence.npz")


def sizes_of_arrays(folder: Path) -> dict[str, int]:
    """Bytes of the arrays that a trial has written."""
    return {name: size for name in _ARRAYS if (size := size_of(folder / name)) is not None}


def size_of(file: Path) -> int | None:
    """Bytes of a file; None where there is none."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def of_this_schema(file: Path) -> dict[str, Any] | None:
    """Read a JSON file that says which version of the schema it has; None where there is none.

    Raises
    ------
    RecordError
        It is damaged, or of another version.
    """
    values = read_json(file)
    if values is None:
        return None
    if (version := values.get("schema_version")) != SCHEMA:
        raise RecordError(f"{file} has schema version {version}, and this perfsweep reads version {SCHEMA}")
    return values


PACKED = "trials.zip"
"""What `perfsweep pack` puts the folders of trials into: their files under ARM/TRIAL/NAME, not compressed."""

_MEMBER = re.compile(r"(?!\.)[^/\\]+/(?!\.)[^/\\]+/(?!\.)[^/\\]+")


def packed_trials(sweep: Path) -> Path | None:
    """The folder, for this process, of what was packed of a sweep, as it was below `trials`; None without.

    Raises
    ------
    RecordError
        The file is damaged as a whole; of a member that is, an empty file is what its reader finds damaged.
    """
    try:
        state = (sweep / PACKED).stat()
    except FileNotFoundError:
        return None
    return _unpacked((sweep / PACKED).absolute(), state.st_mtime_ns)


@functools.cache
def _unpacked(file: Path, changed_ns: int) -> Path:
    # what is said of one of its files names it as it lies
    root = folder_to_read_in() / file.parent.name / PACKED
    with _packed(file) as packed:
        for name in packed.namelist():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                content = packed.read(name)
            except BadZipFile:
                content = b""
            (root / name).write_bytes(content)
    return root


def _packed(file: Path) -> ZipFile:
    """Open what was packed, of which nothing can fill a disk, or write elsewhere than where it is read."""
    try:
        packed, size = ZipFile(file), file.stat().st_size
    except (BadZipFile, OSError) as error:
        raise RecordError(f"{file} is damaged, and with it the trials that were packed: {error}") from error
    members = packed.infolist()
    plain = all(_MEMBER.fullmatch(one.filename) and one.compress_type == ZIP_STORED for one in members)
    if (
        not plain or sum(one.file_size for one in members) > size
    ):  # where its end is lost, one of a series' is seen
        raise RecordError(f"{file} is damaged, or no `perfsweep pack` has written it")
    return packed


def pack_trials(sweep: Path, trials: Iterable[Path]) -> int:
    """Put folders of trials into the one file of a sweep, then remove them; how many that were.

    The file is replaced in one step before a folder is removed: a process that is killed leaves every trial
    in the one place, in the other, or in both. Of those in both, the folder is removed the next time.

    Raises
    ------
    RecordError
        What was packed before is damaged: nothing is changed.
    """
    file, folders = sweep / PACKED, {f"{trial.parent.name}/{trial.name}": trial for trial in trials}
    before = _packed(file) if file.exists() else None
    names = before.namelist() if before else []
    fresh = sorted(folders.keys() - {name.rpartition("/")[0] for name in names})
    if fresh:
        with replaced(file) as place, ZipFile(place, "w", strict_timestamps=False) as out:
            if before:
                _copied(before, out)
            for trial in fresh:
                for member in sorted(folders[trial].iterdir()):
                    out.write(member, f"{trial}/{member.name}")
    for folder in folders.values():
        shutil.rmtree(folder)
        if not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    return len(folders)


def _copied(before: ZipFile, out: ZipFile) -> None:
    for name in before.namelist():
        try:
            out.writestr(name, before.read(name))
        except BadZipFile as error:
            raise RecordError(f"{before.filename} is damaged: {error}; nothing was packed") from error


def iteration_times(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Take the time of each iteration from a series, [N] in ns: the device's own, or without one the host's.

    Where the device's marks are not complete each iteration gets its share of the region: an arm that never
    waits for its device would otherwise show how fast it can launch.
    """
    wall, device = arrays["wall_ns"], arrays.get("device_ns")
    if device is None:
        return wall
    return device if _complete(device) else np.full(len(wall), wall.mean())


def phase_times(arrays: Mapping[str, np.ndarray], phase: str) -> tuple[str, np.ndarray]:
    """Take the times of a phase from a series, [N] in ns, and whose they are: ``device`` or ``host``."""
    device = arrays.get(f"device_{phase}")
    if device is not None and _complete(device):
        return "device", device
    return "host", arrays[f"host_{phase}"]


def _complete(device_ns: np.ndarray) -> bool:
    """Whether no time is negative, which means that an event was not available."""
    return not (device_ns < 0).any()


PARTIAL = ".partial"
"""Suffix of a folder that is still written, or whose writing was interrupted."""


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
