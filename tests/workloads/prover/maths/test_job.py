"""What a finished job keeps."""

from __future__ import annotations


def test_a_job_that_is_not_compared_keeps_no_actions(naive) -> None:
    workload, _ = naive
    for result in workload.job.results.values():
        assert set(result.outcome) == {"success", "depth", "log_prob", "ambiguous"}
        assert len(result.outcome["depth"]) == result.sizes.sum()
    assert workload.job.scored == sum(len(one.outcome["depth"]) for one in workload.job.results.values())
