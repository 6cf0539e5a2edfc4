"""The second list: what is decided about jobs, each played on a whole sweep by a user's commands."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev_slurm.cluster import DevCluster, free_port, remove
from dev_slurm.settings import Settings

from perfsweep import checksums
from storm import invariants, slurm_faults
from storm.cases_jobs import HELD, let_start
from storm.cases_submissions import MORE, limit_jobs
from storm.stage import LONG, ONE, THREE, TWO, Stage, case, patiently, until


def silent(stage: Stage) -> str:
    """A slurm.conf of a controller that nobody answers for, as an override."""
    file = stage.world.root / "silent.conf"
    port = f"SlurmctldPort={stage.cluster.settings.port}"
    file.write_text(stage.cluster.settings.conf.read_text().replace(port, "SlurmctldPort=9"))
    return f"cluster.slurm_conf={file}"


_GROWING = ",".join(f"g{slab}:{{trouble:grow,slab:{slab}}}" for slab in (2, 3, 4))
THREE_GROW = (
    *("-axes.work", f"sweep.designs=[{{kind:arms,arms:{{{_GROWING},fine:{{slab:5}}}}}}]"),
    *("cluster.arms_per_pack=5", "cluster.max_retries=1", "cluster.memory=2G", "measure.rounds=4"),
)
"""Three arms of which each ends the whole job, and two that can be measured."""


@case(
    "D1",
    "a job is killed for memory as a whole, by one arm after the other",
    "a cap, kept in the journal; then a remedy, which helps",
)
def memory_for_ever(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, *THREE_GROW), 1)
    assert "memory ran out: raise cluster.memory" in text, text[-400:]
    assert stage.ends() == ["out of memory"] * 3, stage.ends()
    again = stage.ended(stage.start(*stage.arguments), 1)
    assert "out of memory 3 times: it is not submitted again: raise cluster.memory" in again, again[-400:]
    assert len(stage.events("submitting")) == 3
    stage.arguments = stage.command(*ONE, *THREE_GROW, f"cluster.memory={MORE}")
    return "two further tries, none by the same command again; with more memory the rest is measured"


@case(
    "D2",
    "the controller is silent when the sweep starts, and while its packs are on Slurm",
    "nothing is measured on this machine",
)
def never_here(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, silent(stage)), 2)
    assert "Slurm's controller does not answer, so nothing was started" in text, text[-400:]
    assert not stage.folder.exists()
    process = stage.sweep(*ONE, HELD)
    until(lambda: stage.events("submitted"), "the submission")
    process.send_signal(signal.SIGINT)
    stage.ended(process, 130)
    anywhere = stage.command(*ONE, HELD, silent(stage), "cluster.executor=auto")
    text = stage.ended(stage.start(*anywhere), 2)
    assert "p000 may still run on Slurm, so nothing is measured here" in text, text[-400:]
    assert not stage.attempts()
    let_start(stage)
    return "status 2 both times, nothing started here"


@case("D3", "sbatch submits and says that it timed out", "looked up, one copy")
def denied(stage: Stage) -> str:
    with stage.under("sbatch_submits_and_denies"):
        process = stage.sweep(*ONE)
        stage.round_done()
    stage.ended(process)
    assert len(stage.events("submitting")) == len(stage.attempts()) == 1, f"{len(stage.attempts())} copies"
    return "one submission, one copy"


@case(
    "D4",
    "squeue answers nothing; then `wait` on another cluster's login node",
    "said; nothing vanishes, nothing is submitted",
)
def elsewhere(stage: Stage) -> str:
    root = Path(f"{stage.cluster.settings.root}-b")
    other = DevCluster(Settings(root=root, port=free_port(), nodes=1, name="beta", kill_wait_s=2))
    process = stage.sweep(*LONG, "measure.rounds=16")
    stage.round_done()
    with stage.under("squeue_empty"):
        time.sleep(10)
        assert process.poll() is None and not stage.ends(), "it vanished"
    process.send_signal(signal.SIGINT)
    stage.ended(process, 130)
    config = stage.folder / "sweep.yaml"
    before = config.read_text()
    try:
        other.up()
        config.write_text(before.replace(str(stage.cluster.settings.conf), str(other.settings.conf)))
        text = stage.ended(stage.start("wait", str(stage.folder)), 0, 3)
    finally:
        config.write_text(before)
        remove(other)
    assert "packs of this sweep are on cluster dev, and this is beta" in text, text[-400:]
    assert len(stage.events("submitting")) == len(stage.attempts()) == 1
    return "the other cluster is named, one submission"


@case(
    "D5",
    "one of several pending elements is cancelled; or `cancel`, forgotten by Slurm, `wait`",
    "stays cancelled",
)
def cancelled_stays(stage: Stage) -> str:
    process = stage.sweep(*THREE, "cluster.array_parallelism=1")
    stage.runs(stage.element())
    assert [stage.state(stage.element(index)) for index in (1, 2)] == ["PENDING"] * 2
    stage.cluster.client("scancel", stage.element(1))
    stage.ended(process, 1)
    assert [stage.ends(f"p00{n}") for n in range(3)] == [["done"], ["cancelled"], ["done"]]
    assert len(stage.events("submitting")) == 1
    second = stage.start(*stage.command(*THREE, HELD))
    until(lambda: len(stage.events("submitted")) == 2, "the second submission")
    second.send_signal(signal.SIGINT)
    stage.ended(second, 130)
    assert "cancelled 1 jobs" in stage.run("cancel", str(stage.folder), "p001")
    array = stage.array
    known = ("squeue", "-h", "-t", "all", "-o", "%F")
    patiently(lambda: array not in stage.cluster.client(*known).split(), "Slurm's forgetting it")
    stage.run("wait", str(stage.folder), status=1)
    assert len(stage.events("submitting")) == 2, "wait submitted it again"
    assert stage.ends("p001") == ["cancelled"] * 2, stage.ends("p001")
    return "cancelled, and `wait` left it so"


@case(
    "D6",
    "slurmdbd and slurmctld are silent when the packs have written their end",
    "the sweep ends all the same",
)
def silent_at_the_end(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done(3)
    with stage.under("slurmdbd_killed"), stage.under("slurmctld_killed"):
        stage.ended(process)
    assert stage.ends() == ["done"]
    return "its own record ended it, with both daemons down"


@case("D7", "all packs wait for a limit on running jobs (QOSMaxJobsPerUser)", "a wait, with its reason")
def running_limit(stage: Stage) -> str:
    limit_jobs(stage, "single", "MaxJobsPerUser=1")
    other = ("sbatch", "--parsable", "-A", "bench", "--qos=single", "--wrap=sleep 900", "-o", "/dev/null")
    job: list[str] = []
    until(lambda: job.append(stage.cluster.client(*other, check=False).strip()) or job[-1], "the new qos")
    stage.runs(job[-1])
    process = stage.sweep(*ONE, "cluster.qos=single")
    until(lambda: stage.says(process, "(QOSMaxJobsPerUserLimit"), "the reason")
    time.sleep(20)
    assert process.poll() is None, "it gave up: nothing more will happen by itself"
    stage.cluster.client("scancel", job[-1])
    stage.ended(process)
    assert len(stage.events("submitting")) == 1
    return "waited, with the reason shown"


@contextmanager
def partition(stage: Stage, name: str, limit: str) -> Iterator[str]:
    """Add a partition for as long as the block lasts, as an override; the sweep's jobs are cancelled then."""
    stage.cluster.client("scontrol", "create", f"PartitionName={name}", "Nodes=ALL", limit)
    try:
        yield f"cluster.partition={name}"
        stage.run("cancel", str(stage.folder))
    finally:
        stage.cluster.client("scancel", "--me", check=False)
        until(lambda: not slurm_faults.jobs(stage.cluster), "an empty queue")
        stage.cluster.client("scontrol", "delete", f"PartitionName={name}", check=False)


