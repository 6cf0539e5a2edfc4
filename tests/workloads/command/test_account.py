"""What several runs have used: sums, means, peaks, and what is said of them."""

from __future__ import annotations

from perfsweep.workloads.command.program import Account, Kept, Run


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
