"""The two lists of faults as one table: what is done to a sweep on the development Slurm, and what must hold.

F: what may befall a job, its node, the controller, the submission and the command. D and N: what is decided
about jobs, on one node and on two. Each is played on a whole sweep by a user's commands.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import alive
from dev_slurm.cluster import DevCluster, free_port, remove
from dev_slurm.daemons import pid_in
from dev_slurm.settings import Settings

from perfsweep import checksums
from perfsweep.slurm.journal import Journal
from storm import faults, invariants
from storm.stage import ONE, Case, Stage, patiently, until

TWO = (*ONE, "axes.slab=[2,3]", "cluster.arms_per_pack=3", "measure.rounds=4")
"""Four arms, in two jobs."""
THREE = (*TWO, "cluster.arms_per_pack=2")
"""As above, in three jobs."""
FOUR = ("axes.slab=[2,3,4,5]", "cluster.arms_per_pack=2", "axes.work=[double]", "measure.rounds=3")
LONG = (*ONE, "measure.rounds=12", "measure.iterations=400")
"""As ONE, for half a minute and more."""
HELD = "cluster.sbatch=['--begin=now+3600']"
"""A job that waits until it is let start."""
RANKS = (
    *("workload=toys.joined:Joined", "-workload.products"),
    *("axes.spread=[two]", "cluster.nodes=2", "measure.rounds=5"),
    *("measure.iterations=20", "cluster.env_allow=[PERFSWEEP_STORM,PERFSWEEP_TOY_FAULT]"),
)
BUSY = ("sbatch", "--parsable", "--wrap=sleep 900", "-o", "/dev/null")
"""A job of another user, as far as a sweep can tell."""
GROWS = ("cluster.memory=2G", "measure.rounds=4")
THREE_GROW = (
    *(*ONE, *GROWS, "cluster.memory=3G", "-axes.work", "cluster.arms_per_pack=5", "cluster.max_retries=1"),
    "sweep.designs=[{kind:arms,arms:{g2:{trouble:grow,slab:2},g3:{trouble:grow,slab:3},"
    "g4:{trouble:grow,slab:4},fine:{slab:5}}}]",
)
"""Three arms of which each ends the whole job, and two that can be measured.

Slurm counts memory that processes share once for each: five warm arms that do not grow are 2.2 GB to it.
"""


def expect(holds: object, what: object) -> None:
    """Break a case off where something does not hold."""
    assert holds, str(what)[:600]


def slurm(stage: Stage, words: str, check: bool = True) -> str:
    """Have one of Slurm's clients do something."""
    return stage.cluster.client(*words.split(), check=check).strip()


def let_start(stage: Stage) -> None:
    """Let a job start that waits for its time."""
    job = stage.element()
    stage.becomes(job, "PENDING")
    slurm(stage, f"scontrol update JobId={job.partition('_')[0]} StartTime=now")


def start_again(stage: Stage, restarts: int = 1) -> None:
    """Wait until Slurm has queued the job again, and let it start."""
    element = stage.element()
    stage.becomes(element, str(restarts), "Restarts")
    stage.bench.start_now(element)


def first_round_kept(stage: Stage, _: str = "") -> None:
    """The second start of the job went on where the first had stopped."""
    expect([one["restarts"] for one in stage.attempts()] == [0, 1], stage.attempts())
    for pattern, wanted in (("r000-a0/record.json", 2), ("r000-a1", 0)):
        expect(len(list(stage.folder.glob(f"trials/*/p000-{pattern}"))) == wanted, f"not {wanted} {pattern}")
    expect(list(stage.folder.glob("trials/*/p000-r005-a1/record.json")), "the second start measured nothing")


def failures(stage: Stage) -> list[invariants.Trial]:
    """Records of trials that did not end well."""
    return [one for one in invariants.trials(stage.folder) if not one.ok]


def one_type_and_message(stage: Stage, _: str) -> None:
    told = {tuple(one.values["failure"][name] for name in ("type", "message")) for one in failures(stage)}
    expect(told == {("ValueError", "the toy failed while being timed")}, told)


def kill_it_twice(stage: Stage) -> None:
    stage.strike("kill_pack")
    stage.started(2)
    os.kill(stage.pid, signal.SIGSEGV)


