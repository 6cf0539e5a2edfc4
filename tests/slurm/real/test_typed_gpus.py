"""Nodes with several GPUs of a named type: what a job sees, however it asks, and what it must never see."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import Bench, over
from dev_slurm.cluster import DevCluster
from waiting import until

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.site import GPU_FLAGS

pytestmark = pytest.mark.slow

SHOW = 'echo "sees [$CUDA_VISIBLE_DEVICES]"'
SBATCH = Path(__file__).parents[3] / "slurm" / "sweep.sbatch"


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
@pytest.mark.parametrize("kind", ["h100", None])
def test_each_way_of_asking_gives_as_many_as_were_asked_for(rack: Bench, flag: str, kind: str | None) -> None:
    two = rack.executor(gpus=2, gpu_flag=flag, gpu_type=kind)
    two.submit([rack.job("two", SHOW)])
    assert over(two) == {"two": JobState.ENDED}
    assert len(set(seen(rack.text("packs/two/log.txt")))) == 2


def test_two_jobs_side_by_side_share_none(rack: Bench) -> None:
    waits = f"{SHOW}; touch up-$SLURM_ARRAY_TASK_ID; until [ -e up-0 ] && [ -e up-1 ]; do sleep 0.1; done"
    both = rack.executor(gpus=2, gpu_type="h100")
    both.submit([rack.job("one", waits), rack.job("other", waits)])
    assert over(both) == {"one": JobState.ENDED, "other": JobState.ENDED}
    one, other = (set(seen(rack.text(f"packs/{name}/log.txt"))) for name in ("one", "other"))
    assert len(one) == len(other) == 2 and not one & other


def test_a_job_of_two_ranks_has_a_gpu_for_each(rack: Bench) -> None:
    ranked = rack.executor(gpus=1, gpu_type="h100")
    ranked.submit([dataclasses.replace(rack.job("ranks", SHOW), ranks=2), rack.job("alone", SHOW)])
    assert set(over(ranked).values()) == {JobState.ENDED}
    counts = [len(seen(rack.text(f"packs/{name}/log.txt"))) for name in ("ranks", "alone")]
    assert counts == [2, 1]


def test_without_gpus_none_is_seen(rack: Bench) -> None:
    none = rack.executor(gpus=0)
    none.submit([rack.job("none", SHOW)])
    assert over(none) == {"none": JobState.ENDED}
    assert seen(rack.text("packs/none/log.txt")) == []


def test_another_type_is_refused_by_its_field(rack: Bench) -> None:
    with pytest.raises(ClusterError, match=r"cluster\.gpus, gpu_type or gpu_flag|cluster\.gpus"):
        rack.executor(gpus=1, gpu_type="a100").submit([rack.job("a100", SHOW)])


@pytest.mark.parametrize(("asked", "count"), [(["--gres=gpu:h100:2"], 2), (["--gpus=1"], 1), ([], 0)])
def test_a_sweep_in_an_allocation_sees_what_it_asked_for(rack: Bench, asked: list[str], count: int) -> None:
    command, log = rack.folder / "perfsweep", rack.folder / "log.txt"
    command.write_text(f"#!/bin/sh\n{SHOW}\n")
    command.chmod(0o755)
    own = ["--parsable", "--mem=100", "--cpus-per-task=1", f"--chdir={rack.folder}", "-o", str(log), *asked]
    env = rack.env({"PERFSWEEP": str(command)})
    job = rack.cluster.client("sbatch", *own, str(SBATCH), env=env).strip()
    until(lambda: rack.show(job)["JobState"] in ("COMPLETED", "FAILED"), "its end")
    assert len(seen(log.read_text())) == count
    assert ("has no GPU" in log.read_text()) is (count == 0)