@case("D8", "a partition that will never start it: its time limit, its accounts", "status 3, with the remedy")
def never_starts(stage: Stage) -> str:
    with partition(stage, "short", "MaxTime=1") as short:
        text = stage.ended(stage.sweep(*ONE, short), 3)
        assert "1 pending (PartitionTimeLimit)" in text, text[:600]
        assert "PartitionTimeLimit: lower cluster.time_min, or choose another partition" in text, text[-400:]
    with partition(stage, "closed", "AllowAccounts=root") as closed:
        text = stage.ended(stage.sweep(*ONE, closed), 3)
        assert "choose another cluster.account, cluster.qos or cluster.partition" in text, text[-400:]
    stage.arguments = stage.command(*ONE)
    return "status 3 both times, with what to change"


@case("D9", "the interpreter is missing on the node", "Slurm's words and the reason are shown")
def no_interpreter(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "cluster.python=/nowhere/python"), 1)
    assert "/nowhere/python" in text and "No such file or directory" in text, text[-400:]
    assert stage.ends() == ["no result"] * 2, stage.ends()
    assert "/nowhere/python" in stage.run("logs", str(stage.folder))
    stage.arguments = stage.command(*ONE)
    return "status 1, the reason in message and `logs`"


@case("D10", "a line of cluster.setup fails", "the pack stops there, and the line is named")
def setup_fails(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "cluster.setup=['source /nowhere/profile.sh']"), 1)
    assert "cluster.setup line 1 ended with status 1: source /nowhere/profile.sh" in text, text[-400:]
    assert not list(stage.folder.glob("trials/*/*/record.json"))
    assert stage.ends() == ["failed"], "it would fail the same way again"
    stage.arguments = stage.command(*ONE)
    return "status 1, the line is named, nothing measured"


