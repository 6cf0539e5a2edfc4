"""Sweeps of the toy through real arrays: rounds survive their pack's fate, and other shells can follow."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest
from bench import Bench, alive
from waiting import until

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.slurm.journal import Journal

SLOW_TOY = ("workload.products=300", "measure.iterations=240", "measure.rounds=8")
"""About half a second for each trial, so that a fault can fall into the middle of a round."""


def folder(bench: Bench) -> SweepFolder:
    return SweepFolder(bench.folder / "runs" / "toy")


def array(bench: Bench) -> str:
    """Slurm's number of the latest submission."""
    found = [s.array for s in Journal(folder(bench).submissions_file).submissions.values() if s.array]
    return found[-1] if found else ""


def round_done(bench: Bench, number: int) -> bool:
    """Whether both arms of a round have records."""
    return sum(name.startswith(f"p000-r{number:03d}") for name in bench.records()) >= 2


def finish(bench: Bench, process) -> str:
    """Output of a command that is to end well."""
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def pure_rounds(bench: Bench) -> dict[int, int]:
    """The attempt that counts for each round; a round is never pieced together from two."""
    manifest = folder(bench).read_manifest()
    progress = read_progress(folder(bench), manifest)
    pack = manifest.packs[0]
    found = {n: progress.finished_attempt(pack, n) for n in range(len(pack.orders))}
    assert all(attempt is not None for attempt in found.values()), found
    return {n: attempt for n, attempt in found.items() if attempt is not None}


def starts(bench: Bench) -> list[dict[str, object]]:
    """Facts of every attempt at the pack, first one first."""
    files = sorted(
        (folder(bench).pack_dir("p000") / "attempts").glob("*.json"), key=lambda file: int(file.stem)
    )
    return [json.loads(file.read_text()) for file in files]


@pytest.fixture(scope="module")
def done(cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, str]:
    """A sweep that ran to its end, with what it printed."""
    bench = Bench(cluster, tmp_path_factory.mktemp("sweep"))
    finished = bench.perfsweep(*bench.sweep("cluster.collect=true"))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return bench, finished.stdout


def test_a_sweep_is_planned_submitted_measured_and_judged(done: tuple[Bench, str]) -> None:
    bench, output = done
    assert "1 pack with no GPU, 1 cores, 7G (mem), at most 120 min in partition gpu" in output
    assert "at most 2.0 hours" in output
    assert re.search(r"work=single\s+\d\S*x faster.*identical", output)
    assert bench.show(f"{array(bench)}_0")["JobName"].startswith("toy.") or array(bench)
    assert set(pure_rounds(bench).values()) == {0}


def test_a_collecting_job_writes_the_comparison_with_nobody_logged_in(done: tuple[Bench, str]) -> None:
    bench, _ = done
    collector = [
        s for s in Journal(folder(bench).submissions_file).submissions.values() if s.names == ("collect",)
    ]
    assert len(collector) == 1
    until(lambda: "report:" in bench.text("runs/toy/packs/collect/log.txt"), "the collecting job's report")
    assert "work=single" in bench.text("runs/toy/packs/collect/log.txt")


def test_jobs_run_what_was_submitted(done: tuple[Bench, str]) -> None:
    bench, _ = done
    snapshot = code_snapshot.latest(folder(bench).code_dir)
    record = json.loads(next(bench.folder.glob("runs/toy/submissions/*.json")).read_text())
    assert record["code"] == str(snapshot)
    assert record["jobs"][0]["env"]["PYTHONPATH"].startswith(f"{snapshot}:")
    assert sorted(path.name for path in snapshot.parent.iterdir()) == ["element.py", "perfsweep.zip"]


def test_status_and_logs_need_nothing_but_the_folder(done: tuple[Bench, str]) -> None:
    bench, _ = done
    status = bench.perfsweep("status", "runs/toy")
    assert status.returncode == 0, status.stdout + status.stderr
    assert re.search(r"p000 .* 6 of 6 .* ended", status.stdout)
    logs = bench.perfsweep("logs", "runs/toy", "--follow")
    assert "p000: --- start 0 of job" in logs.stdout


def silence(bench: Bench) -> str:
    """A slurm.conf of a controller that does not answer."""
    file = bench.folder / "silent.conf"
    text = bench.cluster.settings.conf.read_text()
    file.write_text(text.replace(f"SlurmctldPort={bench.cluster.settings.port}", "SlurmctldPort=9"))
    return f"cluster.slurm_conf={file}"


