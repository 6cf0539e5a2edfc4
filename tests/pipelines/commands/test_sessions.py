"""A sweep seen from another shell: status, logs, cancel, its copies in W&B; a test steers the executor."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.api import prepare_tracking
from perfsweep.pipelines.commands import sessions
from perfsweep.pipelines.config.types import SweepCommand, TrackingConfig
from perfsweep.pipelines.exits import ATTENTION, DONE, INTERRUPTED, SOME_FAILED
from perfsweep.pipelines.store import writers
from perfsweep.pipelines.store.records import Pack
from perfsweep.slurm.jobs import JobState
from perfsweep.workloads.errors import ConfigError

PACKS = tuple(
    Pack(id=name, orders=((NAIVE.id, FAST.id),) * 3, start="fork") for name in ("p000", "p001", "p002")
)
JOB = "p000+p001"


class Remote:
    """Two jobs, one of them of two packs."""

    def __init__(self) -> None:
        self.states = {JOB: JobState.RUNNING, "p002": JobState.PENDING}
        self.waits: dict[str, str] = {}
        self.looks = 0
        self.cancelled: list[Sequence[str] | None] = []

    def look(self) -> dict[str, JobState]:
        self.looks += 1
        return self.states

    def notes(self) -> dict[str, str]:
        return {"p002": "waits for a node"}

    def held(self) -> dict[str, str]:
        return self.waits

    def submitted(self, path: Path) -> dict[str, bool]:
        return {job: not state.over for job, state in self.states.items()}

    def cancel(self, jobs: Sequence[str] | None = None) -> int:
        self.cancelled.append(jobs)
        return len(self.states if jobs is None else jobs)


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "demo", packs=PACKS)


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Remote:
    remote = Remote()
    monkeypatch.setattr(sessions, "_attached", lambda *_: remote)
    return remote


def status_of(built: Built, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    done = sessions.status(str(built.folder.path), as_json=True)
    return done, json.loads(capsys.readouterr().out)


def test_each_pack_has_the_state_of_the_job_that_it_is_in(
    built: Built, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    remote.states["p001"] = JobState.FAILED  # an earlier job of one of them: what lives counts
    done, found = status_of(built, capsys)
    assert (done, found["exit"], found["sweep"]) == (SOME_FAILED, SOME_FAILED, "demo")
    packs = {pack["pack"]: (pack["job"], pack["note"]) for pack in found["packs"]}
    assert packs == {
        "p000": ("running", ""),
        "p001": ("running", ""),
        "p002": ("pending", "waits for a node"),
    }
    first, second, _ = found["packs"]
    assert (first["arms"], first["rounds"], first["rounds_planned"]) == (2, 3, 3)
    assert (first["trials"], first["not_ok"]) == (7, 1)
    assert (second["rounds"], second["trials"], second["not_ok"]) == (0, 0, 0)
    del remote.states["p002"]
    assert status_of(built, capsys)[1]["packs"][2]["job"] == "not submitted"


def test_a_person_reads_the_same_and_which_files_could_not_be_read(
    built: Built, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    (broken, *_) = sorted(built.folder.path.glob("trials/*/*/record.json"))
    broken.write_text("{")
    assert sessions.status(str(built.folder.path)) == SOME_FAILED
    text = capsys.readouterr().out
    rows = [line.split("│") for line in text.splitlines() if "│" in line]
    assert [[cell.strip() for cell in row[1:-1]] for row in rows] == [
        ["p000", "2", "2 of 3", "6", "1", "running", ""],
        ["p001", "2", "0 of 3", "0", "0", "running", ""],
        ["p002", "2", "0 of 3", "0", "0", "pending", "waits for a node"],
    ]
    assert text.startswith("demo: ") and f"\nskipped: {broken} is damaged: " in text


def test_a_job_that_cannot_start_needs_attention(
    built: Built, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    remote.waits = {"p002": "held by an administrator"}
    assert status_of(built, capsys)[0] == ATTENTION


def test_a_sweep_on_this_machine_has_no_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, found = status_of(build(tmp_path / "demo"), capsys)
    assert done == DONE and [pack["job"] for pack in found["packs"]] == [None]
    with pytest.raises(
        ConfigError, match="has nothing on Slurm; a sweep on this machine is stopped with Ctrl-C"
    ):
        sessions.cancel(str(tmp_path / "demo"), ())


def test_all_jobs_are_cancelled_or_those_of_the_packs_that_are_named(
    built: Built, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = str(built.folder.path)
    assert sessions.cancel(sweep, ()) == DONE
    assert sessions.cancel(sweep, ("p001", "p000", "p002")) == DONE
    assert remote.cancelled == [None, [JOB, "p002"]]
    assert (
        capsys.readouterr().out.splitlines() == [f"cancelled 2 jobs; finished rounds are kept in {sweep}"] * 2
    )
    remote.states[JOB] = JobState.CANCELLED
    sessions.cancel(sweep, ("p001",))
    assert remote.cancelled[-1] == ["p001"]


@pytest.mark.parametrize(
    ("packs", "words"),
    [
        (("p002", "p009"), "p009 is no pack of .*; choose from: p000, p001, p002"),
        (("p001",), "p000 p001 share one job, which ends as a whole: name all of them"),
    ],
)
def test_what_cannot_be_cancelled_alone_is_refused(
    packs: tuple[str, ...], words: str, built: Built, remote: Remote
) -> None:
    with pytest.raises(ConfigError, match=words):
        sessions.cancel(str(built.folder.path), packs)
    assert remote.cancelled == []


def log(built: Built, pack: str) -> Path:
    file = built.folder.pack_dir(pack) / "log.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def test_logs_are_printed_by_pack(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    log(built, "p000").write_text("one\ntwo\n")
    log(built, "p002").write_bytes(b"caf\xff\n")
    assert sessions.logs(str(built.folder.path), (), follow=False) == DONE
    assert capsys.readouterr().out == "p000: one\np000: two\np002: caf\N{REPLACEMENT CHARACTER}\n"
    sessions.logs(str(built.folder.path), ("p002",), follow=False)
    assert capsys.readouterr().out.startswith("p002: caf")


def test_logs_are_followed_until_the_jobs_of_the_packs_are_over(
    built: Built, remote: Remote, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log(built, "p000").write_text("one\n")

    def meanwhile(seconds: float) -> None:
        with log(built, "p000").open("a") as file:
            file.write(f"look {remote.looks}\n")
        if remote.looks == 2:
            remote.states[JOB] = JobState.ENDED  # the other job goes on

    monkeypatch.setattr(sessions.time, "sleep", meanwhile)
    assert sessions.logs(str(built.folder.path), ("p000",), follow=True) == DONE
    assert re.findall("p000: (.*)", capsys.readouterr().out) == ["one", "look 1", "look 2"]


def test_following_is_left_with_ctrl_c(built: Built, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sessions.time, "sleep", interrupted)
    assert sessions.logs(str(built.folder.path), (), follow=True) == INTERRUPTED
    assert remote.looks == 1 and remote.cancelled == []


@pytest.fixture
def waited(built: Built, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Waits for a sweep whose jobs end so: status, and the packs that its conclusion says are broken."""

    monkeypatch.setattr(sessions.submitted, "unsubmitted", lambda folder, manifest: [])

    def wait(follows: Callable[[], Any] = dict) -> tuple[int, Any]:
        concluded = list[Any]()
        monkeypatch.setattr(sessions, "until_over", lambda *_: follows())
        monkeypatch.setattr(sessions.submitted, "why", lambda folder, name, notes: f"{name} {[*notes]}")
        conclude = "perfsweep.pipelines.commands.sweep.conclude"
        monkeypatch.setattr(conclude, lambda console, sweep, broken: concluded.append(broken) or 1)
        return sessions.wait(str(built.folder.path)), concluded

    return wait


