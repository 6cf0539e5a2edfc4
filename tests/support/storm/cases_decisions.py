"""The second list: what is decided about jobs, each played on a whole sweep by a user's commands."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

from waiting import until

from slurm.dev.cluster import DevCluster, free_port, remove
from slurm.dev.settings import Settings
from storm import slurm_faults
from storm.cases_jobs import GROW, HELD, let_start, limit_jobs
from storm.stage import ONE, TWO, Stage, case


def silent(stage: Stage) -> str:
    """A slurm.conf of a controller that nobody answers for, as an override."""
    file = stage.world.root / "silent.conf"
    port = f"SlurmctldPort={stage.cluster.settings.port}"
    file.write_text(stage.cluster.settings.conf.read_text().replace(port, "SlurmctldPort=9"))
    return f"cluster.slurm_conf={file}"


@case(
    "D1",
    "a job is killed for memory as a whole",
    "one further try, kept in the journal; then a remedy",
    status=1,
)
def memory_for_ever(stage: Stage) -> str:
    one_try = (*GROW, "cluster.max_retries=0")
    text = stage.ended(stage.sweep(*ONE, *one_try), 1)
    assert "memory ran out: raise cluster.memory" in text, text[-400:]
    count = len(stage.events("submitting"))
    again = stage.ended(stage.start(*stage.arguments), 1)
    assert "it is not submitted again: raise cluster.memory" in again, again[-400:]
    assert len(stage.events("submitting")) == count == 1
    stage.arguments = stage.command(*ONE, *GROW, "cluster.memory=1300M")
    return "one submission, not again by the same command; with more memory the rest is measured"


@case("D2", "the controller is silent when the sweep starts", "nothing is measured on this machine")
def never_here(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, silent(stage)), 2)
    assert "Slurm's controller does not answer, so nothing was started" in text, text[-400:]
    assert not stage.folder.exists()
    stage.arguments = stage.command(*ONE)
    return "status 2, nothing started"


@case("D3", "sbatch submits and says that it timed out", "looked up, one copy")
def denied(stage: Stage) -> str:
    with stage.under("sbatch_submits_and_denies"):
        process = stage.sweep(*ONE)
        stage.round_done()
    stage.ended(process)
    assert len(stage.attempts()) == 1, f"{len(stage.attempts())} copies"
    return f"{len(stage.events('submitting'))} submission, one copy"


@case("D4", "`wait` on another cluster's login node", "held there; nothing is submitted")
def elsewhere(stage: Stage) -> str:
    root = Path(f"{stage.cluster.settings.root}-b")
    other = DevCluster(Settings(root=root, port=free_port(), nodes=1, name="beta", kill_wait_s=2))
    process = stage.sweep(*ONE, "measure.rounds=16", "measure.iterations=600")
    stage.round_done()
    process.send_signal(signal.SIGINT)
    stage.ended(process, 130)
    config = stage.folder / "sweep.yaml"
    before = config.read_text()
    try:
        other.up()
        config.write_text(before.replace(str(stage.cluster.settings.conf), str(other.settings.conf)))
        for beat in stage.folder.glob("submissions/*/*.beat"):
            beat.touch()
        text = stage.ended(stage.start("wait", str(stage.folder)), 0, 3)
    finally:
        config.write_text(before)
        remove(other)
    assert (
        "on cluster dev, and this is beta" in text or "on another cluster" in text or "done" in stage.ends()
    ), text
    assert len(stage.events("submitting")) == 1
    return "held there, one submission"


@case("D5", "one of several pending elements is cancelled; or `cancel`, forgotten, `wait`", "stays cancelled")
def cancelled_stays(stage: Stage) -> str:
    process = stage.sweep(*TWO, "cluster.array_parallelism=1")
    stage.runs(stage.element())
    assert "cancelled 1 jobs" in stage.run("cancel", str(stage.folder), "p001")
    stage.ended(process, 1)
    assert stage.ends("p001") == ["cancelled"] and len(stage.events("submitting")) == 1
    stage.run("wait", str(stage.folder), status=1)
    assert len(stage.events("submitting")) == 1, "wait submitted it again"
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


@case("D7", "a limit on running jobs (QOSMaxJobsPerUser)", "a wait, with its reason")
def running_limit(stage: Stage) -> str:
    limit_jobs(stage, "single", "MaxJobsPerUser=1")
    text = stage.ended(stage.sweep(*TWO, "cluster.qos=single", "measure.rounds=8", "measure.iterations=500"))
    assert "QOSMaxJobsPerUserLimit" in text, text[:600]
    return "waited, with the reason shown"


@case("D8", "a partition that will never start it (PartitionTimeLimit)", "status 3, with the remedy")
def never_starts(stage: Stage) -> str:
    stage.cluster.client("scontrol", "create", "PartitionName=short", "Nodes=ALL", "MaxTime=1", check=False)
    text = stage.ended(stage.sweep(*ONE, "cluster.partition=short"), 3)
    assert "PartitionTimeLimit: lower cluster.time_min, or choose another partition" in text, text[-400:]
    stage.run("cancel", str(stage.folder))
    until(lambda: not slurm_faults.jobs(stage.cluster), "an empty queue")
    stage.cluster.client("scontrol", "delete", "PartitionName=short", check=False)
    stage.arguments = stage.command(*ONE)
    return "status 3, with what to change"


@case("D9", "the interpreter is missing on the node", "Slurm's words and the reason are shown")
def no_interpreter(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "cluster.python=/nowhere/python"), 1)
    assert "/nowhere/python: No such file or directory" in text, text[-400:]
    assert "/nowhere/python" in stage.run("logs", str(stage.folder))
    stage.arguments = stage.command(*ONE)
    return "status 1, the reason in message and `logs`"


@case("D10", "a line of cluster.setup fails", "the pack stops there, and the line is named")
def setup_fails(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "cluster.setup=['source /nowhere/profile.sh']"), 1)
    assert "cluster.setup line 1 ended with status 1: source /nowhere/profile.sh" in text, text[-400:]
    assert not list(stage.folder.glob("trials/*/*/record.json"))
    stage.arguments = stage.command(*ONE)
    return "status 1, the line is named, nothing measured"


@case("D11", "every timing trial of all arms fails", "status 1, reason on terminal and in the report")
def all_fail(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "toggles.trouble=late"), 1)
    assert "ValueError: the toy failed while being timed" in text
    assert "ValueError: the toy failed while being timed" in (stage.folder / "report.html").read_text()
    stage.arguments = stage.command(*ONE, f"name={stage.world.sweep}", "toggles.trouble=none")
    return "status 1; without the trouble the same sweep is measured"


@case("D12", "records of two GPU types in one sweep [records edited]", "said, and none is dropped silently")
def two_devices(stage: Stage) -> str:
    stage.ended(stage.sweep(*TWO))
    for file in stage.folder.glob("trials/*/p001-*/record.json"):
        values = json.loads(file.read_text())
        values["keys"]["device"] = "another"
        values.pop("crc32", None)  # what has no checksum is taken as it is
        file.write_text(json.dumps(values))
    text = stage.ended(stage.start("compare", str(stage.folder)), 0, 1)
    assert "another" in text, text[-600:]
    return "the other device is named in the comparison"


@case("D13", "values of cluster.env_set", "in no file but the job's own, of mode 0600")
def env_set(stage: Stage) -> str:
    stage.ended(stage.sweep(*ONE, f"cluster.env_set.PS_TOKEN={stage.world.token}"))
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
    process = stage.sweep(*TWO, "cluster.max_submit=1", "measure.rounds=8", "measure.iterations=300")
    stage.round_done()
    process.send_signal(signal.SIGINT)
    text = stage.ended(process, 130)
    assert "1 pack was not submitted yet" in text, text[-400:]
    return "says that one pack was not submitted"


@case("D14c", "`status` while a job runs", "shows it as running")
def shows_running(stage: Stage) -> str:
    process = stage.sweep(*ONE, "measure.rounds=12", "measure.iterations=400")
    stage.round_done()
    text = stage.ended(stage.start("status", str(stage.folder)), 0, 1)
    assert "running" in text, text
    stage.ended(process)
    return "running"


@case("D14d", "the snapshot in code/ is changed while the job waits", "refused when it starts, in a sentence")
def changed_snapshot(stage: Stage) -> str:
    process = stage.sweep(*ONE, HELD)
    until(lambda: stage.events("submitted"), "the submission")
    (place,) = [one for one in (stage.folder / "code").iterdir() if (one / "slurm" / "element.py").exists()]
    with (place / "pipelines" / "units.py").open("a") as module:
        module.write("\n# a line more\n")
    let_start(stage)
    text = stage.ended(process, 1)
    assert "is not the code that this job was submitted with" in text, text[-400:]
    shutil.rmtree(place)  # as the sentence says
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
        time.sleep(15)
        calls = (stage.world.programs / "sbatch.calls").read_text().count("x")
    stage.ended(process)
    assert calls <= 6 and len(stage.attempts()) == 1, f"{calls} calls, {len(stage.attempts())} jobs"
    return f"{calls} calls in 15 s, one job"


RANKS = (
    *(
        "workload=toys.joined:Joined",
        "-workload.products",
        "axes.spread=[two]",
        "cluster.nodes=2",
        "cluster.memory=1500M",
    ),
    *("measure.rounds=3", "measure.iterations=20", "cluster.env_allow=[PERFSWEEP_STORM,PERFSWEEP_TOY_FAULT]"),
)


@case("N1", "two nodes: a node is set down while both measure", "submitted again, each trial once")
def node_of_two(stage: Stage) -> str:
    process = stage.sweep(*RANKS, "cluster.requeue=false", "measure.rounds=5")
    stage.round_done()
    with stage.under("node_down"):
        until(lambda: stage.ends(), "its noticing")
    stage.ended(process, 0, 1)
    return f"{', '.join(stage.ends())}"


@case("N2", "two nodes: the whole step is killed", "submitted again, each trial once")
def step_of_two(stage: Stage) -> str:
    process = stage.sweep(*RANKS, "measure.rounds=5")
    stage.round_done()
    stage.strike("kill_step")
    stage.ended(process, 0, 1)
    return f"{', '.join(stage.ends())}"