@case("D11", "every timing trial of all arms fails", "status 1, reason on terminal and in the report")
def all_fail(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "toggles.trouble=late"), 1)
    assert "ValueError: the toy failed while being timed" in text
    assert "ValueError: the toy failed while being timed" in (stage.folder / "report.html").read_text()
    stage.arguments = stage.command(*ONE, f"name={stage.world.sweep}", "toggles.trouble=none")
    return "status 1; without the trouble the same sweep is measured"


@case("D11b", "two timing trials are killed", "status 1, reason on terminal and in the report")
def some_fail(stage: Stage) -> str:
    process = stage.sweep(*LONG)
    stage.round_done()
    for number in (1, 2):
        stage.strike("kill_trial")
        until(lambda number=number: len(_bad(stage)) == number, "its record")
    text = stage.ended(process, 1)
    assert "SIGKILL" in text, text[-400:]
    assert "SIGKILL" in (stage.folder / "report.html").read_text()
    stage.arguments = stage.command(*LONG, "retry=[failed]")
    return "status 1; asked for again by retry= they are measured"


def _bad(stage: Stage) -> list[invariants.Trial]:
    return [one for one in invariants.trials(stage.folder) if not one.ok]


@case("D12", "records of two GPU types in one sweep [records edited]", "said, and none is dropped silently")
def two_devices(stage: Stage) -> str:
    stage.ended(stage.sweep(*TWO))
    for file in stage.folder.glob("trials/*/p001-*/record.json"):
        values = checksums.unsealed(json.loads(file.read_text()))
        values["keys"]["device"] = "another"
        file.write_text(json.dumps(checksums.sealed(values)))
    text = stage.ended(stage.start("compare", str(stage.folder)), 0, 1)
    assert "8 timing trials are left out: device is another" in text, text[-600:]
    assert "pairs in p001 are in tables of their own, for another" in text, text[-600:]
    assert "On another: one at a time" in text, text[:600]
    stage.ended(stage.start(*stage.arguments))
    assert [line["names"] for line in stage.events("submitting")] == [["p000", "p001"], ["p001"]]
    return "a table of its own, said, and its pack is measured again"


@case("D13", "values of cluster.env_set", "in no file but the job's own, of mode 0600")
def env_set(stage: Stage) -> str:
    given = f"PS_TOKEN={stage.world.token}"
    process = stage.sweep(*ONE, f"cluster.env_set.{given}", "tracking=offline")
    stage.round_done()
    variables = Path(f"/proc/{stage.pid()}/environ").read_bytes().split(b"\0")
    assert given.encode() in variables, "the job lacks it"
    stage.ended(process)
    assert list(stage.folder.glob("wandb/**/*.wandb")), "W&B was told nothing"
    stage.run("compare", str(stage.folder))
    own = stage.folder / "submissions" / "env_set.sh"
    assert stage.world.token in own.read_text() and own.stat().st_mode & 0o777 == 0o600
    return "in env_set.sh alone"


@case("D14a", "a banner before sbatch's answer", "not taken for the number")
def banner(stage: Stage) -> str:
    with stage.under("sbatch_banner"):
        stage.ended(stage.sweep(*ONE))
    assert len(stage.attempts()) == 1 and stage.array != "17"
    return "the number was found behind it"


