"""Digits and Probe1D keep their contract, in processes of their own."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.testing import check_workload

SMALL = ("workload.width=4", "workload.batch_size=400", "workload.checkpoint_every=1")
SHORT = ("workload.data=test", "workload.max_iter=8")


@pytest.mark.workloads
@pytest.mark.parametrize(
    ("workload", "values", "levels"),
    [
        ("digits", SMALL, {"amp": ["bf16"], "checkpoint": ["async"]}),
        ("probe1d", SHORT, {"solver": ["newton"], "fused_kernel": ["on"]}),
    ],
)
def test_a_workload_keeps_its_contract_with_its_levels(
    workload: str, values: tuple[str, ...], levels: dict[str, list[Any]]
) -> None:
    """Their other levels are held against their bases in the tests of their folders."""
    held = check_workload(workload, *values, levels=levels)
    assert set(held.levels) == {f"{name}={one}" for name in levels for one in levels[name]}
