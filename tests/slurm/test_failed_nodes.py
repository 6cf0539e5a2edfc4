"""A job of several nodes that one failed under is tried again without that one, and with the others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from bench import WAIT, Bench, ends, over
from stand_ins import executor_on, job, program
from waiting import until

from perfsweep.slurm.client import Sighting, SlurmClient
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.observation import FailedNodes
from perfsweep.slurm.site import SiteProfile
from perfsweep.slurm.states import End

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
    found = FailedNodes.of(SlurmClient(), Sighting("7", 0, "7", "NODE_FAIL", node="n[1-2]"))
    assert (found.names, found.words) == (names, words)


def test_a_slurm_that_does_not_answer_leaves_it_open(stand_in: Path) -> None:
    program(stand_in, "scontrol", "exit 1")
    found = FailedNodes.of(SlurmClient(), Sighting("7", 0, "7", "NODE_FAIL", node="n[1-2]"))
    assert found.words == ", without n[1-2]: Slurm does not say which of its nodes failed"


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


@pytest.mark.slow
def test_a_job_of_two_nodes_moves_to_the_one_that_works_and_a_third(make_cluster, tmp_path: Path) -> None:
    bench = Bench(make_cluster(nodes=3), tmp_path)
    ex = bench.executor(requeue=False, nodes=2)
    where = f"scontrol show hostnames | paste -sd' ' >> nodes; {WAIT}"
    ex.submit([bench.job("moved", where)])
    until(lambda: ex.poll() and bench.text("nodes"), "the start")
    kept, failed = bench.text("nodes").split()
    # A node whose daemon lives comes back at once, and nothing says any more that it had failed.
    os.kill(int(bench.cluster.settings.pid_file(f"slurmd-{failed}").read_text()), signal.SIGKILL)
    bench.cluster.client("scontrol", "update", f"NodeName={failed}", "State=DOWN", "Reason=test")
    until(lambda: ex.poll() and len(bench.text("nodes").splitlines()) == 2, "a second try")
    (bench.folder / "go").touch()
    assert over(ex) == {"moved": JobState.ENDED}
    assert ends(ex, "moved") == [End.NODE_FAIL, End.DONE]
    assert ex.journal.bad_nodes == {failed}
    assert kept in bench.text("nodes").splitlines()[1].split()
    (said,) = (text for text in bench.said if "moved" in text)
    assert said.endswith(f"submitting it again, without {failed}")
