"""Daemons that die, limits that are reached, and accounting: what takes Slurm half a minute to notice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from bench import Bench, over, running
from dev_slurm.daemons import binary, pid_in, stop
from waiting import until

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.states import End

WAIT = "while [ ! -e go ]; do sleep 0.1; done"


def ends(ex, name: str) -> list[End]:
    return [s.ended[i] for s in ex.journal.submissions.values() for i in s.ended if s.names[i] == name]


@pytest.fixture
def fragile(make_cluster, tmp_path: Path) -> Bench:
    """A cluster of its own, whose daemons a test may kill."""
    return Bench(make_cluster(slurmd_timeout_s=5), tmp_path)


@pytest.mark.slow
def test_nothing_follows_from_a_controller_that_is_down(fragile: Bench) -> None:
    ex = fragile.executor()
    ex._client.timeout_s = 3.0
    ex.submit([fragile.job("steady", WAIT), fragile.job("quick", "sleep 4")])
    running(ex, "steady", "quick")
    until(
        lambda: len(list((fragile.folder / "submissions").glob("*/*.beat"))) == 2,
        "both steps, which need the controller",
    )
    controller = pid_in(fragile.cluster.settings.pid_file("slurmctld"))
    assert controller
    stop([controller])
    end = time.monotonic() + 12
    while time.monotonic() < end:
        states = ex.poll()
        assert states["steady"] is JobState.RUNNING
        assert states["quick"] in (JobState.RUNNING, JobState.ENDED), "its own record of its end counts"
    assert [text for text in fragile.said if "does not answer" in text] == fragile.said, "one warning"
    assert len(fragile.said) == 1
    fragile.cluster.start_controller()
    until(lambda: ex.poll() and fragile.said[-1] == "Slurm answers again")
    (fragile.folder / "go").touch()
    assert over(ex) == {"steady": JobState.ENDED, "quick": JobState.ENDED}
    assert len(ex.journal.submissions) == 1


@pytest.mark.slow
def test_a_node_that_loses_its_daemon_leaves_a_live_copy_and_one_result(fragile: Bench) -> None:
    """The old copy keeps running and writing while Slurm starts a second one elsewhere."""
    ex = fragile.executor()
    ex.submit([fragile.job("twin", f"echo $SLURMD_NODENAME:$$ >> copies; {WAIT}")])
    until(lambda: ex.poll() and fragile.text("copies"))
    array, node = fragile.array(ex), fragile.text("copies").partition(":")[0]
    fragile.cluster.kill(f"slurmd-{node}")
    until(lambda: ex.poll() and fragile.show(f"{array}_0")["Restarts"] == "1", "Slurm's noticing", 90)
    until(lambda: fragile.show(f"{array}_0")["Reason"] == "BeginTime")
    until(lambda: _started(fragile, array) and len(fragile.text("copies").split()) == 2, "the second copy")
    first, second = (int(line.partition(":")[2]) for line in fragile.text("copies").split())
    assert Path(f"/proc/{first}").exists() and Path(f"/proc/{second}").exists(), "two live copies"
    (fragile.folder / "go").touch()
    assert over(ex) == {"twin": JobState.ENDED}
    assert ends(ex, "twin") == [End.DONE]
    assert len(ex.journal.submissions) == 1


def _started(bench: Bench, array: str) -> bool:
    bench.cluster.client("scontrol", "update", f"JobId={array}_0", "StartTime=now", check=False)
    return True


@pytest.mark.slow
def test_a_real_time_limit_is_survived_by_who_advances_and_final_for_who_does_not(fragile: Bench) -> None:
    ex = fragile.executor(time_min=1, signal_delay_s=20)
    loop = "while :; do sleep 0.1; done"
    ex.submit(
        [
            fragile.job("advances", f"[ -e seen ] && exit 0; trap 'echo x > seen; exit 75' USR2; {loop}"),
            fragile.job("deaf", f"trap '' USR2; echo x >> deaf; {loop}"),
        ]
    )
    array = fragile.array(ex)
    until(
        lambda: ex.poll() and fragile.show(f"{array}_0")["Restarts"] == "1",
        "the requeue before the limit",
        120,
    )
    fragile.start_now(f"{array}_0")
    states = over(ex, 150)
    assert states == {"advances": JobState.ENDED, "deaf": JobState.FAILED}
    assert fragile.show(f"{array}_1")["JobState"] == "TIMEOUT"
    assert ends(ex, "deaf") == [End.TIMEOUT]
    assert fragile.text("deaf") == "x\n", "tried once"


@pytest.fixture(scope="module")
def counted(make_cluster):
    """A cluster with accounting."""
    try:
        for name in ("slurmdbd", "mariadbd", "mariadb-install-db"):
            binary(name)
    except ClusterError as error:
        if "slurm" in os.environ.get("PERFSWEEP_NO_SKIP", ""):
            pytest.fail(str(error))
        pytest.skip(str(error))
    return make_cluster(accounting=True, min_job_age_s=2)


@pytest.mark.slow
def test_what_squeue_has_forgotten_sacct_remembers(counted, tmp_path: Path) -> None:
    bench = Bench(counted, tmp_path)
    ex = bench.executor(account="bench")
    ex.submit([bench.job("lost", "sleep 600")])
    running(ex, "lost")
    array = bench.array(ex)
    bench.cluster.client("scancel", f"{array}_0")
    until(
        lambda: f"{array}_0" not in bench.cluster.client("squeue", "-h", "-r", "-t", "all", "-o", "%F_%K"),
        "squeue's forgetting",
        180,
    )
    assert over(ex) == {"lost": JobState.CANCELLED}
    assert "CANCELLED" in bench.cluster.client("sacct", "-X", "-n", "-P", "-o", "State", "-j", array)
    assert ends(ex, "lost") == [End.CANCELLED]


@pytest.mark.slow
def test_a_submit_limit_is_kept_by_a_window_and_all_run(counted, tmp_path: Path) -> None:
    bench = Bench(counted, tmp_path)
    bench.cluster.client("sacctmgr", "-i", "add", "qos", "small", "MaxSubmitJobsPerUser=5", check=False)
    bench.cluster.client(
        "sacctmgr", "-i", "modify", "account", "bench", "set", "qos=normal,small", check=False
    )
    bench.cluster.client("sacctmgr", "-i", "modify", "user", "set", "qos=normal,small", check=False)
    ex = bench.executor(account="bench", qos="small")
    names = [f"p{n:03d}" for n in range(12)]
    ex.submit([bench.job(name, "sleep 0.5") for name in names])
    assert 0 < len(ex.journal.open_names()) <= 5
    refused = [s.refused for s in ex.journal.submissions.values() if s.refused]
    assert refused and "QOSMaxSubmitJobPerUserLimit" in refused[0]
    assert over(ex, 120) == dict.fromkeys(names, JobState.ENDED)


@pytest.mark.slow
def test_a_submit_limit_of_no_job_at_all_ends_the_sweep_at_the_second_sbatch(counted, tmp_path) -> None:
    bench = Bench(counted, tmp_path)
    for words in (("add", "qos", "shut", "MaxSubmitJobsPerUser=0"), ("modify", "user", "set", "qos+=shut")):
        bench.cluster.client("sacctmgr", "-i", *words, check=False)
    ex = bench.executor(account="bench", qos="shut")
    with pytest.raises(ClusterError, match=r"^Slurm refuses even a single job while none of yours is queued"):
        ex.submit([bench.job(name, "true") for name in ("p000", "p001", "p002")])
    assert [len(s.names) for s in ex.journal.submissions.values()] == [3, 1]
    assert not ex.journal.open_names()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("MinTRESPerJob=cpu=3", "QOSMinCpuNotSatisfied: this qos takes larger jobs only"),
        ("GrpTRESMins=cpu=1", "QOSGrpCPUMinutesLimit: this budget is spent"),
    ],
)
def test_a_limit_that_no_waiting_lifts_is_named_by_the_first_sbatch(
    counted, tmp_path: Path, limit: str, sentence: str
) -> None:
    bench = Bench(counted, tmp_path)
    qos = limit.partition("=")[0].lower()
    for words in (("add", "qos", qos, limit, "flags=DenyOnLimit"), ("modify", "user", "set", f"qos+={qos}")):
        bench.cluster.client("sacctmgr", "-i", *words, check=False)
    ex = bench.executor(account="bench", qos=qos, cpus_per_task=2)
    with pytest.raises(ClusterError, match=f"^Slurm refuses the sweep: {sentence}"):
        ex.submit([bench.job(name, "true") for name in ("one", "two")])
    assert len(ex.journal.submissions) == 1


@pytest.mark.slow
def test_a_wrong_account_is_refused_by_field(counted, tmp_path: Path) -> None:
    bench = Bench(counted, tmp_path)
    with pytest.raises(ClusterError, match=r"cluster\.account=nobody"):
        bench.executor(account="nobody").submit([bench.job("p000", "true")])
    with pytest.raises(ClusterError, match=r"cluster\.qos=golden"):
        bench.executor(account="bench", qos="golden").submit([bench.job("p000", "true")])
