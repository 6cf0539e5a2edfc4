"""Nodes with several GPUs of a named type: what a job sees, however it asks, and what it must never see."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import Bench, over
from dev_slurm.cluster import DevCluster

from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.site import GPU_FLAGS

pytestmark = pytest.mark.slow

SHOW = 'echo "sees [$CUDA_VISIBLE_DEVICES]"'


@pytest.fixture(scope="module")
def typed(make_cluster: Callable[..., DevCluster]) -> DevCluster:
    """One node with four GPUs that the cluster calls h100."""
    return make_cluster(nodes=1, gpus=4, gpu_type="h100")


@pytest.fixture
def rack(typed: DevCluster, tmp_path: Path) -> Iterator[Bench]:
    yield Bench(typed, tmp_path)
    typed.client("scancel", "--me", check=False)


def seen(text: str) -> list[str]:
    """Names of the GPUs in a line of `SHOW`."""
    inside = text.split("sees [")[1].split("]")[0]
    return inside.split(",") if inside else []


@pytest.mark.parametrize("flag", GPU_FLAGS)
def test_each_way_of_asking_gives_as_many_as_were_asked_for(rack: Bench, flag: str) -> None:
    two = rack.executor(gpus=2, gpu_flag=flag, gpu_type="h100")
    two.submit([rack.job("two", SHOW)])
    assert over(two) == {"two": JobState.ENDED}
    assert len(set(seen(rack.text("packs/two/log.txt")))) == 2


def test_a_job_of_two_ranks_has_a_gpu_for_each(rack: Bench) -> None:
    ranked = rack.executor(gpus=1, gpu_type="h100")
    ranked.submit([dataclasses.replace(rack.job("ranks", SHOW), ranks=2), rack.job("alone", SHOW)])
    assert set(over(ranked).values()) == {JobState.ENDED}
    counts = [len(seen(rack.text(f"packs/{name}/log.txt"))) for name in ("ranks", "alone")]
    assert counts == [2, 1]
