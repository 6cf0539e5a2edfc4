"""A module of the user, and what it imports, measured by jobs of a real Slurm as they were submitted."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from bench import Bench
from waiting import until

from perfsweep.slurm.journal import Journal

pytestmark = pytest.mark.slow

OWN = """
from dataclasses import dataclass
from pathlib import Path

import my_parts
import torch
from my_sizes import SIZE

from perfsweep.workloads.api import Check, Evidence, Level, Toggle, Workload


@dataclass
class Config:
    size: int = SIZE


class Sums(Workload):
    Config = Config
    toggles = (Toggle("add", (Level("twice"), Level("once", witness="additions")), "in parts, or at once"),)
    checks = (Check("total"),)

    def setup(self, config, levels, context):
        self.total = torch.zeros(config.size, dtype=torch.float64)
        self.step_by = float(Path(__file__).with_name("size.txt").read_text())
        self.parts = 1 if levels["add"] == "once" else my_parts.PARTS
        self.additions = self.steps = 0

    def step(self, clock):
        for _ in range(self.parts):
            self.total += self.step_by / self.parts
        self.additions += self.parts
        self.steps += 1

    def progress(self):
        return float(self.steps)

    def evidence(self):
        return Evidence({"total": self.total})

    def counters(self):
        return {"additions": self.additions}
"""

CONF = "cluster.slurm_conf"
HELD = (
    *("cluster=dev", "tracking=disabled", "cluster.cpus_per_task=1", "cluster.poll_max_s=0.5"),
    *("cluster.sbatch=[--hold]", "cluster.fs_delay_s=1"),
)


def conf(bench: Bench) -> str:
    return str(bench.cluster.settings.conf)


def edited_while_held(bench: Bench, sweep: subprocess.Popen[str], name: str, *files: Path) -> str:
    """Output of a sweep whose sources are spoilt while its jobs are held."""
    arrays = partial(submitted, bench.folder / "runs" / name / "submissions.jsonl")
    until(lambda: bool(arrays()) or sweep.poll() is not None, "the submission")
    for file in files:
        file.write_text("raise SystemExit('edited while the jobs wait')\n")
    for array in arrays():
        bench.cluster.client("scontrol", "release", array)
    output, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, output
    return output


def submitted(journal: Path) -> list[str]:
    """Slurm's numbers of a sweep's submissions."""
    return [one.array for one in Journal(journal).submissions.values() if one.array]


def test_jobs_measure_a_module_and_what_it_imports_as_they_were_when_they_were_submitted(
    bench: Bench,
) -> None:
    mine, shared = bench.folder / "mine", bench.folder / "shared"
    files = [mine / "my_sums.py", mine / "my_sizes" / "__init__.py", shared / "my_parts.py"]
    for file, text in zip(files, (OWN, "SIZE = 48\n", "PARTS = 2\n"), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (mine / "size.txt").write_text("3")  # data, which lies beside the module and not beside the copy
    paths = os.pathsep.join([bench.env({})["PYTHONPATH"], str(mine), str(shared)])
    sweep = bench.start(
        *("sweep", "workload=my_sums:Sums", "sweep=ablation", "name=mine", *HELD, f"{CONF}={conf(bench)}"),
        *("measure.rounds=3", "measure.iterations=20", "measure.servers=1", "measure.repeats=0"),
        PYTHONPATH=paths,
    )
    output = edited_while_held(bench, sweep, "mine", *files)
    assert re.search(r"add=once +\S.* (tolerance|identical)", output), output
