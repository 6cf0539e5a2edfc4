"""Memory that a slab is predicted to need, what is refused, and the climb to the best size."""

from __future__ import annotations

import pytest

from perfsweep.workloads.prover.maths.slab_size import PredictedOutOfMemory, SlabMemory, device_budget

SMALL = SlabMemory(pairs=10, slots=4, columns=3, item=2, states=5, width=8)
ROW = 5 * 10 * 4 * 3 * 2 + 6 * 5 * 8 * 4


def test_a_slab_that_just_fits_passes_and_one_more_byte_is_refused() -> None:
    SMALL.check(7, 7 * ROW)
    with pytest.raises(PredictedOutOfMemory, match=r"a slab of 7 rows .*toggles\.slab_size=6 would fit"):
        SMALL.check(7, 7 * ROW - 1)
    with pytest.raises(PredictedOutOfMemory, match="not even one row would fit"):
        SMALL.check(1, ROW - 1)


def test_the_refusal_names_peak_largest_tensor_and_budget_in_gigabytes() -> None:
    rows = 10**6
    expected = f"to need {rows * ROW / 1e9:.2f} GB \\(0.24 GB for one tensor .* and the budget is 1.50 GB"
    with pytest.raises(PredictedOutOfMemory, match=expected):
        SMALL.check(rows, int(1.5e9))


@pytest.mark.parametrize(
    ("memory_gb", "given", "expected"),
    [(0.001, None, 10**6), (None, 5000, 5000), (0.001, 5000, 5000), (0.000001, 5000, 1000)],
)
def test_the_smallest_limit_is_the_budget(memory_gb: float | None, given: int | None, expected: int) -> None:
    assert device_budget(memory_gb, given, "cpu") == expected


def test_without_limits_it_is_nine_tenths_of_the_machines_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert device_budget(None, None, "cpu") == int(0.9 * 4096 * 1000)
    assert device_budget(1.0, 2**40, "cpu") == int(0.9 * 4096 * 1000)
