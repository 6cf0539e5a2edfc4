"""A signal that asks a pack to end is heard, whatever the pack was doing when it came."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from perfsweep.pipelines.execution import spawn
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.spawn import SIGNALS, Interrupted


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    spawn.listen_for_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    spawn._heard.clear()


def dying_server(while_it_ends) -> ForkServer:
    """A server that takes its time to end."""
    server = ForkServer.__new__(ForkServer)
    server._requests = socket.socket()
    server._greeted = True
    server._process = SimpleNamespace(wait=while_it_ends, send_signal=lambda number: None)  # type: ignore[assignment]
    return server


@pytest.mark.parametrize("number", SIGNALS)
def test_one_that_comes_while_a_server_is_taken_down_is_heard_before_the_next_trial(number: int) -> None:
    """Nothing can be raised out of a finalizer: the pack would go on measuring until it is killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what a finalizer could not raise is told as one
        server = dying_server(lambda: os.kill(os.getpid(), number))
        del server
    with pytest.raises(Interrupted, match=signal.Signals(number).name):
        spawn.stop_if_interrupted()


def test_one_that_comes_while_a_server_is_started_says_no_more_than_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spawn.subprocess, "Popen", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(raised.exc_value))
    with pytest.raises(Interrupted, match="SIGTERM") as heard:
        ForkServer([])
    heard.value.__traceback__ = None  # which keeps the server
    del heard
    gc.collect()
    assert told == []


def test_of_several_signals_the_first_counts_and_the_others_raise_nothing_more() -> None:
    with pytest.raises(Interrupted, match="SIGUSR2"):
        os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGTERM)
    assert spawn.signal_heard() == "SIGUSR2"
