"""The workload of the self-test: the delay is work of a known amount, and changes nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfsweep.workloads.api import Context, Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.selftest.workload import Selftest, SelftestConfig


class NoClock:
    def phase(self, name: str):
        raise AssertionError("the delay would be a phase of its own")


def ran(tmp_path: Path, delay: int, **config: int) -> Selftest:
    workload = Selftest()
    workload.setup(
        SelftestConfig(**{"size": 8, "products": 100, **config}),
        {"delay": delay},
        Context(Device(), tmp_path, tmp_path),
    )
    for _ in range(2):
        workload.step(NoClock())
    return workload


@pytest.mark.parametrize(("delay", "products"), [(0, 800), (1, 808), (100, 1600)])
def test_a_delay_is_that_many_per_cent_more_products(tmp_path: Path, delay: int, products: int) -> None:
    workload = ran(tmp_path, delay, products=400)
    assert workload.counters() == {"products": products}
    assert workload.progress() == 2


def test_every_counted_product_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    product = torch.mm
    monkeypatch.setattr(torch, "mm", lambda *a, **k: calls.append(1) or product(*a, **k))
    assert ran(tmp_path, 10).counters()["products"] == len(calls) == 220


def test_a_delay_changes_no_result(tmp_path: Path) -> None:
    results = [ran(tmp_path, delay).evidence().tensors["product"] for delay in (0, 10)]
    assert torch.equal(*results) and results[0].abs().sum() > 0


@pytest.mark.parametrize("config", [{"size": 0}, {"products": 99}])
def test_what_could_not_hold_one_per_cent_is_refused(tmp_path: Path, config: dict) -> None:
    with pytest.raises(ConfigError, match="1 % is no product"):
        ran(tmp_path, 0, **config)