def cancel_second(stage: Stage) -> None:
    stage.becomes(stage.element(), "RUNNING")
    expect(stage.fact(stage.element(1), "JobState") == "PENDING", "the second element does not wait")
    slurm(stage, f"scancel {stage.element(1)}")


def late_result(stage: Stage) -> None:
    stage.process.send_signal(signal.SIGSTOP)
    try:
        stage.becomes(stage.element(), "COMPLETED")
        (end,) = stage.folder.glob("submissions/*/0.end-0.json")
        end = end.rename(end.with_suffix(".late"))
    finally:
        stage.process.send_signal(signal.SIGCONT)
    still(stage, 10)
    end.rename(end.with_suffix(".json"))


def still(stage: Stage, seconds: float) -> None:
    """For so long the command goes on, and calls no job ended."""
    time.sleep(seconds)
    expect(stage.process.poll() is None and not stage.ends(), f"it ended: {stage.ends()}")


def leave_files(stage: Stage) -> None:
    for name in ("packs/p000/attempts/.0.json.4711.deadbeef.tmp", "submissions/.0.json.4711.deadbeef.tmp"):
        (stage.folder / name).parent.mkdir(parents=True)
        (stage.folder / name).write_text("{")
    (stage.folder / "submissions" / "12_submitted.pkl.save_tmp").write_text("half")


def requeue(stage: Stage) -> None:
    stage.strike("requeue_job")
    stage.bench.start_now(stage.element())


def preempt(stage: Stage) -> None:
    node = stage.fact(stage.element(), "NodeList")
    slurm(stage, f"sbatch --wrap=true -p gpu -w {node} --exclusive -o /dev/null")


def preempt_for_good(stage: Stage) -> None:
    element = stage.element()
    preempt(stage)
    stage.becomes(element, "PREEMPTED")


def preempt_and_requeue(stage: Stage) -> None:
    preempt(stage)
    start_again(stage)


def lose_daemon(stage: Stage) -> None:
    element, first = stage.element(), stage.pid
    stage.cluster.kill(f"slurmd-{stage.fact(element, 'NodeList')}")
    stage.becomes(element, "1", "Restarts")
    expect(alive(first), "the first copy ended with its daemon: there never were two")
    stage.requeues_until(lambda: len(stage.attempts()) == 2, "the second copy")


def set_down(requeued: bool) -> Callable[[Stage], None]:
    """The node of the running job is set down until the command has ended."""

    def deed(stage: Stage) -> None:
        element = stage.element()
        node = stage.fact(element, "NodeList")
        for state in ("DOWN", "DRAIN"):  # drained too: it would come back by itself when its daemon reports
            slurm(stage, f"scontrol update NodeName={node} State={state} Reason=storm")
        try:
            if requeued:
                stage.becomes(element, "1", "Restarts")
                stage.requeues_until(lambda: len(stage.attempts()) == 2, "the second start")
            stage.ended(stage.process)
            expect(stage.fact(stage.element(), "NodeList") != node, "it is on the same node")
        finally:
            faults.resume(stage.cluster, node)

    return deed


def lose_controller(stage: Stage) -> None:
    stage.begin("slurmctld_killed")
    still(stage, 15)
    # A question asked just before may be repeated by Slurm's client for longer than that.
    until(lambda: "does not answer" in stage.text(stage.process), "a warning")
    still(stage, 0)
    stage.end()


def one_warning(stage: Stage, text: str) -> None:
    expect(text.count("does not answer") == text.count("Slurm answers again") == 1, text[-400:])


def kill_controller_once_submitted(stage: Stage) -> None:
    stage.submitted()
    stage.begin("slurmctld_killed")
    time.sleep(1)
    stage.end()
    stage.requeues_until(lambda: stage.process.poll() is not None, "its end")


def known_end(stage: Stage, _: str) -> None:
    """Known after all; lost before it began; or forgotten while it ran, which may have been meant."""
    expect(", ".join(stage.ends()) in ("done", "vanished, done", "unclear", "no result, done"), stage.ends())


def kill_controller_in_sbatch(stage: Stage) -> None:
    pid_file = stage.cluster.settings.pid_file("slurmctld")
    lost = f'$real "$@" > /dev/null; kill -9 $(cat {pid_file}); {faults.TIMED_OUT}'
    stage.begin("lost", faults.stand_in(stage.world.programs, "sbatch", lost))


