"""Another wandb than the tested one: the oldest that is admitted does all, a later one loses nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from loopback import Loopback
from recorded import NAIVE, Built, build, publish_here, timed_rows

from perfsweep.pipelines.config.wandb_settings import SETTINGS, own_environment, settings, settings_of
from perfsweep.pipelines.publish import offline
from perfsweep.pipelines.publish.history_rows import HistoryRow
from perfsweep.pipelines.publish.wandb_file import UnknownFraming, framed, insert_rows, payloads

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
    for folder in sorted(synced.folder.wandb_dir.glob("offline-run-*")):
        run("wandb", "sync", str(folder))
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

    monkeypatch.setattr(offline, "insert_rows", refuse)
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
