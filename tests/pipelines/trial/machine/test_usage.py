"""What the kernel counts of a region: waits for a core that others had, and none of a thread's own waits."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from perfsweep.pipelines.trial.machine import usage
from perfsweep.pipelines.trial.machine.usage import DISPLACED_SHARE, Usage

NEIGHBOUR = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"
WORK_NS = 100_000_000


@pytest.fixture
def crowded_core() -> Iterator[None]:
    """This thread pinned to a core, with a neighbour that never rests pinned to the same."""
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(core)], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        os.sched_setaffinity(0, {core})
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)
            busy.kill()


def computed_ns(moment: usage.Moment) -> int:
    return sum(on_core for on_core, _ in moment.threads.values())


def compute(work_ns: int) -> Usage:
    """What the kernel counts while this process gets so much time on cores, by the kernel's own figure."""
    before = after = usage.moment()
    while computed_ns(after) - computed_ns(before) < work_ns:
        after = usage.moment()
    return Usage.between(before, after)


@pytest.mark.skipif(not usage.moment().threads, reason="the kernel keeps no schedstat")
def test_a_busy_neighbour_on_the_core_shows_as_run_delay(crowded_core: None) -> None:
    there = compute(WORK_NS)
    assert there.run_delay_ns is not None
    assert there.run_delay_ns > DISPLACED_SHARE * WORK_NS
    assert there.displaced(there.run_delay_ns + WORK_NS)


def test_a_thread_that_waits_by_itself_has_no_run_delay_for_it() -> None:
    code = "import time; time.sleep(0.3); print(flush=True)"  # the wait that must not be counted
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as late:
        assert late.stdout is not None
        before = usage.moment()
        late.stdout.readline()
        waited = Usage.between(before, usage.moment())
    assert waited.run_delay_ns is None or waited.run_delay_ns < 150_000_000


def test_faults_of_memory_touched_for_the_first_time_are_counted() -> None:
    before = usage.moment()
    pages = mmap.mmap(-1, 8 << 20)  # from the kernel: malloc may hand out pages that were touched before
    for page in range(0, len(pages), 4096):
        pages[page] = 1
    assert Usage.between(before, usage.moment()).minor_faults > 10


def test_without_schedstat_frequent_displacements_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_thread_times", dict)
    moment = usage.moment()
    assert Usage.between(moment, moment).run_delay_ns is None
    second = 1_000_000_000
    assert Usage(displacements=100).displaced(second)
    assert not Usage(displacements=5).displaced(second)


def test_a_run_delay_that_is_known_is_believed_and_not_the_switches() -> None:
    assert not Usage(run_delay_ns=0, displacements=10_000).displaced(1_000_000_000)


def test_regions_of_several_jobs_add_up() -> None:
    known = Usage(run_delay_ns=1, minor_faults=2, system_ns=3)
    assert known + known == Usage(run_delay_ns=2, minor_faults=4, system_ns=6)
    assert (known + Usage()).run_delay_ns is None, "half a figure is none"
