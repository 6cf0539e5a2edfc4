"""Rows put into a run's file by us, against those of W&B's client, and with other versions of wandb."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leet import inspected
from loopback import Loopback
from recorded import NAIVE, Built, build, publish_here, timed_rows
from run_file import read_run

from perfsweep.pipelines.config.tracking import SETTINGS, own_environment, settings, settings_of
from perfsweep.pipelines.publish import run_folders
from perfsweep.pipelines.publish.history_rows import HistoryRow
from perfsweep.pipelines.publish.wandb_file import UnknownFraming, framed, insert_rows, payloads, read_records
from perfsweep.workloads.errors import RecordError

BEGAN = 1_700_000_000.25
ROWS: list[dict[str, float]] = [
    {"warmup/index": 0, "warmup/ms": 12345678901234567, "_timestamp": BEGAN},
    {"iter/index": 0, "iter/ms": 0.1 + 0.2, "iter/loss@0.5": -1e-320, "_timestamp": BEGAN + 1.5},
    {"iter/index": 1, "iter/ms": math.inf, "_timestamp": BEGAN + 2.0},
    {"log/index": 0, "log/rate": 7.0},
]


def written(root: Path, run_id: str, rows: Iterable[dict[str, Any]], said: dict[str, Any]) -> Path:
    """The file of a run that W&B's client writes with these rows."""
    with own_environment(root):
        import wandb

        run = wandb.init(
            settings=wandb.Settings(**settings(root, run_id=run_id, project="p", run_group="g")),
            config={"seed": 3},
        )
        for kind in ("iter", "warmup", "log"):
            run.define_metric(f"{kind}/*", step_metric=f"{kind}/index")
        for row in rows:
            run.log(row)
        run.summary.update(said)
        run.finish(exit_code=3)
        wandb.teardown()
    return Path(run.dir).parent / f"run-{run_id}.wandb"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same run twice: by the client alone, and with rows from us."""
    said = {"outcome": "ok", "iter/ms": 5.0}
    theirs = written(tmp_path_factory.mktemp("theirs"), "r1", ROWS, said)
    ours = written(tmp_path_factory.mktemp("ours"), "r1", [], said)
    shutil.copy(ours, ours.with_name("bare"))
    insert_rows(ours, ROWS)
    return theirs, ours


def without_times(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in ("_timestamp", "_runtime")} for row in rows
    ]


def test_a_run_reads_as_if_the_client_had_written_its_rows(both: tuple[Path, Path]) -> None:
    theirs, ours = map(read_run, both)
    assert without_times(ours.history) == without_times(theirs.history)
    assert without_times([ours.summary]) == without_times([theirs.summary])
    assert ours.summary["iter/ms"] == 5.0  # what the run says at its end holds, not its last row
    same = ("run_id", "project", "group", "config", "step_metrics", "exit_code", "complete")
    assert [getattr(ours, name) for name in same] == [getattr(theirs, name) for name in same]


def test_wandbs_own_inspection_reads_the_rows(both: tuple[Path, Path], tmp_path: Path) -> None:
    lines = inspected(both[1], tmp_path)
    history = [line["history"]["item"] for line in lines if line["type"] == "history"]
    assert [row.get("iter/index") for row in history] == [row.get("iter/index") for row in ROWS]
    assert history[1]["iter/ms"] == ROWS[1]["iter/ms"]
    assert [line["exit"]["exit_code"] for line in lines if line["type"] == "exit"] == [3]


def test_rows_that_cannot_be_made_leave_the_file_as_it_was(both: tuple[Path, Path], tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, float]]:
        yield ROWS[0]
        raise RecordError("round 1 is damaged")

    file = tmp_path / "run-r1.wandb"
    file.write_bytes(both[0].read_bytes())
    with pytest.raises(RecordError, match="round 1"):
        insert_rows(file, broken())
    assert file.read_bytes() == both[0].read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_files_of_artifacts_move_and_what_is_not_understood_stays(tmp_path: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    header, artifact = Record(), Record()
    header.header.version_info.producer = "1"
    for place in ("staging/a.npz", ""):
        artifact.artifact.manifest.contents.add(path="a.npz", local_path=place)
    strange = b"\xff\xff\xff"
    file = tmp_path / "run-r5.wandb"
    file.write_bytes(framed([header.SerializeToString(), artifact.SerializeToString(), strange]))
    insert_rows(file, [], moved=lambda path: path.replace("staging", "kept"))
    found = list(payloads(file.read_bytes()))
    assert [one.local_path for one in Record.FromString(found[1]).artifact.manifest.contents] == [
        "kept/a.npz",
        "",
    ]
    assert found[-1] == strange
    assert [record.num for record in read_records(file)] == [1, 2], "what cannot be read ends the reading"


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oldest wandb that pyproject.toml admits, in a folder of its own."""
    bound = re.search(r'"wandb>=([\d.]+),<', (ROOT / "pyproject.toml").read_text())
    assert bound is not None
    folder = tmp_path_factory.mktemp("oldest")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={folder}"]
    done = subprocess.run([*pip, f"wandb=={bound[1]}.0"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"wandb {bound[1]} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder


@pytest.mark.slow
def test_the_oldest_writes_uploads_and_syncs_every_row(
    oldest: Path, tmp_path: Path, backend: Loopback
) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(oldest), str(ROOT / "src")])}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    synced, sent = build(tmp_path / "synced"), build(tmp_path / "sent", mode="online")
    (sent.folder.wandb_dir / "sweep.id").write_text("07e400")
    assert "51 of 51 rows" in run("perfsweep.pipelines.cli", "publish", "--offline", str(synced.folder.path))
    run("wandb", "sync", *map(str, sorted(synced.folder.wandb_dir.glob("offline-run-*"))))
    assert backend.rows() == synced.produced
    assert "0 of them new or changed" in run("perfsweep.pipelines.cli", "publish", str(synced.folder.path))
    assert "51 of 51 rows on the server" in run("perfsweep.pipelines.cli", "publish", str(sent.folder.path))
    assert {artifact.state for artifact in backend.store.artifacts.values()} == {"COMMITTED"}


