"""The budget of the tests: what is measured, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import time

import budget
import pytest
from tiers import tiered

pytest_plugins = ["pytester"]

DEADLINE_S = 120
BUSY = "    before = time.process_time()\n    while time.process_time() < before + 0.2: pass\n"
BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


def test_a_childs_time_is_its_tests() -> None:
    meter = budget.Meter()
    meter.lap()
    subprocess.run([sys.executable, "-c", BURN.format(seconds=0.3)], check=True)
    assert meter.lap() >= 0.3


def test_a_process_that_its_parent_left_behind_is_counted_while_it_runs(tmp_path) -> None:
    meter, spent, stop = budget.Meter(), 0.0, tmp_path / "stop"
    meter.lap()
    before_s = time.process_time()
    busy = f"import pathlib\nwhile not pathlib.Path({str(stop)!r}).exists(): pass\n"
    subprocess.run(["sh", "-c", '"$0" -c "$1" & exit 0', sys.executable, busy], check=True)
    deadline = time.monotonic() + DEADLINE_S
    try:
        while spent < 0.3 + time.process_time() - before_s:
            assert time.monotonic() < deadline
            time.sleep(2 * budget.LOOK_AFTER_S)
            spent += meter.lap()
    finally:
        stop.touch()


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs one test that takes a fifth of a second, on a machine that is as fast as the budget's."""
    monkeypatch.setattr(budget, "YARDSTICK_S", 60.0)

    def inner(mark: str = "", each_s: float = 0.1 / budget.SLACK, all_s: float = 60.0) -> pytest.RunResult:
        limits = f"processor_s_each = {each_s}\nprocessor_s = {all_s}\n"
        pytester.makeini(f"[pytest]\n{limits}markers =\n    slow\n    workloads\n")
        pytester.makepyfile(f"import pytest, time\n{mark}\ndef test_busy():\n{BUSY}")
        return pytester.runpytest_inprocess("-p", "budget", "-p", "no:xdist")

    return inner


def test_a_dear_test_without_a_mark_fails_and_is_told_what_to_do(run) -> None:
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*of processor time*mark it workloads or slow*"])


@pytest.mark.parametrize("tier", budget.TIERS)
def test_a_dear_test_with_a_mark_passes(run, tier: str) -> None:
    run(f"@pytest.mark.{tier}").assert_outcomes(passed=1)


def test_more_than_the_budget_of_all_fails_and_says_so(run) -> None:
    result = run(each_s=60.0, all_s=0.1 / budget.SLACK)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["OVER BUDGET*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_quick_case_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no case is called renamed=on"):
        tiered([("amp", "bf16")], ["renamed=on"])
