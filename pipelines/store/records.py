"""File names of a sweep, and reading and writing what they hold: no other package knows them.

::

    runs/<sweep>/
      sweep.yaml            resolved configuration, versions, git commit
      manifest.jsonl        arms, effects, packs: written before anything starts
      submissions.jsonl     what was handed to an executor, and when
      submissions/          batch scripts, Slurm's output, what array elements say about themselves
      code/<digest>         snapshots of our packages, which the trials import: links to runs/.code/<digest>
      packs/<pack>/         log.txt, events.jsonl, idle.json, attempts/
      trials/<arm>/<pack>-<round>-<attempt>/   record.json iterations.npz evidence.npz replay/, and log.txt,
                            spec.json, status.json until the trial has ended well
      trials.zip            the same folders of trials that ended well, once `perfsweep pack` has packed them
      tables/               Parquet, written by collect and compare
      report.html, .md      the answer: a page that opens without a network, and the same as text
      wandb/                offline runs
      profiles/             where the time of single arms goes: see `perfsweep.pipelines.store.profiles`

Everything but trials can be rebuilt. Writes go to a temporary name, are synced, and take their final name in
one step; of two writers of a result the first wins.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from perfsweep.checksums import append_line, json_line
from perfsweep.pipelines.locks import folder_to_read_in, remove_read
from perfsweep.pipelines.store.files import json_object, parsed, plain_file, read_json_lines, write_atomically
from perfsweep.pipelines.store.schema import (
    IDEAL_LOADER,
    PLACEBO,
    Effect,
    Environment,
    Event,
    Manifest,
    Pack,
    Refused,
    StoredValue,
    Sweep,
    Version,
)
from perfsweep.pipelines.store.trial_files import (
    RankFailure,
    of_this_schema,
    pack_trials,
    packed_trials,
    read_evidence,
    read_iterations,
    read_pid,
    read_spec,
    read_status,
    replay_dir,
    shed,
    size_of,
    sizes_of_arrays,
    write_evidence,
    write_iterations,
    write_rank_failure,
    write_record,
    write_spec,
    write_status,
)
from perfsweep.pipelines.store.trial_schema import (
    REPEAT,
    SCHEMA,
    Arm,
    Failure,
    Keep,
    Kind,
    Outcome,
    RankFigures,
    TrialRecord,
    TrialSpec,
)
from perfsweep.workloads.errors import ConfigError, RecordError

__all__ = [
    "IDEAL_LOADER",
    "PLACEBO",
    "SCHEMA",
    "AnyRow",
    "Arm",
    "Effect",
    "Environment",
    "Event",
    "Failure",
    "Keep",
    "Kind",
    "Manifest",
    "Outcome",
    "Pack",
    "RankFigures",
    "Refused",
    "StoredValue",
    "Sweep",
    "SweepFolder",
    "TrialRecord",
    "TrialSpec",
    "Version",
    "read_evidence",
    "read_iterations",
    "read_pid",
    "read_rank_failures",
    "read_record",
    "read_row",
    "read_spec",
    "read_status",
    "replay_dir",
    "row_json",
    "shed",
    "sizes_of_arrays",
    "write_evidence",
    "write_iterations",
    "write_rank_failure",
    "write_record",
    "write_spec",
    "write_status",
]

AnyRow = TypeVar("AnyRow")

_TRIAL_NAME = re.compile(
    r"^(?P<pack>p\d+)-(?P<round>r\d+|evidence(?:\d*|again)|(?:course|quality)\d*|counting|result|profile)-a(?P<attempt>\d+)$"
)


_MANIFEST_LINES: dict[str, tuple[str, type[Any]]] = {
    "arm": ("arms", Arm),
    "effect": ("effects", Effect),
    "pack": ("packs", Pack),
    "refused": ("refused", Refused),
}
"""Kinds of lines in a manifest after the one of the sweep, with the fields that they are of."""


class SweepFolder:
    """The folder of one sweep; `output` is where tables and reports go, `kept` whether they stay there."""

    def __init__(self, path: Path | str, output: Path | str | None = None, *, kept: bool = True) -> None:
        # `.` and `..` have no name, after which what belongs to a sweep is called, and no folder around them.
        self.path = Path(path) if Path(path).name not in ("", "..") else Path(path).resolve()
        self.output, self.kept = self.path if output is None else Path(output), kept
        self.manifest_file = self.path / "manifest.jsonl"
        self.config_file = self.path / "sweep.yaml"
        self.submissions_file = self.path / "submissions.jsonl"
        self.code_dir = self.path / "code"
        self.shared_code_dir = self.path.parent / ".code"
        self.cache_dir = self.path / "cache"
        self.tables_dir = self.output / "tables"
        self.report_file = self.output / "report.html"
        self.markdown_file = self.output / "report.md"
        self.wandb_dir = self.path / "wandb"
        self.profiles_dir = self.path / "profiles"

    def pack_dir(self, pack: str) -> Path:
        """Name the folder of a pack's logs and events."""
        return self.path / "packs" / pack

    def trial_dir(self, spec: TrialSpec) -> Path:
        """Name the folder of one trial."""
        draw = "again" if spec.replicate == REPEAT else spec.replicate or ""
        stage = f"{spec.kind.value}{draw}" if spec.round is None else f"r{spec.round:03d}"
        return self.path / "trials" / spec.arm.id / f"{spec.pack}-{stage}-a{spec.attempt}"

    def trial_dirs(self, arm: str) -> Iterator[tuple[Path, str, str, int]]:
        """List all trial folders of an arm with their (pack, stage, attempt): first what was packed counts.

        Raises
        ------
        RecordError
            What was packed is damaged.
        """
        packed = packed_trials(self.path)
        roots = [self.path / "trials" / arm, *([packed / arm] if packed else [])]
        found = {path.name: path for root in roots if root.is_dir() for path in root.iterdir()}
        for _, path in sorted(found.items()):
            if match := _TRIAL_NAME.match(path.name):
                yield path, match["pack"], match["round"], int(match["attempt"])

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the plan: one line for the sweep, then one for each arm, effect, pack and refusal."""
        rows: list[tuple[str, Any]] = [("sweep", manifest.sweep)]
        for kind, (name, _) in _MANIFEST_LINES.items():
            rows += [(kind, row) for row in getattr(manifest, name)]
        values = [{"row": kind, **_as_json(row)} for kind, row in rows]
        values[0]["lines"] = len(values)  # whole lines that were cut off would make another plan
        write_atomically(self.manifest_file, b"".join(map(json_line, values)))

    def read_manifest(self) -> Manifest:
        """Read the plan.

        Raises
        ------
        RecordError
            There is none, a line of it does not fit the schema, or lines are missing.
        """
        lines = self._manifest_lines()
        if len(lines["sweep"]) != 1:
            raise RecordError(f"{self.manifest_file} does not describe one sweep")
        if (version := lines["sweep"][0].schema_version) != SCHEMA:
            other = f"{self.manifest_file} has schema version {version}"
            raise RecordError(f"{other}, and this perfsweep reads version {SCHEMA}")
        rows = {name: tuple(lines[kind]) for kind, (name, _) in _MANIFEST_LINES.items()}
        return Manifest(sweep=lines["sweep"][0], **rows)

    def _manifest_lines(self) -> dict[str, list[Any]]:
        """Read the lines of the plan by their kind."""
        types = {"sweep": Sweep, **{kind: row for kind, (_, row) in _MANIFEST_LINES.items()}}
        lines: dict[str, list[Any]] = {kind: [] for kind in types}
        number, written = 0, None
        for number, values in read_json_lines(self.manifest_file):
            kind, where = values.pop("row", None), f"{self.manifest_file} line {number}"
            if kind not in lines:
                raise RecordError(f"{where} is no line of a manifest")
            written = values.pop("lines", written)
            lines[kind].append(_validated(types[kind], values, where))
        if written not in (None, number):  # plans of before say no number
            raise RecordError(f"{self.manifest_file} has {number} of {written} lines")
        return lines

    def append_event(self, pack: str, event: Event) -> None:
        """Add a line to a pack's progress."""
        append_line(self.events_file(pack), event.model_dump(mode="json"))

    def events_file(self, pack: str) -> Path:
        """Name the file in which a pack notes each trial as it ends."""
        return self.pack_dir(pack) / "events.jsonl"

    def read_events(self, pack: str, start: int = 0) -> tuple[list[Event], int]:
        """Read a pack's events from a byte of its file on; those, and where the next ones begin.

        A line still being written is left for the next time. Events only tell how far a pack is: one that
        cannot be read is passed over, and nothing is lost by it.
        """
        try:
            with plain_file(self.events_file(pack)) as file:
                file.seek(start)
                content = file.read()
        except FileNotFoundError:
            return [], start
        whole = content[: content.rfind(b"\n") + 1]
        return [event for line in whole.splitlines() if (event := _event(line))], start + len(whole)


