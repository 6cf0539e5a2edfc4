"""Steps on the other nodes of an allocation see as much of the nodes as the job was given."""

from __future__ import annotations

import pytest

from slurm.allocation import Allocation


@pytest.mark.parametrize(
    ("hides", "words"), [(True, ["env", "CUDA_VISIBLE_DEVICES=", "work"]), (False, ["work"])]
)
def test_a_step_of_a_job_without_gpus_sees_none(hides: bool, words: list[str]) -> None:
    allocation = Allocation(("n1", "n2"), "localhost", hides_gpus=hides)
    command = allocation.command("n2", ["work"])
    assert command[command.index("--export=ALL") + 1 :] == words