@case("D14b", "Ctrl-C while packs are not submitted yet", "says how many, and the same command submits them")
def not_submitted(stage: Stage) -> str:
    process = stage.sweep(*TWO, "cluster.max_submit=1", "measure.rounds=8")
    stage.round_done()
    process.send_signal(signal.SIGINT)
    text = stage.ended(process, 130)
    assert "1 pack was not submitted yet" in text, text[-400:]
    return "says that one pack was not submitted"


@case("D14c", "`status` while a job runs", "shows it as running")
def shows_running(stage: Stage) -> str:
    process = stage.sweep(*LONG)
    stage.round_done()
    text = stage.ended(stage.start("status", str(stage.folder), "--json"), 0, 1)
    assert [pack["job"] for pack in json.loads(text)["packs"]] == ["running"], text
    stage.ended(process)
    return "running"


@case("D14d", "the snapshot in code/ is changed while the job waits", "refused when it starts, in a sentence")
def changed_snapshot(stage: Stage) -> str:
    process = stage.sweep(*ONE, HELD)
    until(lambda: stage.events("submitted"), "the submission")
    (archive,) = (stage.folder / "code").glob("*/perfsweep.zip")
    archive.write_bytes(archive.read_bytes() + b"a byte more")
    let_start(stage)
    text = stage.ended(process, 1)
    assert "is not the code that this job was submitted with" in text, text[-400:]
    stage.arguments = stage.command(*ONE)
    return "status 1, with the remedy, which helps"


@case("D14e", "the controller is down before the first sbatch", "one sentence, nothing started")
def down_first(stage: Stage) -> str:
    with stage.under("slurmctld_killed"):
        text = stage.ended(stage.sweep(*ONE), 2)
    assert "does not answer, so nothing was started" in text, text[-400:]
    return "status 2, one sentence"


@case("D14f", "sbatch answers garbage for 15 s", "backs off, then submits once")
def garbage_for_long(stage: Stage) -> str:
    with stage.under("sbatch_talks"):
        process = stage.sweep(*ONE)
        until((stage.world.programs / "sbatch.calls").exists, "the first call")
        time.sleep(15)
        calls = (stage.world.programs / "sbatch.calls").read_text().count("x")
    stage.ended(process)
    assert 2 <= calls <= 6 and len(stage.attempts()) == 1, f"{calls} calls, {len(stage.attempts())} jobs"
    return f"{calls} calls in 15 s, one job"


@case("D14g", "neither locks nor hard links (Lustre)", "measured; a second command is told whom to wait for")
def no_locks(stage: Stage) -> str:
    (stage.world.root / "clock" / "no_locks").touch()
    process = stage.sweep(*LONG)
    stage.round_done()
    text = stage.ended(stage.start(*stage.arguments), 2)
    assert "is being measured by another command; wait for it, or give this one a name= (process" in text
    assert f"(process {process.pid} on " in text, text[-400:]
    stage.ended(process)
    return "done; the second command got a sentence with the process of the first"


@case("D14h", "an arm that no time limit of the pack allows", "final, with what to change")
def time_limit(stage: Stage) -> str:
    hang = ("axes.trouble=[hang]", "axes.work=[double]", "measure.timeout_s=900", "cluster.time_min=1")
    process = stage.sweep(*ONE, *hang)
    element = stage.element()
    patiently(lambda: stage.bench.show(element)["Restarts"] == "1", "its own requeue")
    stage.bench.start_now(element)
    text = stage.ended(process, 1)
    remedy = "raise cluster.time_min, or lower cluster.arms_per_pack so that a round fits into it"
    assert remedy in text, text[-400:]
    assert stage.ends() == ["timeout"] and len(stage.attempts()) == 2, stage.ends()
    stage.arguments = stage.command(*ONE)
    return "status 1 after a requeue that did not advance, with the remedy"


@case("D14i", "an option of cluster.sbatch given twice", "refused, naming it")
def option_twice(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "cluster.sbatch=['--licenses=host','-L host']"), 2)
    assert "cluster.sbatch: --licenses is given twice" in text, text[-400:]
    stage.arguments = stage.command(*ONE, "cluster.sbatch=['--licenses=host']")
    return "status 2, the option is named"