def start_it_later(stage: Stage) -> None:
    until(lambda: pid_in(stage.cluster.settings.pid_file("slurmctld")) is None, "the controller's end")
    stage.end()
    faults.start_controller(stage.cluster)


def no_second_copy(stage: Stage, text: str) -> None:
    if stage.process.returncode == 3:  # a start that the controller forgot may still be on the node
        expect("requeued held" in text and "scontrol release" in text, text[-300:])
        faults.restored(stage.cluster)
        stage.run(*stage.arguments)
    expect(len(stage.events("submitted")) == len(stage.attempts()) == 1, stage.events("submitted"))


def give_number_again(stage: Stage) -> None:
    foreign = stage.cluster.client(*BUSY, "-a", "0-0", "--mem=100").strip()
    journal = Journal(stage.folder / "submissions.jsonl")
    journal.submitted(journal.submitting(["p000"], None).token, foreign)
    stage.becomes(f"{foreign}_0", "RUNNING")


def foreign_job_runs(stage: Stage, _: str) -> None:
    foreign = stage.events("submitted")[0]["array"]
    expect(stage.fact(f"{foreign}_0", "JobState") == "RUNNING", "the other job was touched")
    slurm(stage, f"scancel {foreign}")


def more_than_an_array(stage: Stage) -> Sequence[str]:
    """Its elements are 0 to one less than MaxArraySize: one pack more than that."""
    largest = stage.cluster.settings.max_array
    return (f"axes.slab=[{','.join(str(2 + number) for number in range(largest + 1))}]",)


def cut(stage: Stage, _: str) -> None:
    largest = stage.cluster.settings.max_array
    arrays = [len(line["names"]) for line in stage.events("submitting")]
    expect(max(arrays) <= largest and sum(arrays) == largest + 1, arrays)
    expect(not stage.events("refused"), "Slurm had to say so")


def limit_jobs(name: str, limit: str) -> Callable[[Stage], Sequence[str]]:
    """A quality of service of a limit, which the sweep asks for."""

    def first(stage: Stage) -> Sequence[str]:
        expect(stage.cluster.settings.accounting, "this needs a cluster with accounting")
        for words in (f"add qos {name} {limit}", f"modify account bench set qos+={name}",
                      f"modify user set qos+={name}"):  # fmt: skip
            slurm(stage, f"sacctmgr -i {words}", check=False)
        return (f"cluster.qos={name}",)

    return first


def refused(stage: Stage, _: str) -> None:
    expect(stage.events("refused"), "nothing was ever refused")


def suspend(stage: Stage) -> None:
    stage.begin("suspend_job")
    time.sleep(6)
    expect(stage.fact(stage.element(), "JobState") == "SUSPENDED", "it runs")
    still(stage, 0)
    stage.end()


def signal_twice(stage: Stage) -> None:
    slurm(stage, f"scancel --signal=USR2 {stage.element()}")
    start_again(stage)
    stage.started(2)
    stage.round_done(4)
    slurm(stage, f"scancel --signal=TERM {stage.element()}")


def both_signals_logged(stage: Stage, _: str) -> None:
    log = (stage.folder / "packs" / "p000" / "log.txt").read_text()
    for name in ("SIGUSR2", "SIGTERM"):
        expect(f"{name}: stopped after the last finished round" in log, name)


def followed_by_wait(stage: Stage, _: str) -> None:
    follower = stage.start("wait", str(stage.folder))
    until(lambda: "1 running" in stage.text(follower), "its following")
    follower.kill()
    follower.wait()
    stage.run("wait", str(stage.folder))


def same_again(stage: Stage, _: str) -> None:
    before = (stage.folder / "submissions.jsonl").read_text()
    stage.run(*stage.arguments)
    expect((stage.folder / "submissions.jsonl").read_text() == before, "something was submitted")


MODULE = "from toys.spinner import Config, Spinner\n\n\nclass Mine(Spinner):\n    Config = Config\n"
CHANGED = MODULE + "\n    def setup(self, *_):\n        raise ValueError('what was not submitted ran')\n"


def write_module(stage: Stage, text: str = MODULE) -> None:
    (stage.world.root / "clock" / "mine.py").write_text(text)  # on the path of imports already


def change_module(stage: Stage) -> None:
    stage.submitted()
    write_module(stage, CHANGED)
    let_start(stage)


