"""Faults between a sweep and its array on real Slurm: limits, refusals, dependencies, dead submitters."""

from __future__ import annotations

import pytest
from bench import WAIT, Bench, ends, over
from waiting import until

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.states import End


def test_an_array_larger_than_slurm_takes_is_cut(bench: Bench) -> None:
    ex = bench.executor(array_parallelism=50)
    largest = int(bench.cluster.client("scontrol", "show", "config").partition("MaxArraySize")[2].split()[1])
    jobs = [bench.job(f"p{n:03d}", f"echo {n} >> done; sleep 2") for n in range(largest + 3)]
    ex.submit(jobs)
    assert [len(s.names) for s in ex.journal.submissions.values()] == [largest, 3]
    assert bench.show(bench.array(ex, 1))["ArrayJobId"] == bench.array(ex, 1)
    ex.cancel()
    until(lambda: all(state.over for state in ex.poll().values()))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"partition": "nowhere"}, r"cluster\.partition=nowhere: .*[Ii]nvalid partition"),
        ({"gpus": 9}, r"cluster\.gpus, gpu_type or gpu_flag|cluster\.gpus, cpus_per_task"),
        ({"gpus": 1, "gpu_type": "h900"}, r"cluster\.gpus"),
        ({"constraint": "unobtainium"}, r"cluster\.constraint=unobtainium"),
        ({"reservation": "none"}, r"cluster\.reservation=none"),
        ({"sbatch": ["--licenses=moon"]}, r"cluster\.sbatch \(--licenses\)"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_a_site_refuses_is_named_at_once(bench: Bench, field: dict[str, object], message: str) -> None:
    ex = bench.executor(**field)
    with pytest.raises(ClusterError, match=message):
        ex.submit([bench.job("p000", "true")])
    assert (
        bench.cluster.client("squeue", "--me", "-h", "-n", f"bench.{next(iter(ex.journal.submissions))}")
        == ""
    )
    assert not ex.journal.open_names()


@pytest.mark.slow
def test_a_folder_has_any_name_that_slurm_can_write_into(bench: Bench) -> None:
    """What Slurm would fill in, as %j and %A, is part of the name; so is what a shell or a URL reads."""
    own = Bench(bench.cluster, bench.folder / "jdoe@ad my w\u00f6rk, c++ 50%j %A%% it's a\"b [x]" / "sweep")
    own.folder.mkdir(parents=True)
    ex = own.executor(setup=["echo set-up ran"])
    ex.submit([own.job("p000", "echo ran >> ran")])
    assert over(ex) == {"p000": JobState.ENDED}
    assert own.text("ran") == "ran\n"
    (output,) = ex.outputs(own.folder)["p000"]
    assert "set-up ran" in output.read_text()
    assert [path.name for path in bench.folder.iterdir()] == [own.folder.parent.name], "nor is another made"


def test_a_dependency_that_fails_cancels_the_job(bench: Bench) -> None:
    blocker = bench.cluster.client("sbatch", "--parsable", "--wrap=exit 1", "-o", "/dev/null").strip()
    until(lambda: bench.show(blocker)["JobState"] == "FAILED")
    ex = bench.executor(sbatch=[f"--dependency=afterok:{blocker}"])
    ex.submit([bench.job("orphan", "true")])
    assert over(ex) == {"orphan": JobState.CANCELLED}
    assert bench.show(f"{bench.array(ex)}_0")["Reason"] == "DependencyNeverSatisfied"


def test_a_dependency_that_can_never_be_met_asks_for_attention(bench: Bench) -> None:
    blocker = bench.cluster.client("sbatch", "--parsable", "--wrap=exit 1", "-o", "/dev/null").strip()
    until(lambda: bench.show(blocker)["JobState"] == "FAILED")
    ex = bench.executor(sbatch=[f"--dependency=afterok:{blocker}"], kill_invalid_dep=False)
    ex.submit([bench.job("orphan", "true")])
    until(lambda: ex.poll() and ex.held() == ["orphan"], "being held")
    assert bench.show(f"{bench.array(ex)}_0")["Reason"] == "DependencyNeverSatisfied"
    assert ex.notes()["orphan"] == ("pending: DependencyNeverSatisfied: what it depends on failed: cancel it")
    assert ex.cancel() == 1


def test_leftover_temporary_files_mean_nothing(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("clean", WAIT)])
    (token,) = ex.journal.submissions
    own = bench.folder / "submissions" / token
    until(lambda: ex.poll() and (own / "0.beat").exists())
    for name in (".0.end-0.json.0badc0de.tmp", "0.end-0.json.save_tmp", "0.end-7.json.tmp"):
        (own / name).write_text('{"status": 0, "signals": []}')
    (own / "0.end-5.json").write_text('{"status":')
    (bench.folder / "go").touch()
    assert over(ex) == {"clean": JobState.ENDED}
    assert bench.show(f"{bench.array(ex)}_0")["Restarts"] == "0"
    assert ends(ex, "clean") == [End.DONE]


def test_a_submitter_killed_after_sbatch_is_found_by_its_token(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("p000", f"echo try >> tries; {WAIT}")])
    journal = bench.folder / "submissions.jsonl"
    lines = [line for line in journal.read_text().splitlines() if '"submitted"' not in line]
    journal.write_text("\n".join(lines) + '\n{"time": 1, "event": "subm')  # died while it wrote the number
    again = bench.executor()
    again.submit([bench.job("p000", "echo try >> tries")])
    until(lambda: again.poll() and bench.text("tries"))
    (bench.folder / "go").touch()
    assert over(again) == {"p000": JobState.ENDED}
    assert bench.text("tries") == "try\n"
    assert bench.array(again) == bench.array(ex)
    assert bench.show(f"{bench.array(again)}_0")["JobState"] in ("COMPLETED", "COMPLETING", "RUNNING")


def test_a_job_number_given_out_again_is_not_ours(bench: Bench) -> None:
    """After a crash of the controller a number may belong to somebody else's job."""
    foreign = bench.cluster.client(
        "sbatch", "--parsable", "--wrap=sleep 30", "-o", "/dev/null", "-a", "0-0"
    ).strip()
    ex = bench.executor(max_retries=0)
    lost = ex.journal.submitting(["p000"], None)
    ex.journal.submitted(lost.token, foreign)
    again = bench.executor(max_retries=0)
    again.submit([bench.job("p000", "true")])
    until(lambda: bench.show(foreign)["JobState"] == "RUNNING")
    assert over(again) == {"p000": JobState.FAILED}
    assert ends(again, "p000") == [End.VANISHED]
    assert again.cancel() == 0
    assert bench.show(foreign)["JobState"] == "RUNNING"
