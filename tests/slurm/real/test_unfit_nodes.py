"""A job that gets less than it asked for ends at once, moves once, and never measures on the CPU instead."""

from __future__ import annotations

import pytest
from bench import Bench, ends, over

from perfsweep.slurm.element import UNFIT
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.journal import Journal
from perfsweep.slurm.states import End

pytestmark = pytest.mark.slow


def test_a_sweep_on_gpus_that_torch_does_not_see_ends_at_once_with_one_sentence(bench: Bench) -> None:
    """The nodes of this cluster pretend their GPUs, and the torch of the tests is one for the CPU."""
    shared = ("cluster.packs_per_job=2", "axes.slab=[2,3,4,5]", "cluster.arms_per_pack=2")
    done = bench.perfsweep(*bench.sweep("cluster.gpus=1", *shared))
    assert done.returncode == 1, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert (
        "broke off: asked for 1 GPU, torch " in said and " sees 0: install a torch that is built with" in said
    )
    assert bench.records() == [], "nothing was measured"
    journal = Journal(bench.folder / "runs/toy/submissions.jsonl")
    assert {end for one in journal.submissions.values() for end in one.ended.values()} == {End.FAILED}
    assert len({name for one in journal.submissions.values() for name in one.names}) == len(
        [name for one in journal.submissions.values() for name in one.names]
    ), "another node has no other torch"


def test_a_node_that_lacks_what_was_asked_for_is_left_out_once(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("p000", f"echo $SLURMD_NODENAME >> nodes; echo asked for 1 GPU; exit {UNFIT}")])
    assert over(ex) == {"p000": JobState.FAILED}
    first, second = bench.text("nodes").split()
    assert first != second
    assert ends(ex, "p000") == [End.UNFIT, End.UNFIT]
    assert bench.said == [f"p000: asked for 1 GPU; submitting it again, without {first}"]
    assert ex.notes() == {"p000": "asked for 1 GPU"}
