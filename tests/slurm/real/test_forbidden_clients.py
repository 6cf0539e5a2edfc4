"""Sites where one of Slurm's programs is not for users: a sweep ends well, or says which it was."""

from __future__ import annotations

import os

import pytest
from bench import Bench

pytestmark = pytest.mark.slow


def without(bench: Bench, program: str) -> str:
    """A PATH on which a program refuses as a site's wrapper does."""
    folder = bench.folder / "wrappers"
    folder.mkdir()
    (folder / program).write_text(f"#!/bin/sh\necho '{program}: access denied for users' >&2\nexit 1\n")
    (folder / program).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("program", ["scontrol", "squeue", "sacct"])
def test_a_sweep_is_followed_to_its_end_without_one_of_them(bench: Bench, program: str) -> None:
    done = bench.perfsweep(
        *bench.sweep("measure.rounds=2", "measure.look=true"), PATH=without(bench, program)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(bench.records()) == 4
    told = f"{program} is not for you here ({program}: access denied for users)"
    assert told in done.stdout


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("sbatch", "Slurm refuses the sweep: access denied for users; `perfsweep doctor"),
        ("srun", "Slurm's output ends: srun: access denied for users"),
    ],
)
def test_what_a_sweep_cannot_do_without_is_named(bench: Bench, program: str, sentence: str) -> None:
    done = bench.perfsweep(
        *bench.sweep("measure.rounds=2", "measure.look=true"), PATH=without(bench, program)
    )
    assert done.returncode != 0
    assert sentence in " ".join((done.stdout + done.stderr).split())
    assert bench.records() == []
