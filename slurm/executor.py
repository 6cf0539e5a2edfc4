"""Jobs on Slurm: arrays through submitit, and our own record of their states.

Slurm is asked seldom: one squeue and at most one sacct however many jobs there are. What a job has written
itself is looked at in between, and wins over what Slurm says; no answer changes nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from perfsweep.slurm import diagnosis
from perfsweep.slurm.client import Sighting, SlurmClient, Unreachable, expected_start
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.job_outcome import ElementRecords, Missing, Patience, Standing
from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState, Refusal
from perfsweep.slurm.journal import Journal, Submission, Verdict
from perfsweep.slurm.observation import (
    Answer,
    Inquiry,
    Key,
    Observer,
    RecordFiles,
    SteadyClock,
    failed_nodes,
    output_file,
)
from perfsweep.slurm.site import SiteProfile, of_the_shell
from perfsweep.slurm.states import RULES, Action, End, decide, end_of, kept_when_asked_again, used_up
from perfsweep.slurm.submitter import Submitter

JOURNAL, SUBMISSIONS = "submissions.jsonl", "submissions"

LOOK_S = 5.0
"""Longest pause between two looks at what jobs have written; a look lists one folder for each open array."""


class SlurmExecutor(Executor):
    """Follows the arrays of one sweep: the journal is in its folder, and nodes run its snapshot."""

    remote = True

    def __init__(self, context: ExecutorContext) -> None:
        site = context.site
        self._site, self._client, self._clock = site, SlurmClient(site.slurm_conf), SteadyClock()
        self._advanced, self._say, self._forgiven = context.advanced, context.say, context.forgiven
        self.journal = Journal(context.folder / JOURNAL)
        self._inquiry = Inquiry(self._client, self.journal, self._say, lambda: self._clock())
        self._submitter = Submitter(
            *(site, context.folder / SUBMISSIONS, context.name, context.code),
            *(self._client, self.journal, self._clock, context.digest),
        )
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._standings: dict[Key, Standing] = {}
        self._interval_s, self._next_poll, self._next_look = site.poll_min_s, 0.0, 0.0
        self._deaf = False
        self._records = RecordFiles(self._submitter.folder)
        self._observer = Observer(self._submitter.folder, Patience(site.fs_delay_s, site.heartbeat_s))

    @classmethod
    def of(cls, context: ExecutorContext) -> SlurmExecutor:
        """Make one for a sweep."""
        return cls(context)

    @classmethod
    def refusal(cls, site: SiteProfile, environ: Mapping[str, str]) -> Refusal | None:
        """Refuse inside a job unless asked not to, without sbatch, and where nothing can be followed."""
        if (job := environ.get("SLURM_JOB_ID")) and not site.submit_inside:
            return Refusal(f"inside Slurm job {job}", allocation=True)
        if shutil.which("sbatch") is None:
            return Refusal("Slurm is not installed here", installed=False)
        why = SlurmClient(site.slurm_conf).silence()
        return Refusal(why) if why else None

    @classmethod
    def warnings(cls, site: SiteProfile) -> list[str]:
        """Say what comes from sbatch's variables, which GPUs may differ, and which clients are not for us."""
        client = SlurmClient(site.slurm_conf)
        effects = {program: text for program, text in _WITHOUT.items() if program != "srun" or site.srun}
        said = [*of_the_shell(site, os.environ), *client.hindered(effects)]
        with suppress(ClusterError):
            if several := diagnosis.several_gpu_types(site, diagnosis.partitions_of(client)):
                said.append(several)
        return said

    @classmethod
    def submitted(cls, folder: Path) -> dict[str, bool]:
        """Read the journal in the sweep's folder; a job that was asked for again, and waits, is not in it."""
        journal = Journal(folder / JOURNAL)
        alive = journal.open_names()
        return {
            name: name in alive
            for s in journal.submissions.values()
            for name in s.names
            if name in alive or name in journal.verdicts
        }

    @classmethod
    def outputs(cls, folder: Path) -> dict[str, list[Path]]:
        """List the files that Slurm wrote for each job, oldest try first."""
        found: dict[str, list[Path]] = {}
        for submission in Journal(folder / JOURNAL).submissions.values():
            for index, name in enumerate(submission.names):
                if submission.array:
                    found.setdefault(name, []).append(output_file(folder / SUBMISSIONS, submission, index))
        return found

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit what no live submission carries already; the rest is followed.

        Raises
        ------
        ClusterError
            The site refuses; the message names the field of the profile.
        """
        if self._open():
            self._cycle(self._clock())  # a job that ended while no command followed may be started again
        alive = self.journal.open_names()
        for job in jobs:
            self._jobs[job.name] = job
            if job.name not in alive:
                self._start_anew(job)
        self._submit_waiting()

    def _start_anew(self, job: Job) -> None:
        """Queue a job that a user asks for, unless it has used up its tries and nothing has changed."""
        before = self.journal.limits.get(job.name, {})
        limits = self._submitter.limits(job.resources)
        changed = {End(end) for end, limit in limits.items() if before.get(end, limit) != limit}
        self.journal.forgive(job.name, kept_when_asked_again(changed | {*self._forgiven}))
        tries = self.journal.tries[job.name]
        if end := used_up(tries, self._site.max_retries):
            times = f"{tries[end]} time{'s' if tries[end] > 1 else ''}"
            often = f"{end.value} {times}: it is not submitted again: {RULES[end].remedy}"
            self.journal.given_up(job.name, Verdict(end, Action.FINAL, f"{often}, or ask for it with retry="))
        else:
            self._waiting.append(job)

    def follow(self, names: Collection[str]) -> None:
        """Take over jobs as they were submitted last, and try again what may be tried again."""
        alive = self.journal.open_names()
        for job in self._submitter.submitted_jobs():
            if job.name in names:
                self._jobs[job.name] = job
                verdict = self.journal.verdicts.get(job.name)
                if verdict and verdict.action is Action.RETRY and job.name not in alive:
                    self._waiting.append(job)  # the command that followed before went away in between

    def texts(self, jobs: Sequence[Job]) -> list[str]:
        """The batch scripts that `submit` would hand over."""
        return self._submitter.texts(jobs)

    def submit_last(self, job: Job) -> None:
        """Submit a job that starts when everything open has ended, unless one waits already.

        A site that refuses it is no reason not to follow the others: that is said, and what to do instead.
        """
        arrays = [s.array for s in self._open() if s.array and job.name not in s.names]
        if not arrays or job.name in self.journal.open_names():
            return
        try:
            self._submitter.collector(job, arrays)
        except ClusterError as error:
            self._say(
                f"the last job, {job.name}, is not submitted ({error.first_line}): what it would write is"
                " written by the command that follows, or by `perfsweep compare`"
            )

    def poll(self) -> dict[str, JobState]:
        """Look at records and ask Slurm, each if it is time, act on what ended; the state of every job.

        Raises
        ------
        ClusterError
            The site refuses a submission.
        """
        now = self._clock()
        if now >= self._next_poll and self._open():
            before = self._progress()
            self._cycle(now)
            self._interval_s = (
                min(self._site.poll_max_s, 1.5 * self._interval_s)
                if before == self._progress()
                else self._site.poll_min_s
            )
            self._next_poll = self._clock() + self._interval_s
        elif now >= self._next_look and self._open():
            self._cycle(now, ask=False)
        self._submit_waiting()
        return self.states()

    def _progress(self) -> list[tuple[Key, bool]]:
        """What makes the next question urgent; Slurm's reasons for waiting change without it."""
        return [(key, standing.running) for key, standing in self._standings.items() if standing.end is None]

    def look(self) -> dict[str, JobState]:
        """State of every job by one look at Slurm that changes nothing: no verdict, no submission."""
        if self._open():
            self._cycle(self._clock(), act=False)
        return self.states()

    def settle(self) -> None:
        """Note the verdicts on jobs that ended while no command followed; nothing is submitted."""
        if self._open():
            self._cycle(self._clock())

    def states(self) -> dict[str, JobState]:
        """State of every job by the last look."""
        alive, waiting = self._alive(), {job.name for job in self._waiting}
        return {name: self._state(name, alive, waiting) for name in self._jobs}

    def notes(self) -> dict[str, str]:
        """What Slurm or the last verdict says about each job."""
        alive, verdicts = self._alive(), self.journal.verdicts
        notes = {
            name: alive[name].note if name in alive else verdicts[name].note
            for name in self._jobs
            if name in alive or name in verdicts
        }
        return {name: note for name, note in notes.items() if note}

    def held(self) -> list[str]:
        """Jobs that will not start until you do something."""
        return [name for name, standing in self._alive().items() if standing.held and name in self._jobs]

    def counts(self) -> str:
        """How many jobs run and wait, and what for, in Slurm's words."""
        states = Counter(self.states().values())
        alive = [standing for standing in self._alive().values() if standing.end is None]
        reasons = Counter(s.reason for s in alive if not s.running and s.reason)
        unsubmitted = len(self._waiting)
        pending = states[JobState.PENDING] - unsubmitted
        expected = expected_start((s.start for s in alive), time.localtime(self._clock()))
        why = "; ".join(filter(None, [", ".join(reason for reason, _ in reasons.most_common(3)), expected]))
        why = f" ({why})" if why else ""
        parts = {
            f"{unsubmitted} not submitted yet": unsubmitted,
            f"{pending} pending{why}": pending,
            f"{states[JobState.RUNNING]} running": states[JobState.RUNNING],
        }
        return ", ".join(text for text, count in parts.items() if count > 0)

    def cancel(self, names: Iterable[str] | None = None) -> int:
        """Cancel jobs, all by default, if they carry our token; how many elements that were.

        The journal is told first: a command that follows the sweep later ends what this call did not reach.

        Raises
        ------
        ClusterError
            Slurm did not answer; the message says what becomes of the jobs.
        """
        alive = self.journal.open_names()
        chosen = (alive | {*self._jobs}) if names is None else {*names}
        self._waiting = deque(job for job in self._waiting if job.name not in chosen)
        for name in chosen - alive:
            verdict = self.journal.verdicts.get(name)
            if verdict and verdict.action is Action.RETRY:
                self.journal.given_up(name, _CANCELLED)
        for submission in self._open():
            if indices := [i for i in submission.open if submission.names[i] in chosen]:
                self.journal.cancelling(submission, indices)
        self._next_poll = 0.0
        if not chosen & alive:
            return 0
        try:
            answer = self._inquiry.ask()
            count = self._end_cancelled(answer)
        except ClusterError as error:
            raise ClusterError(
                f"{error.first_line}: nothing was cancelled yet. It is noted: `perfsweep wait`, or"
                " `perfsweep cancel` again, ends the jobs when Slurm answers"
            ) from error

        self._refuse_elsewhere(answer, count)
        return count

    def _refuse_elsewhere(self, answer: Answer, count: int) -> None:
        """Say which jobs this Slurm cannot end."""
        there = [
            s
            for s in self._open()
            if any(answer.get((s.token, i)) is Missing.ELSEWHERE for i in s.cancelled & {*s.open})
        ]
        if there:
            names, cluster = [name for s in there for name in s.names], there[0].cluster
            arrays = " ".join(s.array for s in there if s.array and s.cluster == cluster)
            raise ClusterError(
                f"cancelled {count} jobs here; {', '.join(names)} are on cluster {cluster}, whose jobs the"
                f" Slurm of this machine does not end. Run the same command on a machine of {cluster}, or"
                f" `scancel --clusters={cluster} {arrays}`."
            )

    def _end_cancelled(self, answer: Answer) -> int:
        """Tell Slurm to end what a user wants to end, a whole array in one word; how many elements."""
        count, targets = 0, []
        for submission in self._open():
            seen = {i: answer.get((submission.token, i)) for i in submission.open}
            live = {i: s for i, s in seen.items() if isinstance(s, Sighting) and end_of(s.state) is None}
            doomed = [i for i, s in live.items() if i in submission.cancelled and s.state != "COMPLETING"]
            whole = bool(doomed) and len(doomed) == len(submission.names)
            arrays = {live[i].array for i in doomed}
            targets += arrays if whole else [f"{live[i].array}_{i}" for i in doomed]
            count += len(doomed)
        if targets:
            self._client.run("scancel", *targets)
        return count

    def _cycle(self, now: float, act: bool = True, ask: bool = True) -> None:
        """Judge what is open; without `ask` only what says itself that it has done all."""
        self._next_look = now + min(LOOK_S, self._site.poll_min_s)
        self.journal.refresh()
        own = {s.token: self._records.read(s.token) for s in self._open()}
        answer: Answer = {}
        if ask and any(not own[s.token].get(i, _NOTHING).done for s in self._open() for i in s.open):
            answer = self._answer(act)
        for submission in self._open():
            judged = [i for i in submission.open if ask or own[submission.token].get(i, _NOTHING).done]
            if judged and act and not self._deaf:
                self._settle_fate(submission, answer, now)
            for index in judged:
                seen = answer.get((submission.token, index), Missing.UNPROVEN)
                records = own[submission.token].get(index, _NOTHING)
                standing = self._observer.standing(submission, index, seen, records, now)
                self._standings[submission.token, index] = standing
                if act and standing.end is not None:
                    self._ended(submission, index, standing, seen)

    def _answer(self, act: bool) -> Answer:
        """What Slurm says; nothing follows where it does not answer, which is said once."""
        try:
            answer = self._inquiry.ask()
            if act:
                self._end_cancelled(answer)
        except ClusterError as error:
            self._say_deaf(error)
            return {}
        if self._deaf:
            self._say("Slurm answers again")
        self._deaf = False
        return answer

    def _say_deaf(self, error: ClusterError) -> None:
        if not self._deaf:
            self._say(f"Slurm does not answer ({error.first_line}): nothing follows from that, asking again")
        self._deaf = True

    def _settle_fate(self, submission: Submission, answer: Answer, now: float) -> None:
        """Find out whether an sbatch without an answer has submitted its array."""
        if submission.array is not None or submission.refused is not None:
            return
        key = submission.token, -1
        ours = (seen for (token, _), seen in answer.items() if token == submission.token)
        if sighting := next((seen for seen in ours if isinstance(seen, Sighting)), None):
            self.journal.submitted(submission.token, sighting.array)
        elif (self._submitter.folder / submission.token).is_dir():
            self.journal.submitted(submission.token, "")  # it has run, and Slurm has forgotten its number
        elif Missing.ELSEWHERE in answer.values() or not self._observer.long_absent(key, now):
            return
        elif not self._inquiry.carries(submission.token):
            self.journal.refused(submission.token, "it never arrived")
            for index, name in enumerate(submission.names):
                if index in submission.cancelled:
                    self.journal.given_up(name, _CANCELLED)
                elif name in self._jobs:
                    self._waiting.append(self._jobs[name])
            self._submitter.never_arrived()

    def _ended(
        self, submission: Submission, index: int, standing: Standing, seen: Sighting | Missing
    ) -> None:
        name = submission.names[index]
        end = standing.end
        assert end is not None
        advanced = end in RULES and RULES[end].advancing and self._advanced(name, end)
        action = decide(end, self.journal.tries[name], advanced, self._site.max_retries)
        note = standing.note
        if action is Action.FINAL and end in RULES and RULES[end].remedy:
            note = f"{note}: {RULES[end].remedy}"
        nodes, without = (), ""
        if end in (End.NODE_FAIL, End.UNFIT) and isinstance(seen, Sighting):
            nodes, without = failed_nodes(self._client, seen)
        self.journal.ended(submission, index, Verdict(end, action, note), nodes)
        if action is Action.RETRY and name in self._jobs and name not in self.journal.open_names():
            times = self.journal.tries[name][end]
            one_by_one = (
                f"; {times} arms are lost to it: {RULES[end].remedy}" if end is End.OOM and times > 1 else ""
            )
            self._say(f"{name}: {standing.note}; submitting it again{without}{one_by_one}")
            self._waiting.append(self._jobs[name])

    def _submit_waiting(self) -> None:
        if not self._waiting:
            return
        queued = sum(len(s.open) for s in self._open())
        try:
            submissions = self._submitter.submit(list(self._waiting), queued)
        except Unreachable as error:
            self._say_deaf(error)
            self._submitter.back_off()
            return
        for line in self._submitter.heard():
            self._say(line)
        for submission in submissions:
            names = set(submission.names)
            self._waiting = deque(job for job in self._waiting if job.name not in names)
            self._next_poll = min(self._next_poll, self._clock() + self._site.poll_min_s)

    def _state(self, name: str, alive: Mapping[str, Standing], waiting: set[str]) -> JobState:
        if name in waiting:
            return JobState.PENDING
        if name in alive and alive[name].end is None:
            return JobState.RUNNING if alive[name].running else JobState.PENDING
        if name in alive:  # only looked at: no command has acted on how it ended
            return _STATES.get(alive[name].end or End.FAILED, JobState.FAILED)
        verdict = self.journal.verdicts.get(name)
        return _STATES.get(verdict.end, JobState.FAILED) if verdict else JobState.FAILED

    def _alive(self) -> dict[str, Standing]:
        """The states of jobs that have a live submission."""
        return {
            s.names[i]: self._standings.get((s.token, i), Standing()) for s in self._open() for i in s.open
        }

    def _open(self) -> list[Submission]:
        return self.journal.open_submissions()


_WITHOUT = {
    "scontrol": "limits and other clusters are not known, and packs cannot queue themselves again",
    "squeue": "jobs are followed by scontrol alone",
    "sacct": "how packs ended that Slurm has forgotten is known from their own records alone",
    "scancel": "`perfsweep cancel` ends no jobs",
    "srun": "where nodes have no other, packs do not start: cluster.srun=false",
}
"""What follows where one of Slurm's programs is missing or forbidden; without sbatch nothing is submitted."""

_NOTHING = ElementRecords({})
_CANCELLED = Verdict(End.CANCELLED, Action.FINAL, "cancelled")

_STATES = {End.DONE: JobState.ENDED, End.CANCELLED: JobState.CANCELLED}
