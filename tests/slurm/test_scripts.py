"""A training script as it is, measured by jobs of a real Slurm."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest
from bench import Bench
from scripted import SCRIPTS
from waiting import until

from slurm.journal import Journal

pytestmark = pytest.mark.slow

BESIDE = """
path: train.py
args: --width=32
sweeps:
  quick:
    toggles: [optimizer]
    measure: {rounds: 2, iterations: 20, servers: 2, repeats: 0, look: true}
"""


def submitted(journal: Path) -> list[str]:
    """Slurm's numbers of a sweep's submissions."""
    return [one.array for one in Journal(journal).submissions.values() if one.array]


def test_jobs_measure_the_script_as_it_was_when_they_were_submitted(bench: Bench) -> None:
    shutil.copy(SCRIPTS / "plain.py", bench.folder / "train.py")
    (bench.folder / "train.yaml").write_text(BESIDE)
    site = (f"cluster.slurm_conf={bench.cluster.settings.conf}", "cluster.poll_max_s=0.5")
    sweep = bench.start(
        *(
            "sweep",
            "workload=script:train.yaml",
            "cluster=dev",
            "tracking=disabled",
            "cluster.cpus_per_task=1",
        ),
        *(*site, "cluster.sbatch=[--hold]", "cluster.fs_delay_s=1"),
    )
    arrays = partial(submitted, bench.folder / "runs" / "train-quick" / "submissions.jsonl")
    until(lambda: bool(arrays()), "the submission")
    (bench.folder / "train.py").write_text("raise SystemExit('edited while the jobs wait')\n")
    for array in arrays():
        bench.cluster.client("scontrol", "release", array)
    output, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, output
    assert re.search(r"optimizer=fused +\S.* (tolerance|identical)", output), output
