"""What the commands decide about jobs on a real Slurm, in the words that a user reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench import Bench, over

from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.journal import Journal
from perfsweep.slurm.states import End

pytestmark = pytest.mark.slow


def toy(bench: Bench) -> Path:
    return bench.folder / "runs" / "toy"


def journal(bench: Bench) -> Journal:
    return Journal(toy(bench) / "submissions.jsonl")


def test_an_arm_whose_memory_ends_the_job_costs_one_submission_and_the_rest_is_measured(bench: Bench) -> None:
    small = ("axes.trouble=[grow]", "axes.work=[single]", "cluster.memory=1800M", "measure.rounds=3")
    done = bench.perfsweep(*bench.sweep(*small))
    assert "memory ran out; submitting it again" in done.stdout, done.stdout + done.stderr
    assert [s.ended[0] for s in journal(bench).submissions.values()] == [End.OOM, End.DONE], done.stdout
    assert journal(bench).tries["p000"] == {End.OOM: 1}
    assert "trouble=grow" in done.stdout and "oom" in done.stdout
    assert "work=single" in done.stdout


@pytest.mark.parametrize(
    ("site", "note", "output"),
    [
        (
            {"setup": ["export FINE=1", "source /nowhere/profile.sh", "export NEVER=1"]},
            "cluster.setup line 2 ended with status 1: source /nowhere/profile.sh",
            "/nowhere/profile.sh: No such file or directory",
        ),
        (
            {"python": "/nowhere/python"},
            "it ended and gave no reason (FAILED NonZeroExitCode)",
            r"/nowhere/python.?: No such file or directory",
        ),
    ],
    ids=["a set-up line that fails", "an interpreter that is missing"],
)
def test_what_ends_a_job_before_its_pack_begins_is_named_with_the_shells_own_words(
    bench: Bench, site: dict[str, object], note: str, output: str
) -> None:
    ex = bench.executor(**site)
    ex.submit([bench.job("p000", "echo ran > ran")])
    assert over(ex) == {"p000": JobState.FAILED}
    assert ex.notes()["p000"].startswith(note)
    said = "".join(file.read_text() for file in ex.outputs(bench.folder)["p000"])
    assert re.search(output, said), said
    assert bench.text("ran") == ""


def test_values_of_env_set_stand_in_no_file_but_the_jobs_own(bench: Bench) -> None:
    setup = "cluster.setup=['test -n $PS_TOKEN']"
    options = ("cluster.env_set.PS_TOKEN=s3cr3t-value", "tracking=offline", setup)
    done = bench.perfsweep(*bench.sweep(*options))
    assert done.returncode == 0, done.stdout + done.stderr
    files = [path for path in bench.folder.rglob("*") if path.is_file()]
    holding = [path for path in files if b"s3cr3t-value" in path.read_bytes()]
    assert [path.relative_to(toy(bench)) for path in holding] == [Path("submissions/env_set.sh")]
    assert holding[0].stat().st_mode & 0o777 == 0o600
    assert "cluster.env_set.PS_TOKEN=***" in bench.text("runs/toy/sweep.yaml").replace("'", "")
    assert "s3cr3t-value" not in done.stdout + bench.perfsweep(*bench.sweep(*options, "dry_run=true")).stdout
