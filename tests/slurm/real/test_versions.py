"""Versions of the user's code as arms of jobs on a real Slurm: each job runs the commits that were named."""

from __future__ import annotations

import re

import pytest
from bench import Bench
from git_repository import git, state
from versioned import scripted

pytestmark = pytest.mark.slow

FEW = (
    *("measure.iterations=10", "measure.warmup_max=10", "measure.evidence_iterations=4", "measure.rounds=3"),
    *("measure.servers=1", "measure.repeats=0", "measure.timed_parity=false", "tracking=disabled"),
)


def place(bench: Bench, folder: str) -> tuple[str, ...]:
    """Overrides for the cluster of a test, with the records outside the repository."""
    conf = f"cluster.slurm_conf={bench.cluster.settings.conf}"
    quick = ("cluster.poll_min_s=0.2", "cluster.poll_max_s=0.5", "cluster.fs_delay_s=1", "cluster.sbatch=[]")
    return ("cluster=dev", conf, *quick, "cluster.cpus_per_task=1", f"runs={bench.folder / folder}")


def test_commits_of_a_script_are_arms_of_one_job_and_the_checkout_stays_as_it_is(bench: Bench) -> None:
    root = scripted(bench.folder / "repo")
    git(root, "reset", "-q", "--hard", "changed")
    before = state(root)
    script = ("workload=script", "workload.path=train.py", "axes.commit=[base,comment,changed]")
    done = bench.perfsweep("sweep", *script, "name=versions", *FEW, *place(bench, "runs"), cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"commit=comment .*identical", done.stdout), done.stdout
    assert re.search(r"commit=changed .*different: ", done.stdout), done.stdout
    packs = [one.name for one in (bench.folder / "runs" / "versions" / "packs").iterdir()]
    assert packs == ["p000"]
    assert state(root) == before