def _event(line: bytes) -> Event | None:
    try:
        return _validated(Event, parsed(line, "an event"), "an event")
    except RecordError:
        return None


def read_record(folder: Path) -> TrialRecord | None:
    """Read a trial's record; None while it has none.

    Raises
    ------
    RecordError
        The file is corrupt or of another schema version, or arrays that belong to it were cut off.
    """
    record = read_row(TrialRecord, folder / "record.json")
    for name, size in record.files.items() if record else ():
        now = size_of(folder / name)
        if now not in (size, None):  # one that the user has deleted is missed by what needs it
            raise RecordError(f"{folder / name} has {now} bytes, and its trial wrote {size}: it is damaged")
    return record


def pack_finished(folder: SweepFolder) -> int:
    """Put all trials that ended well into one file; how many that were.

    Failed ones stay, as people read their logs, and so do states that trials of other arms replay.

    Raises
    ------
    RecordError
        What was packed before is damaged.
    """
    packed = packed_trials(folder.path)
    return pack_trials(
        folder.path,
        [
            trial
            for trial in folder.path.glob("trials/*/*")
            if _TRIAL_NAME.match(trial.name)
            and ((packed and (packed / trial.parent.name / trial.name).is_dir()) or _ended_well(trial))
        ],
    )


def _ended_well(trial: Path) -> bool:
    """Whether nothing of a trial is to come, or damaged: the commands that read it name what is."""
    try:
        record = read_record(trial)
    except RecordError:
        return False
    ok = record is not None and record.outcome is Outcome.OK
    return ok and all(file.is_file() and not file.name.startswith(".") for file in trial.iterdir())


