"""What a soak says has grown: quarters of the trials, and nothing that comes after the last one."""

from __future__ import annotations

import pytest
from storm.processes import Role
from storm.soak import Sample, grown


def sample(trials: int, memory_mib: float, cpu_s: float, handles: int = 5) -> Sample:
    return Sample(Role.PACK, trials, memory_mib, handles, cpu_s)


def growths(samples: list[Sample]) -> dict[str, float]:
    return {one.what: one.share for one in grown(samples)}


def test_what_is_flat_has_not_grown_whatever_the_first_quarter_and_the_end_took() -> None:
    samples = [sample(n, 50.0 if n > 200 else 10.0, n / 1000) for n in range(0, 1000, 50)]
    found = growths([*samples, sample(1000, 90.0, 5.0), sample(1000, 90.0, 9.0)])
    assert found == {
        "memory of the pack": 0.0,
        "file handles of the pack": 0.0,
        "processor time of the pack": pytest.approx(0.0),
    }


def test_each_figure_that_grows_is_said_with_its_share() -> None:
    samples = [sample(n, 100 + n / 10, n * n / 1e6, 5 + n // 500) for n in range(0, 1001, 50)]
    found = growths(samples)
    assert found["memory of the pack"] == pytest.approx((100 + 85) / (100 + 37.5) - 1, abs=0.02)
    assert found["file handles of the pack"] == pytest.approx(1 / 5)
    assert found["processor time of the pack"] == pytest.approx(1700 / 750 - 1, abs=0.02)
