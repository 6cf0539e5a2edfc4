"""What several runs have used: sums, means, peaks, and what is said of them."""

from __future__ import annotations

import pytest

from perfsweep.workloads.command.account import Account
from perfsweep.workloads.command.output import Kept
from perfsweep.workloads.command.program import Run


def run(status: int, user_s: float, system_s: float, peak: int, wrote: int, erred: int = 0) -> Run:
    output, errors = Kept(limit=2**20), Kept(limit=2**20)
    for stream, size in ((output, wrote), (errors, erred)):
        for _ in range(size):
            stream.add(b"x" * 2**19)
    usage = (user_s, system_s, *range(2, 16))
    return Run("workload.command", status, tuple(map(float, usage)), peak, output, errors, late=False)


def test_counters_are_means_but_for_the_status_of_the_last_run_and_the_peak() -> None:
    account = Account()
    account.add(run(3, 1.0, 0.5, 5000, wrote=1, erred=1))
    account.add(run(4, 2.0, 1.5, 3000, wrote=0, erred=2))
    assert account.counters() == {
        "exit_status": 4.0,
        "output_bytes": 2**18,
        "error_bytes": 3 * 2**18,
        "cpu_user_s": 1.5,
        "cpu_system_s": 1.0,
        "run_peak_bytes": 5000.0,
    }
    usage = account.usage()
    assert (usage.ru_utime, usage.ru_stime, usage.ru_maxrss) == (3.0, 2.0, 5)
    assert (usage.ru_ixrss, usage.ru_nivcsw) == (6, 30)


def test_before_any_run_everything_is_zero() -> None:
    assert set(Account().counters().values()) == {0.0}
    assert Account().usage().ru_maxrss == 0


@pytest.mark.parametrize(("wrote", "erred"), [(5, 0), (0, 5)])
def test_a_run_that_wrote_more_than_is_kept_is_told_of_once(
    wrote: int, erred: int, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account()
    for _ in range(2):
        account.add(run(0, 0.0, 0.0, 0, wrote=1))
    assert capsys.readouterr().err == ""
    for _ in range(2):
        account.add(run(0, 0.0, 0.0, 0, wrote=wrote, erred=erred))
    said = capsys.readouterr().err
    assert said == (
        f"a run wrote {5 * 2**19} bytes; the last 1 MiB are kept, and evidence is looked for in these\n"
    )
