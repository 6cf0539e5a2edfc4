"""Stages of a GPU check that go wrong in ways of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from perfsweep.pipelines.gpu_check.answer import Here, Line, judged


def fine(here: Here) -> Iterator[Line]:
    yield judged("first", True, "all is well", figure=1.0)


def raises(here: Here) -> Iterator[Line]:
    yield judged("first", True, "so far")
    raise RuntimeError("device-side assert")


def dies(here: Here) -> Iterator[Line]:
    yield judged("first", True, "so far")
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(here: Here) -> Iterator[Line]:
    yield judged("first", True, "so far")
    time.sleep(600)
