"""sweep.sbatch without Slurm: what a sweep inside it sees of a node's GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "slurm" / "sweep.sbatch"


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A command that prints its arguments and what it sees."""
    file = tmp_path / "perfsweep"
    file.write_text('#!/bin/sh\necho "$* on [${CUDA_VISIBLE_DEVICES-all}]"\n')
    file.chmod(0o755)
    return file


def ran(command: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "PERFSWEEP": str(command), **variables}
    return subprocess.run(
        ["bash", SCRIPT, "workload=digits"], env=env, capture_output=True, text=True, check=True
    )


@pytest.mark.parametrize("name", ["SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"])
def test_a_job_with_gpus_sees_what_slurm_lets_it_see(command: Path, name: str) -> None:
    done = ran(command, **{name: "2"})
    assert (done.stdout, done.stderr) == ("sweep cluster=local workload=digits on [all]\n", "")


def test_the_choice_of_an_allocation_stays(command: Path) -> None:
    assert ran(command, CUDA_VISIBLE_DEVICES="2,3").stdout.endswith("on [2,3]\n")


def test_a_job_that_asked_for_no_gpu_uses_nobody_elses_and_says_so(command: Path) -> None:
    done = ran(command)
    assert done.stdout.endswith("on []\n")
    assert "has no GPU, so the sweep is measured on CPU; for one: sbatch --gres=gpu:1" in done.stderr