def test_a_sweep_is_waited_for_and_its_broken_packs_are_told_why(
    waited: Any, built: Built, remote: Remote, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {"p000": JobState.ENDED, "p001": JobState.FAILED, "p002": JobState.CANCELLED}
    left = built.folder.path / ".record.json.4194999.0123abcd.tmp"  # by a writer that was killed
    left.touch()
    assert waited(lambda: states) == (1, [{"p001": "p001 ['p002']", "p002": "p002 ['p002']"}])
    assert "never submitted" not in capsys.readouterr().out and not left.exists()


def test_ctrl_c_leaves_the_jobs_and_offers_to_cancel_them(
    waited: Any, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    asked = list[Any]()
    monkeypatch.setattr(sessions.submitted, "unsubmitted", lambda folder, manifest: ["p002"])
    monkeypatch.setattr(sessions.progress_display, "detach", lambda *words: asked.append(words[1:]))
    assert waited(interrupted) == (INTERRUPTED, [])
    ((path, cancel, left),) = asked
    assert path.endswith("demo") and (cancel(), left) == (2, 1)


def test_what_another_command_follows_is_waited_for_and_then_concluded(
    waited: Any, built: Built, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as other:
        other.enter_context(writers.locked(built.folder))
        monkeypatch.setattr(sessions.time, "sleep", lambda seconds: other.close())
        assert waited() == (1, [{}])
    assert capsys.readouterr().out == "another command follows this sweep: waiting for it\n"

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with writers.locked(built.folder):
        monkeypatch.setattr(sessions.time, "sleep", interrupted)
        assert waited() == (INTERRUPTED, [])


@pytest.mark.parametrize(("act", "remedy"), [("wait", "only read it"), ("pack", "pack a copy of it")])
def test_a_sweep_that_one_may_not_write_is_no_sweep_that_another_command_holds(
    act: str, remedy: str, built: Built
) -> None:
    (built.folder.path / ".lock").mkdir()  # root too may not write to a folder
    with pytest.raises(ConfigError, match=f"{built.folder.path}: cannot write there .*{remedy}"):
        getattr(sessions, act)(str(built.folder.path))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "[Errno 2] No such file or directory"),
        ("a: [1", "while parsing a flow sequence"),
        ("configuration: {cluster: {no_option: 1}}", "Key 'no_option' not in 'ClusterConfig'"),
    ],
)
def test_a_folder_that_does_not_say_which_cluster_is_one_sentence(
    text: str | None, why: str, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.folder.config_file.unlink(missing_ok=True)
    if text is not None:
        built.folder.config_file.write_text(text)
    monkeypatch.setattr(sessions.submitted, "executor_of", lambda folder: "slurm")
    with pytest.raises(
        ConfigError, match=rf"does not say which cluster the sweep runs on \({re.escape(why)}"
    ):
        sessions.status(str(built.folder.path))


def said(**tracking: object) -> tuple[list[str], TrackingConfig]:
    """Lines for a person, and the tracking that results."""
    command = SweepCommand(tracking=TrackingConfig(**tracking))  # type: ignore[arg-type]
    return prepare_tracking(command), command.tracking


def test_no_account_is_one_line_and_measuring_goes_on(backend: Loopback, shell: pytest.MonkeyPatch) -> None:
    shell.delenv("WANDB_API_KEY")
    (line,), _ = said(mode="online")
    assert line.startswith(
        f"W&B: no API key for {backend.url}; run `wandb login --host {backend.url}` or set WANDB_API_KEY; "
    )
    assert line.endswith("run folders are written instead, and `perfsweep publish` uploads them later")
