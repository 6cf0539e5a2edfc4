"""Sites where one of Slurm's programs is not for users: a sweep ends well, or says which it was."""

from __future__ import annotations

import os

import pytest
from bench import Bench

pytestmark = pytest.mark.slow


def without(bench: Bench, *programs: str) -> str:
    """A PATH on which programs refuse as a site's wrappers do."""
    folder = bench.folder / "wrappers"
    folder.mkdir()
    for program in programs:
        (folder / program).write_text(f"#!/bin/sh\necho '{program}: access denied for users' >&2\nexit 1\n")
        (folder / program).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("programs", [("squeue",), ("scontrol", "sacct")], ids=" and ".join)
def test_a_sweep_is_followed_to_its_end_without_some_of_them(bench: Bench, programs: tuple[str, ...]) -> None:
    done = bench.perfsweep(
        *bench.sweep("measure.rounds=2", "measure.look=true"), PATH=without(bench, *programs)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(bench.records()) == 4
    for program in programs:
        assert f"{program} is not for you here ({program}: access denied for users)" in done.stdout


def test_what_a_sweep_cannot_do_without_is_named(bench: Bench) -> None:
    done = bench.perfsweep(*bench.sweep("measure.rounds=2", "measure.look=true"), PATH=without(bench, "srun"))
    assert done.returncode != 0
    assert "Slurm's output ends: srun: access denied for users" in " ".join(
        (done.stdout + done.stderr).split()
    )
    assert bench.records() == []
