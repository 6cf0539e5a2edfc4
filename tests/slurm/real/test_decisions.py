"""What the commands decide about jobs on a real Slurm, in the words that a user reads."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from bench import Bench
from waiting import until

from perfsweep.slurm.journal import Journal
from perfsweep.slurm.states import End

pytestmark = pytest.mark.slow

SLOW_TOY = ("workload.products=300", "measure.iterations=240")


def toy(bench: Bench) -> Path:
    return bench.folder / "runs" / "toy"


def journal(bench: Bench) -> Journal:
    return Journal(toy(bench) / "submissions.jsonl")


def hosts_with_records(bench: Bench) -> set[bool]:
    """Whether trials ran in a job of Slurm, over all of them."""
    records = bench.folder.glob("runs/toy/trials/*/*/record.json")
    return {bool(json.loads(record.read_text())["environment"].get("slurm")) for record in records}


def silence(bench: Bench) -> str:
    """A slurm.conf of a controller that nobody answers for."""
    file = bench.folder / "silent.conf"
    text = bench.cluster.settings.conf.read_text()
    port = f"SlurmctldPort={bench.cluster.settings.port}"
    file.write_text(text.replace(port, "SlurmctldPort=9"))
    return f"cluster.slurm_conf={file}"


def test_where_any_place_was_asked_for_this_machine_measures_unless_jobs_are_on_slurm(bench: Bench) -> None:
    first = bench.start(*bench.sweep(*SLOW_TOY))
    until(lambda: bench.records(), "a first record")
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)
    auto = (*bench.sweep(*SLOW_TOY, "cluster.executor=auto"), silence(bench))
    refused = bench.perfsweep(*auto)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "p000 may still run on Slurm, so nothing is measured here" in refused.stderr
    assert "perfsweep wait runs/toy" in refused.stderr and "perfsweep cancel runs/toy" in refused.stderr
    waited = bench.perfsweep("wait", "runs/toy")
    assert waited.returncode == 0, waited.stdout + waited.stderr
    assert hosts_with_records(bench) == {True}, "one machine in each pack"
    here = bench.perfsweep(*bench.sweep("cluster.executor=auto", "name=here"), silence(bench))
    assert here.returncode == 0, here.stdout + here.stderr
    assert "Slurm's controller does not answer: measuring on this machine" in here.stdout


def test_an_arm_whose_memory_ends_the_job_costs_one_submission_and_the_rest_is_measured(bench: Bench) -> None:
    small = ("axes.trouble=[grow]", "axes.work=[single]", "cluster.memory=1800M", "measure.rounds=6")
    done = bench.perfsweep(*bench.sweep(*small))
    assert "memory ran out; submitting it again" in done.stdout, done.stdout + done.stderr
    ends = [s.ended[0] for s in journal(bench).submissions.values()]
    assert ends == [End.OOM, End.DONE], done.stdout
    assert journal(bench).tries["p000"] == {End.OOM: 1}
    assert "trouble=grow" in done.stdout and "oom" in done.stdout
    assert "work=single" in done.stdout
    again = bench.perfsweep(*bench.sweep(*small))
    assert len(journal(bench).submissions) == 2, again.stdout


def test_a_set_up_line_that_fails_ends_the_pack_and_is_named(bench: Bench) -> None:
    lines = "cluster.setup=['export FINE=1','source /nowhere/profile.sh','export NEVER=1']"
    done = bench.perfsweep(*bench.sweep(lines))
    assert done.returncode == 1, done.stdout + done.stderr
    sentence = "cluster.setup line 2 ended with status 1: source /nowhere/profile.sh"
    assert f"pack p000 broke off: {sentence}" in done.stdout
    assert "/nowhere/profile.sh: No such file or directory" in done.stdout, "the shell's own words"
    assert bench.records() == []
    assert [s.ended[0] for s in journal(bench).submissions.values()] == [End.FAILED], "tried once"
    logs = bench.perfsweep("logs", "runs/toy")
    assert f"p000: perfsweep: {sentence}" in logs.stdout
    status = bench.perfsweep("status", "runs/toy")
    assert "cluster.setup line 2 ended" in status.stdout, "the table breaks what follows"


def test_an_interpreter_that_is_missing_is_told_in_slurms_words(bench: Bench) -> None:
    done = bench.perfsweep(*bench.sweep("cluster.python=/nowhere/python"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pack p000 broke off: it ended and gave no reason (FAILED NonZeroExitCode)" in done.stdout
    words = re.compile(r"/nowhere/python.?: No such file or directory")
    assert words.search(done.stdout), done.stdout
    logs = bench.perfsweep("logs", "runs/toy")
    assert words.search(logs.stdout), logs.stdout


def test_a_pack_that_its_partition_will_never_start_ends_the_command_with_status_3(bench: Bench) -> None:
    bench.cluster.client("scontrol", "create", "PartitionName=short", "Nodes=ALL", "MaxTime=1")
    try:
        done = bench.perfsweep(*bench.sweep("cluster.partition=short"))
    finally:
        bench.cluster.client("scancel", "--me", check=False)
        until(lambda: not bench.cluster.client("squeue", "-h", "-p", "short"), "an empty partition")
        bench.cluster.client("scontrol", "delete", "PartitionName=short", check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "1 pending (PartitionTimeLimit)" in done.stdout
    sentence = "p000: pending: PartitionTimeLimit: lower cluster.time_min, or choose another partition"
    assert f"nothing more will happen by itself: {sentence}" in " ".join(done.stdout.split())


def test_values_of_env_set_stand_in_no_file_but_the_jobs_own(bench: Bench) -> None:
    setup = "cluster.setup=['test -n $PS_TOKEN']"
    options = ("cluster.env_set.PS_TOKEN=s3cr3t-value", "tracking=offline", setup)
    done = bench.perfsweep(*bench.sweep(*options))
    assert done.returncode == 0, done.stdout + done.stderr
    assert bench.perfsweep("compare", "runs/toy").returncode == 0
    files = [path for path in bench.folder.rglob("*") if path.is_file()]
    holding = [path for path in files if b"s3cr3t-value" in path.read_bytes()]
    assert [path.relative_to(toy(bench)) for path in holding] == [Path("submissions/env_set.sh")]
    assert holding[0].stat().st_mode & 0o777 == 0o600
    assert "cluster.env_set.PS_TOKEN=***" in bench.text("runs/toy/sweep.yaml").replace("'", "")
    assert "s3cr3t-value" not in done.stdout + bench.perfsweep(*bench.sweep(*options, "dry_run=true")).stdout
