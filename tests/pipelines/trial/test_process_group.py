"""Ranks on GPUs exchange gradients by one library and what their hosts decide by another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from folder_names import NAMES

from perfsweep.pipelines.trial import process_group
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere

RANK = """
import os
import sys
from pathlib import Path
import torch.distributed as dist
from perfsweep.pipelines.trial import process_group
from perfsweep.workloads.api import Device
rank, backends, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
process_group.BACKENDS["cpu"] = backends
process_group.join(Device(), process_group.Place(rank, 2, 0, rank, 2), folder)
print(process_group.agree(rank == 0, 2), process_group.leads(2), flush=True)
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
    # Gloo stands for NCCL, which needs a GPU; which library serves which tensors is the same.
    backends = process_group.BACKENDS["cuda"].replace("nccl", "gloo")
    folder = tmp_path.joinpath(*NAMES)
    folder.mkdir(parents=True)
    assert two_ranks(backends, folder) == ["True True\n", "True False\n"]


def test_ranks_without_a_gpu_each_are_refused_before_they_hang(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedHere, match="4 ranks need a GPU each, and this job sees 2; ask for more"):
        process_group.join(Device("cuda", 2), process_group.Place(0, 4, 0, 0, 4), tmp_path)
