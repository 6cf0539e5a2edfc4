"""Trials of several ranks on two nodes of a real Slurm: where they run, and what ends them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from bench import Bench, alive
from waiting import until

from perfsweep.pipelines.store.records import Outcome, SweepFolder, TrialRecord, read_iterations, read_record

pytestmark = pytest.mark.slow

TWO_NODES = (
    *("workload=toys.joined:Joined", "axes.spread=[two]", "cluster.nodes=2"),
    *("cluster.memory=3G", "measure.rounds=2", "measure.look=true", "measure.timeout_s=300"),
)


def arguments(bench: Bench, *more: str) -> tuple[str, ...]:
    """A sweep of one rank against two, on a node each."""
    others = ("axes.work", "workload=toys.spinner")
    return tuple(word for word in bench.sweep(*TWO_NODES, *more) if not word.startswith(others))


def places(bench: Bench) -> dict[str, list[str]]:
    """What each rank wrote about where it ran: node, process, and its numbers there."""
    files = (bench.folder / "runs/toy/cache").glob("rank*.txt")
    return {file.stem: file.read_text().split() for file in files}


def records(bench: Bench, arm: str = "spread=two") -> list[tuple[Path, TrialRecord]]:
    """Timing trials of an arm."""
    folder = SweepFolder(bench.folder / "runs/toy")
    (identity,) = (one.id for one in folder.read_manifest().arms if one.label == arm)
    found = [
        (path, read_record(path)) for path, _, number, _ in folder.trial_dirs(identity) if "r0" in path.name
    ]
    return [(path, record) for path, record in found if record is not None]


def nothing_runs(bench: Bench) -> None:
    """No rank is left, and no step of the job."""
    until(lambda: not any(alive(int(place[1])) for place in places(bench).values()), "the end of all ranks")
    until(lambda: not bench.cluster.client("squeue", "-h", "--steps").strip(), "the end of all steps")


def test_each_rank_runs_on_a_node_of_its_own_and_the_slowest_counts(bench: Bench) -> None:
    done = bench.perfsweep(*arguments(bench, "workload.late_s=0.02"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on each of 2 nodes" in done.stdout
    found = places(bench)
    assert [found[f"rank{rank}of2"][0] for rank in (0, 1)] == ["n1", "n2"]
    assert [found[f"rank{rank}of2"][2:] for rank in (0, 1)] == [
        ["0", "0", "1", "127.0.0.1"],
        ["1", "0", "1", "127.0.0.1"],
    ]
    waits = []
    for path, record in records(bench):
        assert record.outcome is Outcome.OK and record.ranks is not None
        assert record.ranks.nodes == ("n1", "n2")
        assert record.region_ns == max(record.ranks.region_ns)
        arrays = read_iterations(path)
        assert [len(arrays[f"rank{rank}_wall_ns"]) for rank in (0, 1)] == [record.iterations] * 2
        assert not np.array_equal(arrays["rank0_wall_ns"], arrays["rank1_wall_ns"])
        assert record.ranks.straggling is not None
        waits.append(record.ranks.straggling)
    # A neighbour may hold up the profiler of one round: the share of the time is small there.
    assert max(waits) > 0.1, "rank 0 waits for rank 1"
    nothing_runs(bench)


def cancel_step(bench: Bench) -> None:
    """End the step of the second node, as an administrator may."""
    steps = bench.cluster.client("squeue", "-h", "--steps", "-o", "%i %N").splitlines()
    (step,) = (line.split()[0] for line in steps if line.split()[1] == "n2" and "batch" not in line)
    bench.cluster.client("scancel", "--signal=KILL", step)


def test_a_step_that_is_lost_is_an_outcome(bench: Bench) -> None:
    running = stopped(bench)
    cancel_step(bench)
    until(lambda: lost(bench), "the record of the lost node", 60)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=120)
    bench.perfsweep("cancel", "runs/toy")
    nothing_runs(bench)
    assert lost(bench), "the outcome stays once everything has ended"


def stopped(bench: Bench, *more: str) -> subprocess.Popen[str]:
    """A sweep of which rank 1 has stopped for ever."""
    allowed = "cluster.env_allow=[PERFSWEEP_TOY_FAULT]"
    running = bench.start(*arguments(bench, allowed, *more), PERFSWEEP_TOY_FAULT="1 stop")
    cache = bench.folder / "runs/toy/cache"
    until(lambda: (cache / "stopped").exists(), "rank 1 to stop for ever")
    return running


def lost(bench: Bench) -> bool:
    """Whether a trial is recorded as one of which a node was lost."""
    files = (bench.folder / "runs/toy/trials").glob("*/*/record.json")
    return any((json.loads(file.read_text())["failure"] or {}).get("type") == "NodeLost" for file in files)
