"""A worker process: asked with a deadline, and ended with all that it started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import alive
from waiting import until

from perfsweep.pipelines.worker_process import LAST_BYTES, Messages, Worker, last_line

PROGRAM = """
import json, os, signal, subprocess, sys, time
from perfsweep.pipelines.worker_process import answers
stream = answers()
print("said to people")
for line in sys.stdin:
    order = json.loads(line)
    if order == "die":
        sys.exit("Traceback\\nno room")
    if order == "hang":
        time.sleep(600)
    if order == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if order == "start":
        order = subprocess.Popen(["sleep", "600"]).pid
    print(json.dumps({"heard": order}), file=stream, flush=True)
    if order == "deaf":
        time.sleep(600)
sys.exit(7)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Starts the program above, or another; all are ended with the test."""
    started: list[Worker] = []
    (tmp_path / "program.py").write_text(PROGRAM)

    def one(*command: str) -> Worker:
        with (tmp_path / "log").open("wb") as log:
            own = [sys.executable, str(tmp_path / "program.py")]
            worker = Worker(command or own, {**os.environ, "OWN": "yes"}, log)
        started.append(worker)
        return worker

    yield one
    for worker in started:
        worker.end()


def test_an_order_longer_than_a_pipe_is_taken_whole_and_one_that_is_not_taken_is_not_waited_for(
    start: Callable[..., Worker],
) -> None:
    text = "x" * 1_000_000
    assert start().ask(text, 60) == {"heard": text}
    assert start("sleep", "600").ask(text, 0.1) is None


@pytest.mark.parametrize(("order", "gone"), [("die", True), ("hang", False)])
def test_without_an_answer_it_can_be_told_who_died_from_who_hangs(
    start: Callable[..., Worker], order: str, gone: bool
) -> None:
    worker = start()
    worker.ask("ready", 60)
    assert worker.ask(order, 60.0 if gone else 0.1) is None
    assert worker.gone == gone
    assert worker.end(60.0 if gone else 0.0) == (1 if gone else -signal.SIGKILL)
    worker.say("too late")
    assert worker.answer(60) is None


@pytest.mark.parametrize(("order", "status"), [("deaf", -signal.SIGKILL), ("hang", -signal.SIGTERM)])
def test_who_does_not_end_by_himself_is_asked_and_then_killed(
    start: Callable[..., Worker], order: str, status: int
) -> None:
    worker = start()
    worker.ask("ready", 60)
    worker.ask(order, 60.0 if order == "deaf" else 0.1)
    assert worker.end(0.2) == status


@pytest.mark.parametrize("how", ["end", "kill"])
def test_what_it_started_ends_with_it(start: Callable[..., Worker], how: str) -> None:
    worker = start()
    answer = worker.ask("start", 60)
    assert answer is not None and alive(answer["heard"])
    if how == "kill":
        worker.kill()
        assert worker.answer(60) is None and worker.gone
    worker.end(60)
    until(lambda: not alive(answer["heard"]), "the end of what it started")
    worker.kill()  # it is gone, and nothing else is hit


def test_lines_arrive_when_they_are_whole_and_what_is_no_order_is_passed_over() -> None:
    theirs, ours = os.pipe()
    messages = Messages(theirs)
    assert messages.arrived() == []
    os.write(ours, b'{"a": 1}\nsrun: a banner\n{"b"')
    assert messages.arrived() == [{"a": 1}]
    os.write(ours, b': 2}\n{"c": 3}\n')
    assert messages.arrived() == [{"b": 2}, {"c": 3}]
    assert not messages.ended
    os.write(ours, b'{"d": 4}\n')
    os.close(ours)
    assert messages.arrived() == [{"d": 4}]
    assert messages.ended and messages.arrived() == []
    os.close(theirs)


def test_of_a_long_log_the_last_line_is_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log:
        assert last_line(log) == ""
        log.write(b"first\n" * LAST_BYTES + b"last \xff\n\n")
        log.flush()
        assert last_line(log) == "last \ufffd"