@pytest.mark.slow
def test_ctrl_c_detaches_and_another_shell_waits(bench: Bench) -> None:
    first = bench.start(*bench.sweep(*SLOW_TOY))
    until(lambda: round_done(bench, 0), "the first round")
    first.send_signal(signal.SIGINT)
    output, _ = first.communicate(timeout=120)
    assert first.returncode == 130, output
    assert "perfsweep wait runs/toy" in output and "perfsweep cancel runs/toy" in output
    assert bench.show(f"{array(bench)}_0")["JobState"] == "RUNNING", "the job goes on"
    here = bench.perfsweep(*bench.sweep(*SLOW_TOY, "cluster.executor=auto", silence(bench)))
    assert here.returncode == 2 and "p000 may still run on Slurm, so nothing is measured here" in here.stderr
    waited = bench.perfsweep("wait", "runs/toy")
    assert waited.returncode == 0, waited.stdout + waited.stderr
    assert "work=single" in waited.stdout
    assert set(pure_rounds(bench).values()) == {0}, "nothing was started twice"


@pytest.mark.slow
def test_a_killed_submitter_loses_nothing_and_cancel_works_from_another_shell(bench: Bench) -> None:
    first = bench.start(*bench.sweep(*SLOW_TOY))
    until(lambda: round_done(bench, 0), "the first round")
    first.kill()
    first.communicate(timeout=120)
    (pid,) = [int(str(start["pid"])) for start in starts(bench)]
    assert alive(pid)
    cancelled = bench.perfsweep("cancel", "runs/toy")
    assert "cancelled 1 jobs" in cancelled.stdout, cancelled.stdout + cancelled.stderr
    until(lambda: bench.show(f"{array(bench)}_0")["JobState"] == "CANCELLED", "the cancelling")
    until(lambda: not alive(pid), "the end of the pack")
    kept = bench.records()
    again = bench.start(*bench.sweep(*SLOW_TOY))
    finish(bench, again)
    attempts = pure_rounds(bench)
    assert attempts[0] == 0 and attempts[7] == 1, (
        "finished rounds are kept, the rest is measured by a new attempt"
    )
    assert set(kept) <= set(bench.records())


@pytest.mark.slow
def test_a_pack_that_is_warned_and_preempted_keeps_its_rounds_and_repeats_an_interrupted_one_whole(
    bench: Bench,
) -> None:
    sweep = bench.start(*bench.sweep(*SLOW_TOY, "cluster.partition=preemptible"))
    until(lambda: round_done(bench, 0), "the first round")
    number = f"{array(bench)}_0"
    bench.cluster.client("scancel", "--signal=USR2", number)
    until(lambda: bench.show(number)["Restarts"] == "1", "its own requeue")
    assert "SIGUSR2: stopped after the last finished round" in bench.text("runs/toy/packs/p000/log.txt")
    warned = len(bench.records())
    bench.start_now(number)
    until(lambda: len(bench.records()) >= warned + 2, "one more round")
    node = bench.show(number)["NodeList"]
    bench.cluster.client("sbatch", "--wrap=true", "-p", "gpu", "-w", node, "--exclusive", "-o", "/dev/null")
    until(lambda: bench.show(number)["Restarts"] == "2", "preemption")
    bench.start_now(number)
    finish(bench, sweep)
    attempts = pure_rounds(bench)
    assert (attempts[0], attempts[7]) == (0, 2) and set(attempts.values()) == {0, 1, 2}
    assert [start["restarts"] for start in starts(bench)] == [0, 1, 2]


@pytest.mark.slow
def test_sweep_sbatch_runs_a_whole_sweep_in_one_allocation(bench: Bench) -> None:
    script = Path(__file__).parents[3] / "slurm" / "sweep.sbatch"
    perfsweep = Path(sys.executable).with_name("perfsweep")
    overrides = [word for word in bench.sweep()[1:] if not word.startswith("cluster")]
    log = bench.folder / "sweep.log"
    options = (
        "--parsable",
        "--mem=3000",
        f"--chdir={bench.folder}",
        "-o",
        str(log),
        "--cpus-per-task=1",
        "--time=5",
        "--signal=B:USR2@20",
    )
    job = bench.cluster.client(
        "sbatch", *options, str(script), *overrides, env=bench.env({"PERFSWEEP": str(perfsweep)})
    ).strip()
    until(lambda: round_done(bench, 0), f"its first round: {log}")
    until(lambda: bench.show(job)["JobState"] in ("COMPLETED", "FAILED"), "its end")
    assert bench.show(job)["JobState"] == "COMPLETED", log.read_text()
    assert "work=single" in log.read_text()


@pytest.mark.slow
def test_doctor_shows_the_cluster_and_what_it_would_refuse(bench: Bench) -> None:
    conf = f"cluster.slurm_conf={bench.cluster.settings.conf}"
    fine = bench.perfsweep("doctor", "cluster=dev", conf)
    assert fine.returncode == 0, fine.stdout + fine.stderr
    assert "preemptible" in fine.stdout and "gpu:2" in fine.stdout and "would be accepted" in fine.stdout
    bad = bench.perfsweep("doctor", "cluster=dev", conf, "cluster.constraint=unobtainium")
    assert bad.returncode == 1
    assert "refused: cluster.constraint: Invalid feature" in bad.stdout