def three_bad_answers(stage: Stage) -> None:
    until(lambda: stage.events("refused"), "its being given up")
    stage.end("sbatch_hangs")
    for name in ("sbatch_talks", "sbatch_fails"):
        stage.begin(name)
        tries = len(stage.events("submitting"))
        until(lambda tries=tries: len(stage.events("submitting")) > tries, f"a try under {name}")
        time.sleep(2)
        stage.end(name)


def one_copy(stage: Stage, _: str) -> None:
    expect(len(stage.events("submitted")) == len(stage.attempts()) == 1, "more than one job was there")


def nowhere_in_the_job(stage: Stage) -> None:
    expect(stage.world.secrets[0].encode() not in b"\0".join(stage.variables), "the job has the secret")


def given_up_for_good(stage: Stage, _: str) -> None:
    again = stage.run(*stage.arguments, status=1)
    expect("out of memory 3 times: it is not submitted again: raise cluster.memory" in again, again[-400:])


def silent(stage: Stage) -> Sequence[str]:
    """A slurm.conf of a controller that never answers."""
    file = stage.world.root / "silent.conf"
    port = f"SlurmctldPort={stage.cluster.settings.port}"
    file.write_text(stage.cluster.settings.conf.read_text().replace(port, "SlurmctldPort=9"))
    return (f"cluster.slurm_conf={file}",)


def silent_again(stage: Stage, _: str) -> None:
    expect(not stage.folder.exists(), "something was started")
    stage.arguments = stage.command(*ONE, HELD)
    process = stage.start(*stage.arguments)
    stage.submitted()
    process.send_signal(signal.SIGINT)
    stage.ended(process, 130)
    text = stage.run(*stage.command(*ONE, HELD, *silent(stage), "cluster.executor=auto"), status=2)
    expect("p000 may still run on Slurm, so nothing is measured here" in text, text[-400:])
    expect(not stage.attempts(), "it was measured here")
    let_start(stage)


def no_queue_then_interrupt(stage: Stage) -> None:
    stage.begin("squeue_empty")
    still(stage, 10)
    stage.end()
    stage.interrupt()


def wait_elsewhere(stage: Stage, _: str) -> None:
    root = Path(f"{stage.cluster.settings.root}-b")
    other = DevCluster(Settings(root=root, port=free_port(), nodes=1, name="beta", kill_wait_s=2))
    config = stage.folder / "sweep.yaml"
    before = config.read_text()
    try:
        other.up()
        config.write_text(before.replace(str(stage.cluster.settings.conf), str(other.settings.conf)))
        text = stage.run("wait", str(stage.folder), status=(0, 3))
    finally:
        config.write_text(before)
        remove(other)
    expect("packs of this sweep are on cluster dev, and this is beta" in text, text[-400:])


def cancelled_and_forgotten(stage: Stage, _: str) -> None:
    expect([stage.ends(f"p00{n}") for n in range(3)] == [["done"], ["cancelled"], ["done"]], "first")
    process = stage.start(*stage.command(*THREE, HELD))
    stage.submitted(2)
    process.send_signal(signal.SIGINT)
    stage.ended(process, 130)
    text = stage.run("cancel", str(stage.folder), "p001")
    expect("cancelled 1 jobs" in text, text)
    array = stage.element().partition("_")[0]
    patiently(lambda: array not in slurm(stage, "squeue -h -t all -o %F").split(), "Slurm's forgetting it")
    stage.run("wait", str(stage.folder), status=1)


def silence_both(stage: Stage) -> None:
    stage.begin("slurmdbd_killed")
    stage.begin("slurmctld_killed")


def limit_to_one(stage: Stage) -> Sequence[str]:
    """Its one running job is another one."""
    overrides = limit_jobs("single", "MaxJobsPerUser=1")(stage)
    other = (*BUSY, "-A", "bench", "--qos=single")
    job: list[str] = []
    until(lambda: job.append(stage.cluster.client(*other, check=False).strip()) or job[-1], "the new qos")
    stage.becomes(job[-1], "RUNNING")
    return overrides


def free_the_limit(stage: Stage) -> None:
    until(lambda: "(QOSMaxJobsPerUserLimit" in stage.text(stage.process), "the reason")
    still(stage, 20)
    slurm(stage, "scancel --qos=single --state=RUNNING --me")


