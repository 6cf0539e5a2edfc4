"""Every fault on a real Slurm: Slurm's own record says that it happened, ours says what became of it."""

from __future__ import annotations

import sys

import pytest
from bench import WAIT, Bench, alive, ends, over, running
from waiting import until

from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.site import ALWAYS_EXPORTED
from perfsweep.slurm.states import End


def test_a_status_is_final_and_the_others_go_on(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("bad", "echo reason >&2; exit 3"), bench.job("good", "echo fine")])
    assert over(ex) == {"bad": JobState.FAILED, "good": JobState.ENDED}
    facts = bench.show(f"{bench.array(ex)}_0")
    assert (facts["JobState"], facts["ExitCode"]) == ("FAILED", "3:0")
    assert ends(ex, "bad") == [End.FAILED]
    assert ex.notes()["bad"] == "it ended with status 3"
    assert "reason" in bench.text("packs/bad/log.txt")


def test_a_killed_job_is_tried_once_more(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("shot", "echo try >> tries; kill -9 $$")])
    assert over(ex) == {"shot": JobState.FAILED}
    assert bench.show(f"{bench.array(ex)}_0")["ExitCode"] == "137:0"
    assert bench.text("tries") == "try\ntry\n"
    assert ends(ex, "shot") == [End.NO_RESULT, End.NO_RESULT]


def test_a_job_whose_whole_step_is_killed_is_tried_once_more(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("swept", "echo try >> tries; [ -e go ] || sleep 60")])
    running(ex, "swept")
    until(lambda: bench.text("tries"))
    first = bench.array(ex)
    (bench.folder / "go").touch()
    bench.cluster.client("scancel", "--signal=KILL", f"{bench.show(f'{first}_0')['JobId']}.0")
    assert over(ex) == {"swept": JobState.ENDED}
    assert bench.show(f"{first}_0")["JobState"] == "FAILED"
    assert ends(ex, "swept") == [End.NO_RESULT, End.DONE]


def test_cancelling_a_running_element_leaves_the_others_and_is_final(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("stays", WAIT), bench.job("goes", WAIT)])
    running(ex, "stays", "goes")
    bench.cluster.client("scancel", f"{bench.array(ex)}_1")
    until(lambda: ex.poll()["goes"] is JobState.CANCELLED)
    (bench.folder / "go").touch()
    assert over(ex) == {"stays": JobState.ENDED, "goes": JobState.CANCELLED}
    assert bench.show(f"{bench.array(ex)}_1")["JobState"] == "CANCELLED"
    assert len(ex.journal.submissions) == 1


def test_a_job_that_did_not_advance_before_its_time_limit_is_final(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("stuck", "trap 'exit 79' USR2; echo up > up; while :; do sleep 0.1; done")])
    until(lambda: ex.poll() and bench.text("up"))
    bench.cluster.client("scancel", "--signal=USR2", f"{bench.array(ex)}_0")
    assert over(ex) == {"stuck": JobState.FAILED}
    assert ends(ex, "stuck") == [End.TIMEOUT]
    assert bench.show(f"{bench.array(ex)}_0")["ExitCode"] == "79:0"


def preempt(bench: Bench, ex, name: str, **site: object) -> str:
    """Have a better partition's job push the running one out of its node; the victim's array number."""
    running(ex, name)
    until(lambda: bench.text("tries"), "the job's first line")
    victim = bench.array(ex)
    node = bench.show(f"{victim}_0")["NodeList"]
    bench.cluster.client(
        "sbatch", "--wrap=sleep 1", "-p", "gpu", "-w", node, "--exclusive", "-o", "/dev/null"
    )
    return victim


def test_a_preempted_job_that_slurm_does_not_requeue_is_submitted_again(bench: Bench) -> None:
    ex = bench.executor(partition="preemptible", requeue=False)
    ex.submit([bench.job("weak", "echo try >> tries; [ -e go ] || sleep 60")])
    victim = preempt(bench, ex, "weak")
    (bench.folder / "go").touch()
    assert over(ex) == {"weak": JobState.ENDED}
    assert bench.show(f"{victim}_0")["JobState"] == "PREEMPTED"
    assert ends(ex, "weak") == [End.PREEMPTED, End.DONE]
    assert bench.array(ex) != victim


def test_a_requeue_while_running_gives_one_result(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("again", f"echo try >> tries; {WAIT}")])
    until(lambda: ex.poll() and bench.text("tries"))
    array = bench.array(ex)
    bench.cluster.client("scontrol", "requeue", f"{array}_0")
    until(lambda: bench.show(f"{array}_0")["Restarts"] == "1")
    (bench.folder / "go").touch()
    bench.start_now(f"{array}_0")
    assert over(ex) == {"again": JobState.ENDED}
    # The first start may have had the time to say that it was stopped.
    assert [end for end in ends(ex, "again") if end is not End.STOPPED] == [End.DONE]


