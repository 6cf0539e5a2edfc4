"""The figure of several ranks is the slowest rank's; which libraries ranks exchange by, and who waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from folder_names import NAMES

from perfsweep.pipelines.trial import ranks
from perfsweep.pipelines.trial.ranks import Profiled, Region
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere


def region(node: str, *parts: int) -> Region:
    return Region(node, parts, np.asarray(parts))


def test_the_slowest_rank_of_each_part_counts_since_all_begin_it_together() -> None:
    together = [region("n1", 5, 9), region("n2", 7, 4)]
    assert ranks.slowest_ns(together) == 7 + 9
    assert ranks.figures(together).region_ns == (14, 11)
    assert ranks.figures(together).nodes == ("n1", "n2")
    assert {name: list(times) for name, times in ranks.iteration_arrays(together).items()} == {
        "rank0_wall_ns": [5, 9],
        "rank1_wall_ns": [7, 4],
    }


def shares(*profiled: Profiled) -> tuple[float | None, float | None]:
    found = ranks.with_shares(ranks.figures([region("n1", 1)] * len(profiled)), profiled)
    return found.collectives, found.straggling


def test_each_collective_has_its_own_last_rank() -> None:
    """Sums over the iteration would hide that the ranks take turns in being late; clocks need not agree."""
    one, other = Profiled(100, ((0, 20), (50, 55))), Profiled(100, ((900, 905), (950, 970)))
    assert sum(end - start for start, end in one.spans) == sum(end - start for start, end in other.spans)
    assert shares(one, other) == (pytest.approx(0.25), pytest.approx(0.15))


def test_waiting_for_several_collectives_at_once_is_waiting_once() -> None:
    early, late = Profiled(100, ((0, 50), (0, 50))), Profiled(100, ((40, 50), (40, 50)))
    assert shares(early, late)[1] == pytest.approx(0.2)


@pytest.mark.parametrize("other", [(), ((0, 1), (2, 3))])
def test_nothing_is_said_where_ranks_took_part_in_different_collectives_or_none(other) -> None:
    assert shares(Profiled(10, ((0, 1),)), Profiled(10, other)) == (None, None)
    assert shares(Profiled(10, ()), Profiled(10, ())) == (None, None)


def event(name: str, device: str, start: float = 1.0, end: float = 2.0) -> Any:
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(start=start, end=end))


@pytest.mark.parametrize(
    ("name", "device", "counts"),
    [
        ("gloo:all_reduce", "DeviceType.CPU", True),
        ("ncclDevKernel_AllReduce", "DeviceType.CUDA", True),
        ("nccl:all_reduce", "DeviceType.CPU", False),
        ("gemm", "DeviceType.CUDA", False),
    ],
)
def test_collectives_are_gloos_calls_and_nccls_kernels(name: str, device: str, counts: bool) -> None:
    assert list(ranks._collectives([event(name, device)])) == [(1.0, 2.0)] * counts


RANK = """
import os
import sys
from pathlib import Path
import torch.distributed as dist
from perfsweep.pipelines.trial import ranks
from perfsweep.workloads.api import Device
rank, backends, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
ranks.BACKENDS["cpu"] = backends
ranks.join(Device(), ranks.Place(rank, 2, 0, rank, 2), folder)
print(ranks.agree(rank == 0, 2), ranks.leads(2), flush=True)
os._exit(0)  # as trials do: threads of the process group may abort while the interpreter is torn down
"""


def two_ranks(backends: str, folder: Path) -> list[str]:
    """What two ranks print that meet with these backends."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), backends, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    return [rank.communicate(timeout=120)[0] for rank in ranks]


@pytest.mark.slow
def test_hosts_of_ranks_on_gpus_can_agree(tmp_path: Path) -> None:
    # Gloo is in the place of NCCL, which needs a GPU; which library serves which tensors is the same.
    backends = ranks.BACKENDS["cuda"].replace("nccl", "gloo")
    folder = tmp_path.joinpath(*NAMES)
    folder.mkdir(parents=True)
    assert two_ranks(backends, folder) == ["True True\n", "True False\n"]


def test_ranks_without_a_gpu_each_are_refused_before_they_hang(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedHere, match="4 ranks need a GPU each, and this job sees 2; ask for more"):
        ranks.join(Device("cuda", 2), ranks.Place(0, 4, 0, 0, 4), tmp_path)
