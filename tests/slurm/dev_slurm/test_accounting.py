"""How the daemons of a development cluster are started, waited for and ended; stand-ins take their places."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
from pathlib import Path

import pytest
from dev_slurm import accounting, daemons
from dev_slurm.daemons import binary, daemonise, pid_in, spawn, stop, until
from dev_slurm.settings import Settings
from stand_ins import program

from perfsweep.slurm.errors import ClusterError

PROGRAMS = ("mariadb-install-db", "mariadbd", "mariadb-admin", "slurmdbd", "sacctmgr")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = Settings(root=tmp_path / "root")
    for name in ("run", "log", "etc"):
        (found.root / name).mkdir(parents=True)
    return found


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for name in PROGRAMS:
        program(folder, name, "exit 0")
    making = 'for word; do case $word in --datadir=*) mkdir "${word#--datadir=}";; esac; done'
    program(folder, "mariadb-install-db", making)
    program(folder, "slurmdbd", f'echo "$MYSQL_UNIX_PORT $SLURM_CONF" > {folder}/seen')
    return folder


def asked(programs: Path, name: str) -> list[str]:
    file = programs / f"{name}.calls"
    return file.read_text().splitlines() if file.exists() else []


def test_database_and_slurmdbd_are_started_and_know_the_cluster(settings: Settings, programs: Path) -> None:
    accounting.start(settings, os.environ)
    root, user = settings.root, getpass.getuser()
    (made,) = asked(programs, "mariadb-install-db")
    assert f"--datadir={root}/mysql.new" in made and f"--auth-root-socket-user={user}" in made
    assert (root / "mysql").is_dir() and not (root / "mysql.new").exists()
    assert asked(programs, "mariadb-admin")[0] == f"--no-defaults --socket={root}/run/mysql.socket ping"
    assert (programs / "seen").read_text().split() == [f"{root}/run/mysql.socket", str(settings.conf)]
    assert asked(programs, "sacctmgr") == [
        "-i show cluster",
        "-i add cluster dev",
        "-i add account bench",
        f"-i add user {user} account=bench",
    ]
    assert (root / "log/mariadb.log").exists()


def test_what_is_there_and_runs_is_not_made_again(settings: Settings, programs: Path) -> None:
    (settings.root / "mysql").mkdir()
    for daemon in ("mariadbd", "slurmdbd"):
        settings.pid_file(daemon).write_text(str(os.getpid()))
    accounting.start(settings, os.environ)
    for name in ("mariadb-install-db", "mariadbd", "slurmdbd"):
        assert asked(programs, name) == []


def test_a_program_that_is_not_installed_is_named_with_its_package() -> None:
    with pytest.raises(
        ClusterError, match=r"^no-such-daemon is not installed: .* apt-get install slurm-wlm$"
    ):
        binary("no-such-daemon")


def test_a_command_that_fails_or_hangs_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ClusterError, match=r"sh ended with status 3; see .*log: 3 / 4 / 5$"):
        daemonise(["sh", "-c", "seq 5; exit 3"], os.environ, log)
    with pytest.raises(ClusterError, match=r"^sleep did not start within 0\.1 s; see "):
        daemonise(["sleep", "60"], os.environ, log, 0.1)
    daemonise(["true"], os.environ, log)


def test_a_condition_is_waited_for_and_no_longer_than_allowed() -> None:
    left = [False, False, True]
    until(lambda: left.pop(0), "the third look", 60)
    assert left == []
    with pytest.raises(ClusterError, match=r"^that did not happen within 0 s$"):
        until(lambda: False, "that", 0)


@pytest.mark.parametrize("body", ["exec sleep 60", "trap '' TERM; echo up; while :; do sleep 0.01; done"])
def test_a_daemon_is_asked_to_end_and_then_made_to(tmp_path: Path, body: str) -> None:
    process = subprocess.Popen(["sh", "-c", body], stdout=subprocess.PIPE)
    if "up" in body:
        assert process.stdout and process.stdout.readline() == b"up\n"
    (tmp_path / "own.pid").write_text(str(process.pid))
    assert pid_in(tmp_path / "own.pid") == process.pid
    stop([process.pid, 2**22 + 1], timeout_s=0.2 if "up" in body else 60)
    assert process.wait(60) == (-signal.SIGKILL if "up" in body else -signal.SIGTERM)
    assert pid_in(tmp_path / "own.pid") is None


@pytest.mark.parametrize("text", [None, "", "no number"])
def test_a_pid_file_that_says_nothing_names_nobody(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "own.pid").write_text(text)
    assert pid_in(tmp_path / "own.pid") is None


def test_a_zombie_does_not_live_and_what_jobs_left_is_known_by_its_environment(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    own = {**os.environ, "SLURM_CONF": str(conf)}
    left = spawn(["sleep", "60"], {**own, "SLURM_JOB_ID": "7"}, tmp_path / "log")
    other = spawn(["sleep", "60"], own, tmp_path / "log")
    until(lambda: left in daemons.processes_of_jobs(conf), "its start", 60)
    assert daemons.processes_of_jobs(conf) == [left]
    for pid in (left, other):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not daemons.alive(left), "its end", 60)


def test_what_the_programs_print_is_no_business_of_who_starts_a_cluster(
    settings: Settings, programs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("mariadb-admin", "sacctmgr"):
        program(programs, name, "echo mysqld is alive; echo a warning >&2")
    accounting.start(settings, os.environ)
    assert capfd.readouterr() == ("", "")