def test_a_node_set_down_moves_its_job_to_the_other_node(bench: Bench) -> None:
    ex = bench.executor(requeue=False)
    ex.submit([bench.job("moved", f"echo $SLURMD_NODENAME >> nodes; {WAIT}")])
    until(lambda: ex.poll() and bench.text("nodes"))
    first, node = bench.array(ex), bench.text("nodes").strip()
    try:
        bench.cluster.client("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        # Slurm forgets a job soon after its end, so it is asked at once.
        until(lambda: bench.show(f"{first}_0")["JobState"] == "NODE_FAIL", "Slurm's word")
        until(lambda: ex.poll() and len(bench.text("nodes").split()) == 2, "a second try")
        (bench.folder / "go").touch()
        assert over(ex) == {"moved": JobState.ENDED}
    finally:
        bench.cluster.client("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        until(bench.cluster.ready)
    assert len(set(bench.text("nodes").split())) == 2, "the retry excludes the node that failed"
    assert ends(ex, "moved") == [End.NODE_FAIL, End.DONE]


def test_without_gpus_none_is_visible_and_with_one_it_is_ours(bench: Bench) -> None:
    """Unset is not empty: then CUDA shows all GPUs of the node."""
    show = 'echo "[${CUDA_VISIBLE_DEVICES-all}]"'
    without, with_one = bench.executor(), bench.executor(gpus=1)
    without.submit([bench.job("cpu", show)])
    with_one.submit([bench.job("gpu", show)])
    assert over(without) == {"cpu": JobState.ENDED}
    assert over(with_one) == {"gpu": JobState.ENDED}
    assert "[]" in bench.text("packs/cpu/log.txt")
    assert "[0]" in bench.text("packs/gpu/log.txt") or "[1]" in bench.text("packs/gpu/log.txt")


SET_ON_THE_NODE = (
    *("PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "COLUMNS", "LINES"),
    *("CUDA_VISIBLE_DEVICES", "ENVIRONMENT", "SUBMITIT_EXECUTOR"),
)
"""By shells, by Slurm, and by the batch script."""


def test_no_secret_of_the_submitter_reaches_a_file_or_the_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cr3t-value")
    monkeypatch.setenv("PS_ALLOWED", "handed over")
    ex = bench.executor(env_allow=["PS_ALLOWED"], env_set={"PS_SET": "it's set"})
    ex.submit(
        [bench.job("quiet", 'echo "key=$WANDB_API_KEY allowed=$PS_ALLOWED set=$PS_SET"; env > environment')]
    )
    assert over(ex) == {"quiet": JobState.ENDED}
    assert "key= allowed=handed over set=it's set" in bench.text("packs/quiet/log.txt")
    files = [path for path in bench.folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if b"s3cr3t-value" in path.read_bytes()]
    names = {line.partition("=")[0] for line in bench.text("environment").splitlines()}
    foreign = names - {*ALWAYS_EXPORTED, "PS_ALLOWED", "PS_SET", *SET_ON_THE_NODE}
    assert not {name for name in foreign if not name.startswith(("SLURM", "SRUN_"))}, (
        "no login shell added to it either"
    )


def test_without_srun_the_warning_reaches_the_job_all_the_same(bench: Bench) -> None:
    ex = bench.executor(srun=False)
    ex.submit([bench.job("bare", "trap 'exit 79' USR2; echo up > up; while :; do sleep 0.1; done")])
    until(lambda: ex.poll() and bench.text("up"))
    bench.cluster.client("scancel", "--signal=USR2", "--batch", f"{bench.array(ex)}_0")
    assert over(ex) == {"bare": JobState.FAILED}
    assert ends(ex, "bare") == [End.TIMEOUT]


@pytest.mark.slow
def test_cancelled_without_srun_a_job_leaves_no_process(bench: Bench) -> None:
    ex = bench.executor(srun=False)
    ex.submit([bench.job("bare", "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done")])
    until(lambda: ex.poll() and bench.text("pid"))
    pid = int(bench.text("pid"))
    assert ex.cancel() == 1
    assert over(ex) == {"bare": JobState.CANCELLED}
    until(lambda: not alive(pid), "the end of a process that ignores SIGTERM")


def test_a_job_that_outgrows_its_memory_is_no_failure_to_repeat(bench: Bench) -> None:
    ex = bench.executor(memory="60M")
    grow = f"exec {sys.executable} -c 'import time; held = bytearray(400 << 20); time.sleep(60)'"
    ex.submit([bench.job("greedy", grow)])
    assert over(ex) == {"greedy": JobState.FAILED}
    assert bench.show(f"{bench.array(ex)}_0")["JobState"] in ("FAILED", "OUT_OF_MEMORY", "CANCELLED")
    (output,) = (bench.folder / "submissions").glob("*_0_log.out")
    assert "memory" in output.read_text()
    assert ends(ex, "greedy") == [End.OOM]
