"""A run: how it ends, what it may write, what it uses, whom signals reach, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.command.program import LIMIT, RunFailed, descendants
from perfsweep.workloads.command.workload import Command
from perfsweep.workloads.errors import ConfigError

Make = Callable[..., Command]
PYTHON = f"{sys.executable} -I -S -c"
MB = 1 << 20


def test_a_job_is_one_run_and_the_next_begins_anew(make: Make, tmp_path: Path) -> None:
    workload = make("sh -c 'echo x >> runs.txt; ls {scratch}; touch {scratch}/left'")
    for number in (1, 2):
        assert not workload.done() and workload.progress() == 0
        workload.step(NullClock())
        assert workload.done() and workload.progress() == 1
        assert (tmp_path / "runs.txt").read_text() == "x\n" * number
        workload.reset()
    assert workload.counters()["output_bytes"] == 0  # nothing of the first run was left in {scratch}


def test_another_status_may_be_the_right_one(ran: Make) -> None:
    assert ran("sh -c 'exit 3'", expected_status=3).counters()["exit_status"] == 3
    with pytest.raises(RunFailed, match="status 0 instead of 3"):
        ran("true", expected_status=3)


def test_a_run_that_hangs_is_killed_with_all_it_started(ran: Make, tmp_path: Path) -> None:
    hanging = "sh -c 'echo $$ > pids; (setsid sh -c \"echo \\$\\$ >> pids; sleep 60\") & sleep 60'"
    pids: list[str] = []
    for timeout in (0.1, 0.5, 2.5, 12.5):  # a loaded machine is late to start both
        with pytest.raises(RunFailed, match="did not end in time and was killed with all it had started"):
            ran(hanging, timeout=timeout)
        pids = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
        if len(pids) == 2:
            break
    assert len(pids) == 2 and not any(Path("/proc", pid).exists() for pid in pids)


def test_what_a_run_leaves_in_the_background_is_ended_with_it(ran: Make, tmp_path: Path) -> None:
    workload = ran("sh -c 'setsid sleep 60 & echo $! > pid'")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert workload.counters()["exit_status"] == 0


def test_nothing_outlives_a_trial_that_is_killed(tmp_path: Path) -> None:
    code = (
        "from perfsweep.workloads.command.program import Program; from pathlib import Path;"
        "Program(['sh', '-c', 'echo $$ > pid; sleep 60'], {'PATH': '/usr/bin:/bin'}, Path('.')).run(1e9)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    trial = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"), "its start")
    trial.kill()
    assert trial.wait() == -signal.SIGKILL
    until(
        lambda: not Path("/proc", (tmp_path / "pid").read_text().strip()).exists(), "the end of the command"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("./nothing", r"^workload.command: \S+/nothing does not exist, or cannot be executed"),
        ("./text", r"^workload.command: \./text cannot be started: Exec format error"),
    ],
)
def test_what_cannot_be_started_is_one_sentence(
    ran: Make, tmp_path: Path, command: str, message: str
) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    with pytest.raises(ConfigError, match=message):
        ran(command)


def test_much_output_is_counted_kept_in_part_and_said_once(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    workload = make(
        "sh -c 'head -c 20000000 /dev/zero; echo score=7'", evidence={"pattern": "score=(?P<score>.)"}
    )
    for _ in range(2):
        workload.step(NullClock())
        assert workload.numbers() == {"score": 7}
        assert workload._last is not None and len(workload._last.output.text) < LIMIT + 2 * MB
        workload.reset()
    assert workload.counters()["output_bytes"] == 20000008
    assert capfd.readouterr().err.count("a run wrote 20000008 bytes; the last 4 MiB are kept") == 1


def test_cpu_time_of_a_tree_counts_even_of_those_that_nobody_waited_for(ran: Make) -> None:
    loop = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"
    alone = ran("true").child_usage()
    nested = ran(
        f"sh -c 'sh -c \"{loop.replace('$', chr(92) + '$')}; touch done\" & until [ -e done ]; do :; done'"
    )
    assert nested.child_usage().ru_utime > alone.ru_utime
    assert nested.counters()["cpu_user_s"] == nested.child_usage().ru_utime


def test_peak_memory_is_the_commands_and_not_that_of_the_process_that_measures(ran: Make) -> None:
    assert ran("true").counters()["run_peak_bytes"] < 40 * MB
    large = ran(f"{PYTHON} 'held = bytearray(60 << 20)'").child_usage()
    assert 60 * MB < large.ru_maxrss * 1024 < 100 * MB


def test_processes_that_run_at_once_need_their_memory_together(ran: Make) -> None:
    code = "import os, time; os.fork(); held = bytearray(40 << 20); time.sleep(0.5)"
    assert ran(f"{PYTHON} '{code}'").counters()["run_peak_bytes"] > 70 * MB


def test_a_preparation_runs_before_every_run(make: Make, tmp_path: Path) -> None:
    workload = make("mkdir made", prepare="rm -rf made")
    for _ in range(2):
        workload.step(NullClock())
        workload.reset()
    with pytest.raises(RunFailed, match=r"^workload.prepare: a run ended with status 1 instead of 0"):
        make("true", prepare="false")
    with pytest.raises(ConfigError, match=r"^workload.prepare: nosuch is not on PATH"):
        make("true", prepare="nosuch")


def test_a_deadline_of_the_trial_ends_a_run_too(make: Make) -> None:
    workload = make("sleep 60")
    workload._deadline = time.monotonic()
    with pytest.raises(RunFailed, match="did not end in time"):
        workload.step(NullClock())


def test_a_program_that_ends_its_process_group_ends_nobody_else(make: Make) -> None:
    workload = make("sh -c 'kill -KILL 0'")
    for _ in range(2):
        with pytest.raises(RunFailed, match="a run ended with signal SIGKILL instead of 0"):
            workload.step(NullClock())


def test_a_program_is_sent_what_its_cluster_sends_whatever_its_launcher_ignores(make: Make) -> None:
    for name in ("TERM", "USR1", "HUP", "PIPE"):
        with pytest.raises(RunFailed, match=f"a run ended with signal SIG{name} instead of 0"):
            make(f"sh -c 'kill -{name} $$'").step(NullClock())


def test_nothing_of_it_is_left_once_it_is_closed(make: Make) -> None:
    before = set(descendants(os.getpid()))
    workload = make("true", prepare="true")
    assert len(set(descendants(os.getpid())) - before) == 2
    workload.close()
    assert set(descendants(os.getpid())) <= before
