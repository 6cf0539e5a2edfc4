"""`perfsweep doctor gpu=true` on a cluster: a job checks its node, and its lines come back."""

from __future__ import annotations

import json

import pytest
from bench import Bench


@pytest.mark.slow
def test_a_gpu_check_runs_as_a_job_and_says_what_needs_a_gpu(bench: Bench) -> None:
    conf = f"cluster.slurm_conf={bench.cluster.settings.conf}"
    own = ("cluster.sbatch=[]", "cluster.cpus_per_task=1", "stages=[0,1]")
    done = bench.perfsweep("doctor", "gpu=true", "cluster=dev", conf, *own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 clock           events                   needs a GPU" in done.stdout
    answer = json.loads((bench.folder / "runs/gpu-check/gpu-check.json").read_text())
    verdicts = {line["verdict"] for line in answer["lines"]}
    assert (answer["version"], verdicts) == (1, {"PASS", "needs a GPU"})
    assert {line["stage"][0] for line in answer["lines"]} == set("01")
