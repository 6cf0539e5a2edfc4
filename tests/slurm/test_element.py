"""One start of one array element: its record, its log and its status, whatever the job does."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stand_ins import calls, program

from perfsweep.slurm import element as module
from perfsweep.slurm.client import Sighting
from perfsweep.slurm.element import (
    CANNOT_WRITE,
    CHANGED,
    REQUEUE_ME,
    STUCK,
    TRY_AGAIN,
    UNFIT,
    Element,
    digest_of,
    main,
)
from perfsweep.slurm.job_outcome import Patience, Silence, judge
from perfsweep.slurm.observation import RecordFiles
from perfsweep.slurm.states import End

DEAF = "trap '' USR2 TERM; "
WARNED = f"{DEAF}kill -USR2 $PPID; exit {TRY_AGAIN}"


@pytest.fixture(autouse=True)
def signals_put_back() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def in_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "65")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


def element(folder: Path, body: str, index: int = 1, **settings: Any) -> Element:
    """The second of two elements, whose job is this line of a shell."""
    own = {"command": ["sh", "-c", body], "env": {"OWN": "yes"}, "log": str(folder / "logs/p001.txt")}
    other = {**own, "command": ["false"]}
    values = {"jobs": [other, own], "code": str(folder / "code"), "digest": None, "heartbeat_s": 30.0}
    values |= {"requeue": True, "max_retries": 3, **settings}
    file = folder / "abc.json"
    file.write_text(json.dumps(values))
    return Element(file, index)


def record(folder: Path, what: str, restarts: int = 0) -> dict[str, Any]:
    return json.loads((folder / f"abc/1.{what}-{restarts}.json").read_text())


def test_the_job_has_an_environment_of_its_own_and_its_output_follows_that_of_earlier_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/p001.txt").write_text("before\n")
    element(tmp_path, 'echo "$OWN"; echo seen >&2; exit 3').run()
    before, head, *lines = (tmp_path / "logs/p001.txt").read_text().splitlines()
    assert before == "before" and head.startswith("--- start 2 of job 65 on ")
    assert lines == ["yes", "seen"]
    assert record(tmp_path, "end", 2)["restarts"] == 2


@pytest.mark.parametrize(("status", "end"), [(UNFIT, End.UNFIT), (3, End.FAILED)])
def test_what_a_job_lacked_is_in_its_record_and_the_note_on_it(tmp_path: Path, status: int, end: End) -> None:
    element(tmp_path, f"echo asked for 1 GPU; echo; exit {status}").run()
    own = RecordFiles(tmp_path).read("abc")[1]
    standing = judge(Sighting("7", 1, "8", "FAILED"), own, Silence(), 0.0, Patience(1.0, 1.0))
    assert (standing.end, standing.note) == (
        end,
        "it ended with status 3" if status == 3 else "asked for 1 GPU",
    )


@pytest.mark.parametrize(("status", "again"), [(0, False), (3, True)])
def test_what_an_earlier_start_finished_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, again: bool
) -> None:
    element(tmp_path, f"exit {status}").run()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert element(tmp_path, "touch again; exit 9").run() == (9 if again else 0)
    assert (tmp_path / "abc/1.end-1.json").exists() == again


@pytest.mark.parametrize(("body", "status"), [("exit 75", 75), ("kill -9 $$", 137)])
def test_a_job_whose_end_a_signal_has_noted_before_it_is_waited_for_has_its_status(
    tmp_path: Path, body: str, status: int
) -> None:
    child = subprocess.Popen(["sh", "-c", body])
    while child.poll() is None:  # as the handler does; its process is gone then
        pass
    assert element(tmp_path, "")._wait(child) == status


def test_files_that_are_damaged_or_closed_are_named_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(index: int = 1) -> str:
        assert main(tmp_path / "abc.json", index) == CANNOT_WRITE
        (line,) = capfd.readouterr().err.splitlines()
        assert line.endswith("; fix this and start the sweep again")
        return line

    element(tmp_path, "exit 0")
    (tmp_path / "logs").write_text("no folder")
    assert said().startswith(f"{tmp_path / 'logs'}: ")
    (tmp_path / "logs").unlink()
    assert main(tmp_path / "abc.json", 1) == 0, "once that is mended it runs"
    whole = (tmp_path / "abc.json").read_text()
    assert "abc.json cannot be read" in said(index=7)
    for damaged in (whole[: len(whole) // 2], "", "[]"):
        (tmp_path / "abc.json").write_text(damaged)
        assert "abc.json cannot be read" in said()


def test_of_two_live_copies_of_a_start_the_first_ones_word_stays(tmp_path: Path) -> None:
    element(tmp_path, "exit 3").run()
    assert (tmp_path / "abc/1.beat").exists()
    assert element(tmp_path, "exit 4").run() == 4
    assert record(tmp_path, "end")["status"] == 3


def test_a_warning_reaches_the_job_and_one_that_advanced_asks_for_its_own_requeue(
    tmp_path: Path, stand_in: Path
) -> None:
    assert element(tmp_path, WARNED).run() == TRY_AGAIN
    assert record(tmp_path, "end")["signals"] == ["SIGUSR2"]
    assert (stand_in / "scontrol.calls").read_text() == "requeue 65\n"


@pytest.mark.parametrize(
    ("body", "restarts", "settings"),
    [
        (WARNED, 3, {}),
        (WARNED, 0, {"requeue": False}),
        (f"{DEAF}kill -USR2 $PPID; exit {STUCK}", 0, {}),
        (f"{DEAF}kill -TERM $PPID; exit {TRY_AGAIN}", 0, {}),
        (f"{DEAF}kill -USR2 $PPID; exit 3", 0, {}),
    ],
    ids=["tried often enough", "not allowed", "no advance", "not the time limit", "failed"],
)
def test_nothing_else_is_queued_again(
    tmp_path: Path,
    stand_in: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    restarts: int,
    settings: dict[str, Any],
) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
    status = element(tmp_path, body, **settings).run()
    assert status == record(tmp_path, "end", restarts)["status"] == int(body.rpartition(" ")[2])
    assert calls(stand_in, "scontrol") == 0


def test_one_that_cannot_requeue_itself_leaves_it_to_its_batch_script_and_says_so(
    tmp_path: Path, stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(stand_in, "scontrol", "exit 1")
    assert element(tmp_path, WARNED).run() == REQUEUE_ME
    assert record(tmp_path, "end")["status"] == TRY_AGAIN
    assert "cannot requeue itself (" in capsys.readouterr().err


@pytest.mark.parametrize("status", [TRY_AGAIN, STUCK])
def test_the_signal_that_ended_a_job_may_reach_its_element_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    late = element(tmp_path, f"exit {status}")
    own = {"monotonic": time.monotonic, "time": time.time}
    own["sleep"] = lambda seconds: signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr(module, "time", SimpleNamespace(**own))
    monkeypatch.setattr(module, "HEARING_S", 600.0)
    assert late.run() == status
    assert record(tmp_path, "end")["signals"] == ["SIGTERM"]


def test_a_record_that_cannot_be_written_is_said_and_the_status_is_the_jobs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert element(tmp_path, f"rm -r {tmp_path}/abc; exit 3").run() == 3
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", f"{tmp_path}/abc/1.end-0.json: No such file or directory\n")


def test_a_signal_that_comes_before_the_job_is_there_reaches_it_all_the_same(tmp_path: Path) -> None:
    early = element(tmp_path, "exec sleep 60")
    early.signals = ["SIGUSR2", "SIGTERM"]
    assert early.run() == 128 + signal.SIGTERM
    assert record(tmp_path, "end")["signals"] == ["SIGUSR2", "SIGTERM"]


@pytest.mark.parametrize("lost", [False, True])
def test_code_that_changed_or_is_lost_is_not_run_and_that_is_one_sentence(tmp_path: Path, lost: bool) -> None:
    archive = tmp_path / "code"
    archive.write_text("1")
    digest = digest_of(b"1")
    assert element(tmp_path, "exit 3", digest=digest).run() == 3
    archive.unlink() if lost else archive.write_text("2")
    (tmp_path / "abc/1.end-0.json").unlink()
    assert element(tmp_path, "touch ran", digest=digest).run() == CHANGED == record(tmp_path, "end")["status"]
    why = "it cannot be read (No such file or directory)" if lost else "it was changed since"
    log = (tmp_path / "logs/p001.txt").read_text()
    assert f"{archive} is not the code that this job was submitted with: {why}. Start the same sweep" in log
    assert not (tmp_path / "ran").exists()
