"""Files of a sweep: nothing half written is ever read, and of two writers the first wins."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planned_sweeps import spec

from perfsweep import checksums
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store import files, records
from perfsweep.pipelines.store.records import REPEAT, Event, Kind, Outcome, SweepFolder, TrialRecord, opened
from perfsweep.pipelines.store.schema import Refused
from perfsweep.workloads.api import Device, Evidence
from perfsweep.workloads.errors import RecordError


@pytest.fixture
def record() -> TrialRecord:
    return TrialRecord(
        arm="a" * 16,
        kind=Kind.TIMING,
        pack="p000",
        round=1,
        attempt=0,
        outcome=Outcome.OK,
        units=4.0,
        region_ns=100,
    )


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path, command) -> None:
    folder, manifest = SweepFolder(tmp_path), plan.make_plan(command(DesignConfig("one_at_a_time")), Device())
    refused = Refused(design="ladder", toggle="slab", level="8", reason="size is odd")
    manifest = manifest.model_copy(update={"refused": (refused,)})
    folder.write_manifest(manifest)
    assert folder.read_manifest() == manifest
    lines = folder.manifest_file.read_bytes().splitlines(keepends=True)
    folder.manifest_file.write_bytes(b"".join(lines[:-2]))
    missing = f"manifest.jsonl has {len(lines) - 2} of {len(lines)} lines"
    with pytest.raises(RecordError, match=missing):
        folder.read_manifest()
    with pytest.raises(RecordError, match=f"{missing}; start the sweep again, which writes its plan again"):
        opened(str(tmp_path))
    folder.manifest_file.write_bytes(b"".join(lines))
    rows = [values for _, values in files.read_json_lines(folder.manifest_file)]
    rows[0]["schema_version"] = 99
    folder.manifest_file.write_bytes(b"".join(map(checksums.json_line, rows)))
    with pytest.raises(RecordError, match=r"manifest\.jsonl has schema version 99, and this perfsweep reads"):
        folder.read_manifest()


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({"kind": Kind.TIMING, "round": 7, "attempt": 2}, "p000-r007-a2"),
        ({"attempt": 3}, "p000-evidence-a3"),
        ({"replicate": 4}, "p000-evidence4-a0"),
        ({"replicate": REPEAT}, "p000-evidenceagain-a0"),
    ],
)
def test_a_trial_has_a_folder_of_its_own(own: dict[str, Any], name: str) -> None:
    made = spec(**{"kind": Kind.EVIDENCE, **own})
    assert SweepFolder("sweep").trial_dir(made) == Path("sweep/trials") / made.arm.id / name


def test_the_first_of_two_writers_of_a_record_wins(tmp_path: Path, record: TrialRecord) -> None:
    assert records.write_record(tmp_path, record)
    assert not records.write_record(tmp_path, dataclasses.replace(record, attempt=7))
    assert records.read_record(tmp_path) == record


def test_a_record_whose_arrays_were_cut_off_is_damaged(tmp_path: Path, record: TrialRecord) -> None:
    """It would count with figures that cannot be looked at, and its rows would never be published."""
    name = "iterations.npz"
    files.write_arrays(tmp_path / name, {"wall_ns": np.arange(40)})
    size = (tmp_path / name).stat().st_size
    records.write_record(tmp_path, dataclasses.replace(record, files=records.sizes_of_arrays(tmp_path)))
    assert records.read_record(tmp_path) is not None
    os.truncate(tmp_path / name, size // 2)
    with pytest.raises(RecordError, match=rf"{name} has {size // 2} bytes, and its trial wrote {size}"):
        records.read_record(tmp_path)
    (tmp_path / name).unlink()
    assert records.read_record(tmp_path) is not None, "a person may delete what is large"


def test_a_digit_that_changed_is_damage_and_no_other_time(tmp_path: Path, record: TrialRecord) -> None:
    records.write_record(tmp_path, record)
    file = tmp_path / "record.json"
    text = file.read_text()
    digits = [at for at, letter in enumerate(text) if letter.isdigit()]
    assert len(digits) > 20
    for at in digits[::3]:
        file.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
        with pytest.raises(RecordError, match=str(file)):
            records.read_record(tmp_path)
    file.write_text(text)
    assert records.read_record(tmp_path) == record


def test_a_record_of_another_schema_version_is_named(tmp_path: Path, record: TrialRecord) -> None:
    (tmp_path / "record.json").write_bytes(
        checksums.json_line({**dataclasses.asdict(record), "schema_version": 99})
    )
    with pytest.raises(RecordError, match="schema version 99, and this perfsweep reads version 1"):
        records.read_record(tmp_path)


def test_a_record_with_a_wrong_field_names_the_field(tmp_path: Path, record: TrialRecord) -> None:
    (tmp_path / "record.json").write_bytes(
        checksums.json_line({**dataclasses.asdict(record), "outcome": "splendid"})
    )
    with pytest.raises(RecordError, match="outcome"):
        records.read_record(tmp_path)


def test_evidence_cut_off_anywhere_is_an_error_never_a_guess(tmp_path: Path) -> None:
    records.write_evidence(tmp_path, Evidence({"values": np.arange(40.0)}, {"loss": 1.0}))
    whole = (tmp_path / "evidence.npz").read_bytes()
    for length in range(0, len(whole), 61):
        (tmp_path / "evidence.npz").write_bytes(whole[:length])
        with pytest.raises(RecordError, match=r"evidence\.npz"):
            records.read_evidence(tmp_path)


@pytest.mark.parametrize(("free", "kept"), [(records.ROOM_BYTES, True), (4096, False)])
def test_a_sweep_on_a_full_disk_is_read_with_its_tables_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, kept: bool
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda place: SimpleNamespace(f_bavail=free // 4096, f_frsize=4096))
    folder = records.readable(SweepFolder(tmp_path))
    assert folder.tables_dir.is_relative_to(tmp_path) is kept


def test_damage_in_a_packs_events_spoils_no_other_line(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    assert folder.read_events("p000") == ([], 0)
    for number in range(4):
        own = {"kind": Kind.TIMING, "round": number, "outcome": Outcome.OK, "seconds": 0.1}
        folder.append_event("p000", Event(time=1.0, arm="a", **own))
    file = folder.events_file("p000")
    lines = file.read_bytes().splitlines(keepends=True)
    for spoilt in (b"\x00\xff\n", b"[]\n", b"{}\n", lines[1][:20] + b"\n", b"\n"):
        file.write_bytes(lines[0] + spoilt + lines[2] + lines[3][:-5])
        assert [one.round for one in folder.read_events("p000")[0]] == [0, 2]