def test_settings_that_a_wandb_does_not_know_are_left_out_and_named(tmp_path: Path) -> None:
    import wandb

    with own_environment(tmp_path):
        made, remark = settings_of(wandb, settings(tmp_path, x_unheard_of=1))
        assert {name: getattr(made, name) for name in SETTINGS} == SETTINGS
        assert remark == f"wandb {wandb.__version__} knows no setting x_unheard_of: left out"
        assert settings_of(wandb, settings(tmp_path))[1] == ""


def test_where_files_are_framed_otherwise_the_client_writes_the_rows(
    sweep: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Path, rows: Iterable[HistoryRow], moved: Callable[[str], str]) -> None:
        raise UnknownFraming(f"{file.name} holds bytes that perfsweep does not understand")

    monkeypatch.setattr(run_folders, "insert_rows", refuse)
    done = publish_here(sweep)
    assert [run.complete for run in done.runs] == [True, True]
    assert all("rows are written by W&B's own client" in run.remark for run in done.runs)
    assert [row["iter/index"] for row in timed_rows(sweep.run_file(NAIVE))] == list(range(21))


def test_records_that_are_not_understood_stay_and_bytes_that_would_be_lost_refuse_the_file(
    published: Built, tmp_path: Path
) -> None:
    data = next(published.run_folder(NAIVE).glob("*.wandb")).read_bytes()
    foreign, unknown_field = b"\xff\xff\xff", b"\xfa\x3f\x02hi"  # no protobuf; field 1023 of a later wandb
    records = [*payloads(data)]
    records = [records[0], foreign, records[1] + unknown_field, *records[2:]]
    file = tmp_path / "run-x.wandb"
    file.write_bytes(framed(records))
    insert_rows(file, [{"iter/index": 0.0}])
    kept = list(payloads(file.read_bytes()))
    assert kept[1] == foreign
    assert b"hi" in kept[2]
    assert len(kept) == len(records) + 2
    file.write_bytes(framed(records) + b"a later end")
    with pytest.raises(UnknownFraming, match=r"run-x\.wandb holds bytes that perfsweep does not understand"):
        insert_rows(file, [])
