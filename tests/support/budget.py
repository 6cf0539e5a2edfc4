"""Processor time of the tests, children included: summed by folder, and held within one budget.

A pytest plugin. Wall time says how busy the machine is; processor time says what the tests cost. It still
grows by a third or so where two threads share a core, hence `SLACK` between what is aimed at and what fails;
and slow processors need more of it, hence `Yardstick`, a piece of work that is timed between the tests.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SLACK = 1.5
YARDSTICK_S = 0.0050
"""What the yardstick takes on the machine whose processor time the budget means."""
YARDSTICK_EVERY_S = 2.0
WORK = Path(dataclasses.__file__).read_text()
DEAREST = 10
TIERS = ("workloads", "slow")
BROUGHT_BY = "TESTS_BROUGHT_BY"
"""Variable by which processes that outlive a test, or have left its process tree, are recognised."""
LOOK_AFTER_S = 0.1
"""Tests shorter than this are not followed by a look through /proc, which takes some milliseconds."""
TICKS = os.sysconf("SC_CLK_TCK")
LOADING = "collection and imports"


@dataclass(frozen=True)
class Detached:
    """A running process of a test: seconds used with its finished children, and whether init will reap it."""

    used_s: float
    orphan: bool


class Meter:
    """Processor seconds of this process, its finished children, and whatever they left running."""

    def __init__(self) -> None:
        self.orphaned_s = 0.0  # of processes that init has reaped
        self.running: dict[str, Detached] = {}
        self.before_s = 0.0
        self.looked = time.monotonic()

    def lap(self) -> float:
        """Processor seconds since the last lap."""
        if time.monotonic() - self.looked > LOOK_AFTER_S:
            self.look()
        used = sum(map(_used, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        used += self.orphaned_s + sum(process.used_s for process in self.running.values())
        lap, self.before_s = used - self.before_s, max(used, self.before_s)
        return max(lap, 0.0)

    def look(self) -> None:
        """Read what running processes have used; orphans that have ended are in no parent's sum."""
        running = dict(_detached())
        gone = (process for key, process in self.running.items() if key not in running)
        self.orphaned_s += sum(process.used_s for process in gone if process.orphan)
        self.running = running
        self.looked = time.monotonic()


def _used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _detached() -> Iterator[tuple[str, Detached]]:
    """Every running process that a test of this process has started, by what names it once and for all."""
    mark = f"{BROUGHT_BY}={os.getpid()}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                used_s = sum(map(int, fields[11:15])) / TICKS
                yield f"{process.name} {fields[19]}", Detached(used_s, orphan=fields[1] == "1")
        except OSError:
            continue  # it has just ended, or belongs to somebody else


class Yardstick:
    """How much slower than the budget's machine this one is, by a fixed piece of work of the interpreter.

    Compiling a module touches as much code and memory as tests do. A short loop does not: there a processor
    with small caches seemed as fast, and took nearly twice as long for all tests.
    """

    def __init__(self) -> None:
        self.taken: list[float] = []
        self._last = float("-inf")

    def lay(self) -> None:
        """Time the work, unless that was done just now."""
        if time.monotonic() - self._last < YARDSTICK_EVERY_S:
            return
        start = time.thread_time()
        compile(WORK, "work", "exec")
        self.taken.append(time.thread_time() - start)
        self._last = time.monotonic()

    @property
    def slower(self) -> float:
        """A factor, not below one."""
        return max(1.0, statistics.median(self.taken) / YARDSTICK_S) if self.taken else 1.0


def of_its_machine(seconds: float) -> float:
    """What processor time here would be on the budget's machine: bounds hold on loaded machines too."""
    yardstick = Yardstick()
    yardstick.lay()
    return seconds / yardstick.slower


class Ledger:
    """Measures in the processes that run tests, and adds up in the one that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.meter, self.yardstick = config, Meter(), Yardstick()
        self.all_s, self.each_s = (float(config.getini(name)) for name in ("processor_s", "processor_s_each"))
        self.tests: Counter[str] = Counter()
        self.loading, self.budgeted = 0.0, 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        result = yield
        self.loading += self.meter.lap()
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["loading_s"] = self.loading
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        report.processor_s = self.meter.lap()
        report.budgeted = not any(item.get_closest_marker(tier) for tier in TIERS)
        if call.when == "call" and report.passed and report.budgeted:
            self.hold(report)
        self.yardstick.lay()
        return report

    def hold(self, report: pytest.TestReport) -> None:
        """Fail a test that took too much; what fixtures took is shared, and counts in the sum only."""
        if report.processor_s > SLACK * self.yardstick.slower * self.each_s:
            report.outcome = "failed"
            report.longrepr = (
                f"{report.processor_s:.1f} s of processor time, of {self.each_s:g} for one quick test: "
                f"make it smaller, share what it sets up, or mark it {' or '.join(TIERS)}"
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent_s = getattr(report, "processor_s", 0.0)  # the report of a crashed worker has none
        self.tests[report.nodeid] += spent_s
        self.budgeted += spent_s if getattr(report, "budgeted", False) else 0.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error: object) -> None:
        brought = getattr(node, "workeroutput", {})
        self.loading += brought.get("loading_s", 0.0)
        self.yardstick.taken += brought.get("yardstick_s", [])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["yardstick_s"] = self.yardstick.taken
        if self.over(SLACK) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def over(self, factor: float) -> bool:
        return self.budgeted > 0 and self.spent_s > factor * self.all_s

    @property
    def spent_s(self) -> float:
        """Seconds of the budget, which are those of its machine."""
        return (self.budgeted + self.loading) / self.yardstick.slower

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests or hasattr(self.config, "workeroutput"):
            return
        write = terminalreporter.write_line
        folders: Counter[str] = Counter({LOADING: self.loading})
        for test, seconds in self.tests.items():
            folders["/".join(Path(test.partition("::")[0]).parent.parts[1:3]) or "tests"] += seconds
        terminalreporter.section("processor time")
        for folder, seconds in folders.most_common():
            write(f"{seconds:8.1f} s  {folder}")
        write(f"{sum(folders.values()):8.1f} s  in all; the dearest tests:")
        for test, seconds in self.tests.most_common(DEAREST):
            write(f"{seconds:8.1f} s  {test}")
        if self.yardstick.slower > 1:
            write(
                f"{self.spent_s:8.1f} s  of the budget's machine: this one takes {self.yardstick.slower:.2f}"
                " times as long"
            )
        if self.over(1.0):
            write(
                f"OVER BUDGET: {self.spent_s:.0f} s, and {self.all_s:g} are meant; "
                f"{SLACK * self.all_s:g} fail",
                red=True,
            )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("processor_s", "seconds that all tests without a marker may take", default="inf")
    parser.addini("processor_s_each", "seconds that each of them may take", default="inf")


def pytest_configure(config: pytest.Config) -> None:
    os.environ[BROUGHT_BY] = str(os.getpid())
    config.pluginmanager.register(Ledger(config), "ledger of processor time")