def read_rank_failures(folder: Path) -> list[tuple[Outcome, Failure]]:
    """Read why ranks ended, the first one first."""
    found = [read_row(RankFailure, file) for file in sorted(folder.glob("rank*.json"))]
    ordered = sorted((one for one in found if one), key=lambda one: one.time)
    return [(one.outcome, one.failure) for one in ordered]


def row_json(row: StoredValue) -> bytes:
    """Write a row as a file of its own, with its checksum."""
    return json_object(json.loads(row.model_dump_json()))  # which writes what is no number as null


def read_row(row: type[AnyRow], file: Path) -> AnyRow | None:
    """Read the row of a file of its own; None where there is no file.

    Raises
    ------
    RecordError
        The file is damaged, of another schema version, or does not fit the schema.
    """
    values = of_this_schema(file)
    return None if values is None else _validated(row, values, str(file))


def _as_json(row: Any) -> dict[str, Any]:
    return _adapter(type(row)).dump_python(row, mode="json")


@cache
def _adapter(row: type[AnyRow]) -> TypeAdapter[AnyRow]:
    return TypeAdapter(row)


def _validated(row: type[AnyRow], values: dict[str, Any], where: str) -> AnyRow:
    try:
        return _adapter(row).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise RecordError(f"{where} does not fit the schema: {field}: {first['msg']}") from error


ROOM_BYTES = 2**22
"""Free space that tables and reports may need; on a fuller disk a sweep is read all the same."""


def readable(folder: SweepFolder) -> SweepFolder:
    """The folder, with tables and reports in one that goes with this process if they cannot be written."""
    remove_read()
    places = (folder.path, *(one for one in (folder.tables_dir, folder.report_file) if one.exists()))
    disk = os.statvfs(folder.path)
    if disk.f_bavail * disk.f_frsize >= ROOM_BYTES and all(os.access(place, os.W_OK) for place in places):
        return folder
    return SweepFolder(folder.path, folder_to_read_in(), kept=False)


def opened(path: str, output: Path | str | None = None) -> tuple[SweepFolder, Manifest]:
    """Open the sweep in a folder, with tables and reports in `output` or, by default, where they can be.

    Raises
    ------
    ConfigError
        There is none.
    RecordError
        Its plan is damaged.
    """
    folder = SweepFolder(path)
    if not folder.manifest_file.exists():
        raise ConfigError(f"{path} is no folder of a sweep: it has no manifest.jsonl; sweeps lie under runs/")
    try:
        manifest = folder.read_manifest()
    except RecordError as error:
        raise RecordError(f"{error}; start the sweep again, which writes its plan again") from error
    return (readable(folder) if output is None else SweepFolder(path, output)), manifest
