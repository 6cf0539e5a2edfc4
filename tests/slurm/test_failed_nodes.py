"""A job of several nodes that one failed under is tried again without that one, and with the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_ins import executor_on, job, program

from perfsweep.slurm.client import Sighting, SlurmClient
from perfsweep.slurm.observation import failed_nodes
from perfsweep.slurm.site import SiteProfile

JOB = "JobId=7 ArrayJobId=7 ArrayTaskId=0 JobState=NODE_FAIL Reason=NodeDown"


def answers(folder: Path, states: tuple[str, str], shown: str = JOB) -> None:
    """A Slurm of two nodes, and what it says of a job that it ended."""
    rows = "\n".join(f"NodeName=n{n} Arch=x86_64 State={state} Cores=1" for n, state in enumerate(states, 1))
    texts = {"hostnames": "n1\nn2", "job": shown, "node": rows, "config": "ClusterName = dev"}
    cases = "\n".join(f"{word}) cat <<'END'\n{text}\nEND\n;;" for word, text in texts.items())
    program(folder, "scontrol", f'case "$2" in\n{cases}\nesac')


@pytest.mark.parametrize(
    ("states", "shown", "names", "words"),
    [
        (("IDLE", "DOWN*"), JOB, ("n2",), ", without n2"),
        # The stand-in takes any text for both names: that it was asked about this one is what counts.
        (("IDLE", "IDLE"), f"{JOB} FailedNode=n[1-2]", ("n1", "n2"), ", without n1 and n2"),
        (
            ("IDLE", "IDLE"),
            JOB,
            ("n1", "n2"),
            ", without n1 and n2: Slurm does not say which of its nodes failed",
        ),
    ],
    ids=["down now", "named by Slurm", "working again"],
)
def test_the_node_that_failed_is_asked_for(
    stand_in: Path, states: tuple[str, str], shown: str, names: tuple[str, ...], words: str
) -> None:
    answers(stand_in, states, shown)
    found = failed_nodes(SlurmClient(), Sighting("7", 0, "7", "NODE_FAIL", node="n[1-2]"))
    assert found == (names, words)


def test_a_slurm_that_does_not_answer_leaves_it_open(stand_in: Path) -> None:
    program(stand_in, "scontrol", "exit 1")
    _, words = failed_nodes(SlurmClient(), Sighting("7", 0, "7", "NODE_FAIL", node="n[1-2]"))
    assert words == ", without n[1-2]: Slurm does not say which of its nodes failed"


REFUSES = """grep -q 'exclude=n2' "$1" || { echo Submitted batch job 8; exit; }
echo 'sbatch: error: Batch job submission failed: Requested node configuration is not available' >&2
exit 1"""


def test_where_too_few_nodes_are_left_those_that_failed_are_not_excluded(
    stand_in: Path, tmp_path: Path
) -> None:
    answers(stand_in, ("IDLE", "DOWN*"))
    ex = executor_on(SiteProfile(poll_min_s=0.01, fs_delay_s=0, gpus=0, nodes=2), tmp_path / "sweep")
    said: list[str] = []
    ex._say = said.append
    program(stand_in, "sbatch", "echo Submitted batch job 7")
    ex.submit([job("p000", ranks=2)])
    (token,) = ex.journal.submissions
    program(stand_in, "squeue", f"echo '7|0|7|NODE_FAIL|NodeDown|n[1-2]|perfsweep:{token}|demo.{token}'")
    program(stand_in, "sbatch", REFUSES)
    ex._next_poll = 0.0
    ex.poll()
    assert [s.array for s in ex.journal.submissions.values() if s.refused is None] == ["7", "8"]
    assert said == [
        "p000: node failed by Slurm's word (NODE_FAIL NodeDown); submitting it again, without n2",
        "too few nodes are left without n2, which failed: packs may run there again",
    ]