@contextmanager
def partition(stage: Stage, name: str, limit: str) -> Iterator[None]:
    """A partition, which goes at the end with the sweep's jobs."""
    slurm(stage, f"scontrol create PartitionName={name} Nodes=ALL {limit}")
    try:
        yield
        stage.run("cancel", str(stage.folder))
    finally:
        slurm(stage, "scancel --me", check=False)
        until(lambda: not faults.jobs(stage.cluster), "an empty queue")
        slurm(stage, f"scontrol delete PartitionName={name}", check=False)


def too_short(stage: Stage) -> Sequence[str]:
    stage.begin("short", partition(stage, "short", "MaxTime=1"))
    return ("cluster.partition=short",)


def closed_too(stage: Stage, _: str) -> None:
    with partition(stage, "closed", "AllowAccounts=root"):
        text = stage.run(*stage.command(*ONE, "cluster.partition=closed"), status=3)
        expect("choose another cluster.account, cluster.qos or cluster.partition" in text, text[-400:])


def in_logs(stage: Stage, _: str) -> None:
    expect("/nowhere/python" in stage.run("logs", str(stage.folder)), "`logs` lacks it")


def nothing_measured(stage: Stage, _: str) -> None:
    expect(not list(stage.folder.glob("trials/*/*/record.json")), "something was measured")


def in_report(words: str) -> Callable[[Stage, str], None]:
    """The report says it too."""

    def after(stage: Stage, _: str) -> None:
        expect(words in (stage.folder / "report.html").read_text(), "the report does not say it")

    return after


def kill_two_trials(stage: Stage) -> None:
    for number in (1, 2):
        stage.strike("kill_trial")
        until(lambda number=number: len(failures(stage)) == number, "its record")


def another_device(stage: Stage, _: str) -> None:
    for file in stage.folder.glob("trials/*/p001-*/record.json"):
        values = checksums.unsealed(json.loads(file.read_text()))
        values["keys"]["device"] = "another"
        file.write_text(json.dumps(checksums.sealed(values)))
    text = stage.run("compare", str(stage.folder), status=(0, 1))
    for words in ("8 timing trials are left out: device is another", "On another: one at a time",
                  "pairs in p001 are in tables of their own, for another"):  # fmt: skip
        expect(words in text, text)
    stage.run(*stage.arguments)
    arrays = [line["names"] for line in stage.events("submitting")]
    expect(arrays == [["p000", "p001"], ["p001"]], arrays)


def token_for_the_job(stage: Stage) -> Sequence[str]:
    return (f"cluster.env_set.PS_TOKEN={stage.world.secrets[0]}", "tracking=offline")


def the_job_has_it(stage: Stage) -> None:
    expect(f"PS_TOKEN={stage.world.secrets[0]}".encode() in stage.variables, "the job lacks it")


def in_its_own_file(stage: Stage, _: str) -> None:
    expect(list(stage.folder.glob("wandb/**/*.wandb")), "W&B was told nothing")
    stage.run("compare", str(stage.folder))
    own = stage.folder / "submissions" / "env_set.sh"
    expect(stage.world.secrets[0] in own.read_text() and own.stat().st_mode & 0o777 == 0o600, own)


def number_found(stage: Stage, _: str) -> None:
    expect(stage.element() != "17_0", "the banner's number was taken")


def status_of_a_running_job(stage: Stage) -> None:
    text = stage.run("status", str(stage.folder), "--json", status=(0, 1))
    expect([pack["job"] for pack in json.loads(text)["packs"]] == ["running"], text)


def change_snapshot(stage: Stage) -> None:
    stage.submitted()
    (archive,) = (stage.folder / "code").glob("*/perfsweep.zip")
    archive.write_bytes(archive.read_bytes() + b"a byte more")
    let_start(stage)


def garbage_for_long(stage: Stage) -> None:
    calls = stage.world.programs / "sbatch.calls"
    until(calls.exists, "the first call")
    time.sleep(15)
    expect(2 <= calls.read_text().count("x") <= 6, calls.read_text())
    stage.end()


def without_locks(stage: Stage) -> None:
    (stage.world.root / "clock" / "no_locks").touch()


def second_command(stage: Stage) -> None:
    text = stage.run(*stage.arguments, status=2)
    refusal = "is being measured by another command; wait for it, or give this one a name= (process"
    expect(f"{refusal} {stage.process.pid} on " in text, text[-400:])


