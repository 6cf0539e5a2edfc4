"""Where packs of a local sweep run: one slot for each GPU that is ours, or one on CPU."""

from __future__ import annotations

import pytest

from pipelines.config.types import ClusterConfig
from pipelines.execution import launch
from slurm.errors import ClusterError
from workloads.api import Device

TWO_GPUS = Device("cuda", 2, "H200")


def visible(slots: list[dict[str, str]]) -> list[str]:
    return [slot["CUDA_VISIBLE_DEVICES"] for slot in slots]


def test_a_cpu_has_one_slot_unless_more_are_asked_for() -> None:
    assert launch._slots(ClusterConfig(), Device()) == [{}]
    assert launch._slots(ClusterConfig(slots=2), Device()) == [{}, {}]


def test_every_gpu_has_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible(launch._slots(ClusterConfig(), TWO_GPUS)) == ["0", "1"]


@pytest.mark.parametrize("given", ["4,6", "GPU-aa, GPU-bb"])
def test_only_the_gpus_of_the_allocation_are_used(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert visible(launch._slots(ClusterConfig(), TWO_GPUS)) == [name.strip() for name in given.split(",")]
    assert len(launch._slots(ClusterConfig(slots=1), TWO_GPUS)) == 1


def test_more_slots_than_gpus_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"cluster\.slots=3 is more than the 2 GPUs"):
        launch._slots(ClusterConfig(slots=3), TWO_GPUS)
