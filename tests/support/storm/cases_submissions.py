"""The first list from F12 on: what may befall the controller, the submission and the command."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from pathlib import Path

from dev_slurm.daemons import pid_in

from perfsweep.slurm.journal import Journal
from storm import invariants, slurm_faults
from storm.cases_jobs import HELD, let_start
from storm.stage import LONG, ONE, Stage, case, until


@case("F12", "slurmctld is down for 15 s", "nothing changes, one warning, the sweep completes")
def controller_down(stage: Stage) -> str:
    process = stage.sweep(*LONG)
    stage.round_done()
    with stage.under("slurmctld_killed"):
        time.sleep(15)
        # A question asked just before may be repeated by Slurm's client for longer than that.
        until(lambda: stage.says(process, "does not answer") or process.poll() is not None, "a warning")
        assert process.poll() is None and not stage.ends(), "something followed from silence"
    text = stage.ended(process)
    assert text.count("does not answer") == text.count("Slurm answers again") == 1, text[-400:]
    assert len(stage.events("submitting")) == len(stage.attempts()) == 1 and stage.ends() == ["done"]
    return "one warning, one submission, done"


@case(
    "F13",
    "slurmctld is killed right after sbatch has answered",
    "followed by its token or its own records; a duplicate records nothing twice",
)
def controller_killed_after_sbatch(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    until(lambda: stage.events("submitted"), "sbatch's answer")
    with stage.under("slurmctld_killed"):
        time.sleep(1)
    stage.requeues_until(lambda: process.poll() is not None, "its end")
    stage.ended(process, 0, 1)
    ends = stage.ends()
    # Known after all; lost before it began; or forgotten while it ran, which a person may have meant.
    known = (["done"], ["vanished", "done"], ["unclear"], ["no result", "done"])
    assert ends in known, ends
    return f"{', '.join(ends)}: {len(ends)} submission{'s' if len(ends) > 1 else ''}"


@case(
    "F13b",
    "slurmctld is killed between sbatch's submission and its answer",
    "looked up by its token, no second copy",
)
def controller_killed_before_the_answer(stage: Stage) -> str:
    pid_file = stage.cluster.settings.pid_file("slurmctld")
    lost = f'$real "$@" > /dev/null; kill -9 $(cat {pid_file}); {slurm_faults.TIMED_OUT}'
    with contextmanager(slurm_faults.stand_in)(stage.world.programs, "sbatch", lost):
        process = stage.sweep(*ONE)
        until(lambda: pid_in(pid_file) is None, "the controller's end")
    slurm_faults.start_controller(stage.cluster)
    text = stage.ended(process, 0, 3)
    held = process.returncode == 3  # a start that the controller forgot may still be on the node
    if held:
        assert "requeued held" in text and "scontrol release" in text, text[-300:]
        slurm_faults.mended(stage.cluster)
        text = stage.run(*stage.arguments)
    assert len(stage.events("submitted")) == 1, stage.events("submitted")
    assert len(stage.attempts()) == 1, f"{len(stage.attempts())} copies: {text[-300:]}"
    what = ", held by Slurm after a failed launch: status 3, with the remedy, which helps" if held else ""
    return f"{len(stage.events('submitting'))} submission(s), one copy{what}"


@case("F14", "its number belongs to somebody else's job", "ours counts as gone, the other is let alone")
def number_given_again(stage: Stage) -> str:
    foreign = stage.bench.cluster.client(
        "sbatch", "--parsable", "--wrap=sleep 900", "-o", "/dev/null", "-a", "0-0", "--mem=100"
    ).strip()
    journal = Journal(stage.folder / "submissions.jsonl")
    lost = journal.submitting(["p000"], None)
    journal.submitted(lost.token, foreign)
    until(lambda: stage.state(f"{foreign}_0") == "RUNNING", "the other job")
    stage.ended(stage.sweep(*ONE))
    assert stage.state(f"{foreign}_0") == "RUNNING", "the other job was touched"
    stage.bench.cluster.client("scancel", foreign)
    assert stage.ends() == ["vanished", "done"], stage.ends()
    return "vanished, submitted again, the other job runs"


@case("F15", "an array larger than MaxArraySize", "cut, all run")
def large_array(stage: Stage) -> str:
    config = stage.cluster.client("scontrol", "show", "config")
    largest = int(config.partition("MaxArraySize")[2].split()[1])  # its elements are 0 to one less
    sizes = ",".join(str(2 + number) for number in range(largest + 1))
    options = (
        "cluster.arms_per_pack=2",
        "axes.work=[double]",
        "measure.rounds=3",
        "cluster.array_parallelism=50",
    )
    stage.ended(stage.sweep(*ONE, f"axes.slab=[{sizes}]", *options))
    arrays = [len(line["names"]) for line in stage.events("submitting")]
    assert max(arrays) <= largest and sum(arrays) == largest + 1, arrays
    assert not stage.events("refused"), "Slurm had to say so"
    return f"arrays of {arrays}"


@case("F16", "a submit limit of 2 and 4 packs", "a window is kept, all run")
def submit_limit(stage: Stage) -> str:
    limit_jobs(stage, "storm", "MaxSubmitJobsPerUser=2")
    four = ("axes.slab=[2,3,4,5]", "cluster.arms_per_pack=2", "axes.work=[double]", "measure.rounds=3")
    text = stage.ended(stage.sweep(*ONE, *four, "cluster.qos=storm"))
    assert stage.events("refused"), "nothing was ever refused"
    arrays = [len(line["names"]) for line in stage.events("submitting")]
    assert "Traceback" not in text
    return f"arrays of {arrays}, {len(stage.events('refused'))} refused and repeated"


def limit_jobs(stage: Stage, name: str, limit: str) -> None:
    assert stage.cluster.settings.accounting, "this needs a cluster with accounting"
    for words in (
        ("add", "qos", name, limit),
        ("modify", "account", "bench", "set", f"qos+={name}"),
        ("modify", "user", "set", f"qos+={name}"),
    ):
        stage.cluster.client("sacctmgr", "-i", *words, check=False)


@case("F17", "an invalid partition", "refused at once, naming the field")
def wrong_partition(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "cluster.partition=nowhere"), 2)
    assert "Slurm refuses cluster.partition=nowhere" in text, text[-400:]
    assert len(stage.events("submitting")) == len(stage.events("refused")) == 1
    stage.arguments = stage.command(*ONE)
    return "status 2 at once, the field is named"


@case("F18", "suspended and resumed", "unfinished throughout, done at the end")
def suspended(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done()
    with stage.under("suspend_job"):
        time.sleep(6)
        assert stage.state(stage.element()) == "SUSPENDED"
        assert process.poll() is None and not stage.ends(), "it ended while its job was suspended"
    stage.ended(process)
    assert stage.ends() == ["done"] and len(stage.attempts()) == 1
    return "waited, done"


@case("F19", "SIGUSR2, then SIGTERM, through scancel", "it stops after a round, and goes on in a requeue")
def signalled(stage: Stage) -> str:
    process = stage.sweep(*ONE, "measure.rounds=10")
    stage.round_done()
    element = stage.element()
    stage.bench.cluster.client("scancel", "--signal=USR2", element)
    until(lambda: stage.bench.show(element)["Restarts"] == "1", "its own requeue")
    stage.bench.start_now(element)
    until(lambda: len(stage.attempts()) == 2, "the second start")
    stage.round_done(4)
    stage.bench.cluster.client("scancel", "--signal=TERM", element)
    stage.ended(process)
    log = (stage.folder / "packs" / "p000" / "log.txt").read_text()
    for name in ("SIGUSR2", "SIGTERM"):
        assert f"{name}: stopped after the last finished round" in log, name
    assert stage.ends() == ["stopped", "done"], stage.ends()
    assert len(stage.attempts()) == 3
    return "requeued itself after SIGUSR2; submitted again after SIGTERM"


@case("F20", "the command gets SIGINT, the next one SIGKILL", "jobs go on, and `wait` follows them")
def command_ended(stage: Stage) -> str:
    process = stage.sweep(*LONG)
    stage.round_done()
    process.send_signal(signal.SIGINT)
    stage.ended(process, 130)
    second = stage.start("wait", str(stage.folder))
    until(lambda: stage.says(second, "1 running"), "its following")
    second.kill()
    second.wait()
    stage.run("wait", str(stage.folder))
    assert len(stage.events("submitting")) == 1 and len(stage.attempts()) == 1
    return "status 130, killed, waited for: one submission"


@case("F21", "the same sweep again", "nothing is submitted")
def same_again(stage: Stage) -> str:
    stage.ended(stage.sweep(*ONE))
    before = (stage.folder / "submissions.jsonl").read_text()
    stage.run(*stage.arguments)
    assert (stage.folder / "submissions.jsonl").read_text() == before
    return "nothing submitted"


MODULE = "from toys.spinner import Config, Spinner\n\n\nclass Mine(Spinner):\n    Config = Config\n"
CHANGED = MODULE + "\n    def setup(self, *_):\n        raise ValueError('what was not submitted ran')\n"


@case("F22", "the user's source changes while the job waits", "what was submitted runs")
def changed_source(stage: Stage) -> str:
    module = stage.world.root / "clock" / "mine.py"  # on the path of imports already
    module.write_text(MODULE)
    process = stage.sweep(*ONE, "workload=mine:Mine", HELD)
    until(lambda: stage.events("submitted"), "the submission")
    module.write_text(CHANGED)
    let_start(stage)
    try:
        stage.ended(process)
    finally:
        module.write_text(MODULE)
    return "the snapshot ran"


@case("F23", "sbatch hangs, prints garbage, fails, then works", "given up in time, looked up, no duplicate")
def bad_sbatch(stage: Stage) -> str:
    with stage.under("sbatch_hangs"):
        process = stage.sweep(*ONE)
        until(lambda: stage.events("submitting"), "the first try")
        until(lambda: stage.events("refused"), "its being given up")
    for name in ("sbatch_talks", "sbatch_fails"):
        with stage.under(name):
            tries = len(stage.events("submitting"))
            until(lambda tries=tries: len(stage.events("submitting")) > tries, f"a try under {name}")
            time.sleep(2)
    stage.ended(process)
    assert len(stage.events("submitted")) == len(stage.attempts()) == 1, "more than one job was there"
    return f"{len(stage.events('submitting'))} tries, one job"


MORE = "2100M"
"""Memory beyond that of GROW."""

GROW = ("axes.trouble=[grow]", "axes.work=[single]", "cluster.memory=2G", "measure.rounds=4")


@case("F24", "the memory limit of the job is hit", "recorded as oom, the arm is not tried again")
def out_of_memory(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, *GROW), 0, 1)
    assert "memory ran out; submitting it again" in text, text[-400:]
    assert stage.ends() == ["out of memory", "done"], stage.ends()
    outcomes = [one.values["outcome"] for one in invariants.trials(stage.folder) if not one.ok]
    assert outcomes == ["oom"], outcomes
    return "oom recorded, the rest measured in a second job"


@case("F25", "a run on CPU alone", "CUDA_VISIBLE_DEVICES is empty")
def no_gpu(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done()
    variables = Path(f"/proc/{stage.pid()}/environ").read_bytes().split(b"\0")
    assert b"CUDA_VISIBLE_DEVICES=" in variables
    stage.ended(process)
    return "empty in the pack's environment"


@case("F26", "a secret in the submitting environment", "in no file of the sweep, nor in the job")
def secret(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done()
    assert stage.world.token.encode() not in Path(f"/proc/{stage.pid()}/environ").read_bytes()
    stage.ended(process)
    return "in no file, not in the job"