def requeue_itself(stage: Stage) -> None:
    element = stage.element()
    patiently(lambda: stage.fact(element, "Restarts") == "1", "its own requeue")
    stage.bench.start_now(element)


def down_until_noticed(stage: Stage) -> None:
    stage.begin("node_down")
    until(stage.ends, "its noticing", 60)
    stage.end()


def kill_step(stage: Stage) -> None:
    stage.strike("kill_step")
    until(stage.ends, "its noticing", 60)


FAILED = "ValueError: the toy failed while being timed"

_LIST = (
    Case("F1", "exception in the body", "failed, with type and message; the other arm is measured",
         (*ONE, "axes.trouble=[late]", "axes.work=[double]"), status=1, says=(FAILED,), at=None,
         after=one_type_and_message, finally_=1),
    Case("F2", "SIGKILL of the body, SIGSEGV of its retry", "no result, one retry, then final",
         deed=kill_it_twice, status=1, says=("submitting it again", "its process was ended by signal 11"),
         ends="no result, no result", submissions=2),
    Case("F3", "a running job is cancelled", "cancelled, not retried; the same command goes on",
         deed="cancel_job", status=1, ends="cancelled"),
    Case("F4", "one pending element is cancelled", "cancelled, no hang; the other element runs",
         (*TWO, "cluster.array_parallelism=1"), at=None, deed=cancel_second, status=1,
         ends="done; cancelled"),
    Case("F5", "the result appears 10 s after COMPLETED", "done, no second submission",
         (*ONE, "cluster.fs_delay_s=40"), deed=late_result),
    Case("F6", "leftover temporary files", "ignored, and gone at the end", first=leave_files, starts=1),
    Case("F7", "scontrol requeue while it runs",
         "one record of each trial; what the first start finished stays", deed=requeue,
         after=first_round_kept),
    Case("F8", "preemption without grace, and no requeue by Slurm", "submitted again, finished rounds kept",
         (*ONE, "cluster.partition=preemptible", "cluster.requeue=false"), at=1, deed=preempt_for_good,
         after=lambda stage, _: expect(not list(stage.folder.glob("trials/*/p000-r000-a1")), "repeated"),
         ends="preempted, done", submissions=2),
    Case("F9", "preemption of a timing pack", "the interrupted round is repeated, finished ones are kept",
         (*ONE, "cluster.partition=preemptible"), at=1, deed=preempt_and_requeue, after=first_round_kept,
         ends=None),
    Case("F10", "kill -9 slurmd while it runs", "two live copies, one record of each trial",
         (*LONG, "measure.rounds=24"), deed=lose_daemon, starts=2),
    Case("F11", "a node is set down", "Slurm's own requeue goes on, on the other node", deed=set_down(True),
         after=first_round_kept, ends=None),
    Case("F11b", "a node is set down, and Slurm must not requeue", "submitted again, on the other node",
         (*ONE, "cluster.requeue=false"), deed=set_down(False), ends="node failed, done", submissions=2),
    Case("F12", "slurmctld is down for 15 s", "nothing changes, one warning, the sweep completes", LONG,
         deed=lose_controller, after=one_warning, starts=1),
    Case("F13", "slurmctld is killed right after sbatch has answered",
         "followed by its token or its own records; a duplicate records nothing twice", at=None,
         deed=kill_controller_once_submitted, status=(0, 1), after=known_end, ends=None, submissions=None),
    Case("F13b", "slurmctld is killed between sbatch's submission and its answer",
         "looked up by its token, no second copy", first=kill_controller_in_sbatch, at=None,
         deed=start_it_later, status=(0, 3), after=no_second_copy, ends=None, submissions=None),
    Case("F14", "its number belongs to another user's job", "ours counts as gone, the other is let alone",
         first=give_number_again, after=foreign_job_runs, ends="vanished, done", submissions=2),
    Case("F15", "an array larger than MaxArraySize", "cut, all run",
         (*ONE, "cluster.arms_per_pack=2", "axes.work=[double]", "measure.rounds=3",
          "cluster.array_parallelism=50"), at=None, first=more_than_an_array, after=cut, submissions=None),
    Case("F16", "a submit limit of 2 and 4 packs", "a window is kept, all run", (*ONE, *FOUR),
         first=limit_jobs("storm", "MaxSubmitJobsPerUser=2"), at=None, after=refused, ends=None,
         submissions=None),
    Case("F17", "an invalid partition", "refused at once, naming the field",
         (*ONE, "cluster.partition=nowhere"), at=None, status=2,
         says=("Slurm refuses cluster.partition=nowhere",), after=refused, ends="", remedy=ONE),
    Case("F18", "suspended and resumed", "unfinished throughout, done at the end", deed=suspend, starts=1),
    Case("F19", "SIGUSR2, then SIGTERM, through scancel",
         "it stops after a round, and goes on in a requeue", (*ONE, "measure.rounds=10"), deed=signal_twice,
         after=both_signals_logged, ends="stopped, done", submissions=2, starts=3),
    Case("F20", "the command gets SIGINT, the next one SIGKILL", "jobs go on, and `wait` follows them", LONG,
         deed=Stage.interrupt, status=130, after=followed_by_wait, starts=1),
    Case("F21", "the same sweep again", "nothing is submitted", after=same_again),
    Case("F22", "the user's source changes while the job waits", "what was submitted runs",
         (*ONE, "workload=mine:Mine", HELD), first=write_module, at=None, deed=change_module,
         after=lambda stage, _: write_module(stage)),
    Case("F23", "sbatch hangs, prints garbage, fails, then works",
         "given up in time, looked up, no duplicate",
         under=("sbatch_hangs",), at=None, deed=three_bad_answers, after=one_copy, ends=None,
         submissions=None),
    Case("F24", "the memory limit of the job is hit", "recorded as oom, the arm is not tried again",
         (*ONE, "axes.trouble=[grow]", *GROWS), at=None, status=(0, 1),
         says=("memory ran out; submitting it again",), ends="out of memory, done", submissions=2,
         after=lambda stage, _: expect([one.values["outcome"] for one in failures(stage)] == ["oom"],
                                       failures(stage))),
    Case("F25", "a run on CPU alone", "CUDA_VISIBLE_DEVICES is empty",
         deed=lambda stage: expect(b"CUDA_VISIBLE_DEVICES=" in stage.variables, "it is not empty")),
    Case("F26", "a secret in the submitting environment", "in no file of the sweep, nor in the job",
         deed=nowhere_in_the_job),
    Case("D1", "a job is killed for memory as a whole, by one arm after the other",
         "a cap, kept in the journal; then a remedy, which helps", THREE_GROW, at=None, status=1,
         says=("memory ran out: raise cluster.memory",), after=given_up_for_good,
         ends=", ".join(4 * ["out of memory"]), submissions=3,  # the fourth is the refusal to submit it again
         remedy=(*THREE_GROW, "cluster.memory=3100M")),
    Case("D2", "the controller is silent when the sweep starts, and while its packs are on Slurm",
         "nothing is measured on this machine", first=silent, at=None, status=2,
         says=("Slurm's controller does not answer, so nothing was started",), after=silent_again, ends=None),
    Case("D3", "sbatch submits and says that it timed out", "looked up, one copy",
         under=("sbatch_submits_and_denies",), deed=Stage.end, starts=1),
    Case("D4", "squeue answers nothing; then `wait` on another cluster's login node",
         "said; nothing vanishes, nothing is submitted", (*LONG, "measure.rounds=16"),
         deed=no_queue_then_interrupt, status=130, after=wait_elsewhere, ends=None, starts=1),
    Case("D5", "one of several pending elements is cancelled; or `cancel`, forgotten by Slurm, `wait`",
         "stays cancelled", (*THREE, "cluster.array_parallelism=1"), at=None, deed=cancel_second, status=1,
         after=cancelled_and_forgotten, ends="done; cancelled, cancelled", submissions=2),
    Case("D6", "slurmdbd and slurmctld are silent when the packs have written their end",
         "the sweep ends all the same", at=3, deed=silence_both),
    Case("D7", "all packs wait for a limit on running jobs (QOSMaxJobsPerUser)", "a wait, with its reason",
         first=limit_to_one, at=None, deed=free_the_limit),
    Case("D8", "a partition that will never start it: its time limit, its accounts",
         "status 3, with the remedy", first=too_short, at=None, status=3,
         says=("1 pending (PartitionTimeLimit)",
               "PartitionTimeLimit: lower cluster.time_min, or choose another partition",),
         after=closed_too, ends=None, submissions=None, remedy=ONE),
    Case("D9", "the interpreter is missing on the node", "Slurm's words and the reason are shown",
         (*ONE, "cluster.python=/nowhere/python"), at=None, status=1,
         says=("/nowhere/python", "No such file or directory"), after=in_logs, ends="no result, no result",
         submissions=2, remedy=ONE),
    Case("D10", "a line of cluster.setup fails", "the pack stops there, and the line is named",
         (*ONE, "cluster.setup=['source /nowhere/profile.sh']"), at=None, status=1,
         says=("cluster.setup line 1 ended with status 1: source /nowhere/profile.sh",),
         after=nothing_measured, ends="failed", remedy=ONE),
    Case("D11", "every timing trial of all arms fails", "status 1, reason on terminal and in the report",
         (*ONE, "toggles.trouble=late"), at=None, status=1, says=(FAILED,), after=in_report(FAILED),
         ends=None, submissions=None, remedy=(*ONE, "toggles.trouble=none")),
    Case("D11b", "two timing trials are killed", "status 1, reason on terminal and in the report", LONG,
         deed=kill_two_trials, status=1, says=("SIGKILL",), after=in_report("SIGKILL"), ends=None,
         submissions=None, remedy=(*LONG, "retry=[failed]")),
    Case("D12", "records of two GPU types in one sweep [records edited]",
         "said, and none is dropped silently", TWO, at=None, after=another_device, ends=None, submissions=2),
    Case("D13", "values of cluster.env_set", "in no file but the job's own, of mode 0600",
         first=token_for_the_job, deed=the_job_has_it, after=in_its_own_file),
    Case("D14a", "a banner before sbatch's answer", "not taken for the number", under=("sbatch_banner",),
         at=None, after=number_found, starts=1),
    Case("D14b", "Ctrl-C while packs are not submitted yet",
         "says how many, and the same command submits them",
         (*TWO, "cluster.max_submit=1", "measure.rounds=8"), deed=Stage.interrupt, status=130,
         says=("1 pack was not submitted yet",), ends=None),
    Case("D14c", "`status` while a job runs", "shows it as running", LONG, deed=status_of_a_running_job),
    Case("D14d", "the snapshot in code/ is changed while the job waits",
         "refused when it starts, in a sentence", (*ONE, HELD), at=None, deed=change_snapshot, status=1,
         says=("is not the code that this job was submitted with",), ends=None, submissions=None, remedy=ONE),
    Case("D14e", "the controller is down before the first sbatch", "one sentence, nothing started",
         under=("slurmctld_killed",), at=None, status=2, says=("does not answer, so nothing was started",),
         ends="", submissions=0),
    Case("D14f", "sbatch answers garbage for 15 s", "backs off, then submits once",
         (*ONE, "cluster.poll_min_s=2", "cluster.poll_max_s=2"), under=("sbatch_talks",),
         at=None, deed=garbage_for_long, ends=None, submissions=None, starts=1),
    Case("D14g", "neither locks nor hard links (Lustre)",
         "measured; a second command is told which one to wait for", LONG, first=without_locks,
         deed=second_command),
    Case("D14h", "an arm that no time limit of the pack allows", "final, with what to change",
         (*ONE, "axes.trouble=[hang]", "axes.work=[double]", "measure.timeout_s=900", "cluster.time_min=1"),
         at=None, deed=requeue_itself, status=1, ends="timeout", submissions=None, starts=2, remedy=ONE,
         says=("raise cluster.time_min, or lower cluster.arms_per_pack so that a round fits into it",)),
    Case("D14i", "an option of cluster.sbatch given twice", "refused, naming it",
         (*ONE, "cluster.sbatch=['--licenses=host','-L host']"), at=None, status=2,
         says=("cluster.sbatch: --licenses is given twice",), ends="", submissions=0,
         remedy=(*ONE, "cluster.sbatch=['--licenses=host']")),
    Case("N1", "two nodes: a node is set down while both measure", "submitted again, each trial once",
         (*RANKS, "cluster.requeue=false"), deed=down_until_noticed, ends="node failed, done",
         submissions=None),
    Case("N2", "two nodes: the whole step is killed", "submitted again, each trial once", RANKS,
         deed=kill_step, ends="no result, done", submissions=None),
)  # fmt: skip

CASES = {one.id: one for one in _LIST}
"""Every case by its number."""
