"""Jobs on Slurm: arrays through submitit, and our own truth about how they stand.

A poll costs at most one squeue and one sacct however many jobs there are. What a job has written itself wins
over what Slurm says; no answer changes nothing.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from slurm.client import Sighting, SlurmClient
from slurm.element_records import mentions_memory, read_records
from slurm.errors import ClusterError
from slurm.jobs import Executor, ExecutorContext, Job, JobState, Refusal
from slurm.journal import Journal, Submission, Verdict
from slurm.judge import ElementRecords, Patience, Standing, judge
from slurm.retry import Action, decide
from slurm.site import SiteProfile
from slurm.states import LIVE, End, end_of
from slurm.submitter import MARK, Submitter

JOURNAL = "submissions.jsonl"

SETTLE_S = 5.0
"""sacct lags behind: nothing follows from it so soon after a submission."""

Key = tuple[str, int]


class SlurmExecutor(Executor):
    """Follows the arrays of one sweep.

    Parameters
    ----------
    advanced : told a job's name and how a try of it ended, says whether that try left more finished than it
        found
    say : takes sentences for the person who watches
    """

    remote = True

    def __init__(
        self,
        site: SiteProfile,
        submitter: Submitter,
        client: SlurmClient,
        journal: Journal,
        advanced: Callable[[str, End], bool] = lambda name, end: False,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.journal = journal
        self._site, self._submitter, self._client = site, submitter, client
        self._advanced, self._say, self._clock = advanced, say, clock
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._standings: dict[Key, Standing] = {}
        self._silent: dict[Key, tuple[float, int]] = {}
        self._interval_s, self._next_poll = site.poll_min_s, 0.0
        self._deaf = False
        self._strange: set[str] = set()
        self._patience = Patience(site.fs_delay_s, site.heartbeat_s)

    @classmethod
    def of(cls, context: ExecutorContext) -> SlurmExecutor:
        """Make one whose journal is in the sweep's folder and whose nodes run the snapshot."""
        site, client = context.site, SlurmClient(context.site.slurm_conf)
        journal = Journal(context.folder / JOURNAL)
        files = context.folder / "submissions"
        submitter = Submitter(site, files, context.name, context.code, client, journal, time.time)
        return cls(site, submitter, client, journal, context.advanced, context.say)

    @classmethod
    def refusal(cls, site: SiteProfile, environ: Mapping[str, str]) -> Refusal | None:
        """Refuse inside a job, without sbatch, and while the controller is silent."""
        if job := environ.get("SLURM_JOB_ID"):
            return Refusal(f"inside Slurm job {job}: measuring in this allocation")
        if shutil.which("sbatch") is None:
            return Refusal("no Slurm is installed here: measuring on this machine", installed=False)
        if not SlurmClient(site.slurm_conf).reachable():
            return Refusal("Slurm's controller does not answer: measuring on this machine")
        return None

    @classmethod
    def submitted(cls, folder: Path) -> dict[str, bool]:
        """Read the journal in the sweep's folder."""
        journal = Journal(folder / JOURNAL)
        alive = journal.open_names()
        return {name: name in alive for s in journal.submissions.values() for name in s.names}

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit what no live submission carries already; the rest is followed.

        Raises
        ------
        ClusterError
            The site refuses; the message names the field of the profile.
        """
        if self._open():
            self._cycle(self._clock())  # what ended while nobody followed is over, and may be asked for again
        alive = self.journal.open_names()
        for job in jobs:
            self._jobs[job.name] = job
            if job.name not in alive:
                self.journal.forgive(job.name)
                self._waiting.append(job)
        self._submit_waiting()

    def follow(self, names: Collection[str]) -> None:
        """Take over jobs as they were submitted last, and try again what may be tried again."""
        alive = self.journal.open_names()
        for job in self._submitter.submitted_jobs():
            if job.name in names:
                self._jobs[job.name] = job
                verdict = self.journal.verdicts.get(job.name)
                if verdict and verdict.action is Action.RETRY and job.name not in alive:
                    self._waiting.append(job)  # whoever followed before went away in between

    def texts(self, jobs: Sequence[Job]) -> list[str]:
        """The batch scripts that `submit` would hand over."""
        return self._submitter.texts(jobs)

    def submit_last(self, job: Job) -> None:
        """Submit a job that starts when everything open has ended, unless one waits already.

        Raises
        ------
        ClusterError
            The site refuses it.
        """
        arrays = [s.array for s in self._submitted() if s.array and job.name not in s.names]
        if arrays and job.name not in self.journal.open_names():
            self._submitter.collector(job, arrays)

    def poll(self) -> dict[str, JobState]:
        """Ask Slurm if it is time, act on what ended, submit what may be; the state of every job.

        Raises
        ------
        ClusterError
            The site refuses a submission.
        """
        now = self._clock()
        if now >= self._next_poll and self._open():
            before = dict(self._standings), len(self._open())
            self._cycle(now)
            changed = before != (self._standings, len(self._open()))
            self._interval_s = (
                self._site.poll_min_s if changed else min(self._site.poll_max_s, 1.5 * self._interval_s)
            )
            self._next_poll = self._clock() + self._interval_s
        self._submit_waiting()
        return self.states()

    def look(self) -> dict[str, JobState]:
        """State of every job by one look at Slurm that changes nothing: no verdict, no submission."""
        if self._open():
            self._cycle(self._clock(), act=False)
        return self.states()

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
        """Jobs that will not start until somebody does something."""
        return [name for name, standing in self._alive().items() if standing.held and name in self._jobs]

    def cancel(self, names: Iterable[str] | None = None) -> int:
        """Cancel jobs, all by default, if they carry our token; how many elements that were.

        Raises
        ------
        ClusterError
            Slurm did not answer: nothing was cancelled.
        """
        wanted = set(self._jobs if names is None else names)
        self._waiting = deque(job for job in self._waiting if job.name not in wanted)
        targets = []
        for sighting in self._client.queue():
            submission = self._submission(sighting)
            if submission is None or end_of(sighting.state) is not None:
                continue
            covered = range(len(submission.names)) if sighting.index is None else [sighting.index]
            chosen = (i for i in covered if names is None or submission.names[i] in wanted)
            targets += [f"{sighting.array}_{i}" for i in chosen]
        if targets:
            self._client.run("scancel", *targets)
        self._next_poll = 0.0
        return len(targets)

    def _cycle(self, now: float, act: bool = True) -> None:
        try:
            seen = self._look()
        except ClusterError as error:
            if not self._deaf:
                self._say(
                    f"Slurm does not answer ({str(error).splitlines()[0]}): nothing follows from that, asking"
                    " again"
                )
            self._deaf = True
            return
        if self._deaf:
            self._say("Slurm answers again")
        self._deaf = False
        for submission in [s for s in self.journal.submissions.values() if s.open]:
            if act:
                self._settle_fate(submission, seen, now)
            own = read_records(self._submitter.folder / submission.token)
            for index in submission.open:
                self._element(
                    submission,
                    index,
                    seen.get((submission.token, index)),
                    own.get(index, ElementRecords({})),
                    now,
                )
                standing = self._standings.get((submission.token, index), Standing())
                if act and standing.end is not None:
                    sighting = seen.get((submission.token, index))
                    self._ended(submission, index, standing, sighting.node if sighting else "")

    def _look(self) -> dict[Key, Sighting]:
        """Everything Slurm knows about our elements: squeue, and sacct for what squeue has forgotten."""
        seen = self._by_key(self._client.queue())
        gone = [s for s in self._submitted() if any((s.token, index) not in seen for index in s.open)]
        gone = [s for s in gone if self._clock() - s.time > SETTLE_S]
        if gone:
            since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(min(s.time for s in gone) - 60))
            if accounted := self._client.accounted([s.array for s in gone if s.array], since):
                seen = {**self._by_key(accounted), **seen}
        return seen

    def _by_key(self, sightings: Iterable[Sighting]) -> dict[Key, Sighting]:
        found: dict[Key, Sighting] = {}
        for sighting in sightings:
            if submission := self._submission(sighting):
                self._wonder_at(sighting.state)
                # A row that names its elements incompletely covers all that no other row names.
                covered = submission.open if sighting.index is None else [sighting.index]
                for index in covered:
                    if sighting.index is not None or (submission.token, index) not in found:
                        found[submission.token, index] = sighting
        return found

    def _wonder_at(self, word: str) -> None:
        """Say once that Slurm uses a word nobody here knows; such a job counts as unfinished."""
        if word not in LIVE and end_of(word) is None and word not in self._strange:
            self._strange.add(word)
            self._say(f"Slurm calls a job {word}, which is new here: it counts as unfinished")

    def _submission(self, sighting: Sighting) -> Submission | None:
        """The submission a job of Slurm belongs to, by its token: job numbers may be given out again."""
        for text in (sighting.comment.removeprefix(MARK), sighting.name.rpartition(".")[2]):
            if text in self.journal.submissions:
                return self.journal.submissions[text]
        return None

    def _settle_fate(self, submission: Submission, seen: dict[Key, Sighting], now: float) -> None:
        """Find out whether an sbatch without an answer has submitted its array."""
        if submission.array is not None:
            return
        for (token, _), sighting in seen.items():
            if token == submission.token:
                self.journal.submitted(token, sighting.array)
                return
        since, polls = self._silent.get((submission.token, -1), (now, 0))
        self._silent[submission.token, -1] = (since, polls + 1)
        if (self._submitter.folder / submission.token).is_dir():
            self.journal.submitted(submission.token, "")  # it has run, and Slurm has forgotten its number
        elif polls + 1 >= self._patience.polls and now - since >= min(SETTLE_S, self._patience.file_s):
            self.journal.refused(submission.token, "it never arrived")
            self._waiting.extend(self._jobs[name] for name in submission.names if name in self._jobs)

    def _element(
        self, submission: Submission, index: int, sighting: Sighting | None, own: ElementRecords, now: float
    ) -> None:
        key = (submission.token, index)
        if submission.refused is not None or submission.array is None:
            return
        if sighting is None or end_of(sighting.state) is not None:
            since, polls = self._silent.get(key, (now, 0))
            self._silent[key] = (since, polls + 1)
            own = self._with_oom(own, submission, index)
        else:
            self._silent.pop(key, None)
        since, polls = self._silent.get(key, (now, 0))
        self._standings[key] = judge(sighting, own, now - since, polls, now, self._patience)

    def _with_oom(self, own: ElementRecords, submission: Submission, index: int) -> ElementRecords:
        output = self._submitter.folder / f"{submission.array}_{index}_0_log.out"
        return ElementRecords(own.exits, own.starts, own.alive_at, mentions_memory(output))

    def _ended(self, submission: Submission, index: int, standing: Standing, node: str) -> None:
        name = submission.names[index]
        end = standing.end
        assert end is not None
        advanced = end is not End.DONE and self._advanced(name, end)
        action = decide(end, self.journal.tries[name], advanced, self._site.max_retries)
        elsewhere = any(
            s.names[i] == name
            for s in self.journal.submissions.values()
            for i in s.open
            if s is not submission
        )
        self.journal.ended(submission, index, Verdict(end, action, standing.note), node)
        if action is Action.RETRY and name in self._jobs and not elsewhere:
            self._say(f"{name}: {standing.note}; submitting it again")
            self._waiting.append(self._jobs[name])

    def _submit_waiting(self) -> None:
        if not self._waiting:
            return
        queued = sum(len(s.open) for s in self.journal.submissions.values())
        for submission in self._submitter.submit(list(self._waiting), queued):
            names = set(submission.names)
            self._waiting = deque(job for job in self._waiting if job.name not in names)
            self._next_poll = min(self._next_poll, self._clock() + self._site.poll_min_s / 2)

    def _state(self, name: str, alive: Mapping[str, Standing], waiting: set[str]) -> JobState:
        if name in waiting:
            return JobState.PENDING
        if name in alive and alive[name].end is None:
            return JobState.RUNNING if alive[name].running else JobState.PENDING
        if name in alive:  # only looked at: nobody has acted on how it ended
            return _STATES.get(alive[name].end or End.FAILED, JobState.FAILED)
        verdict = self.journal.verdicts.get(name)
        return _STATES.get(verdict.end, JobState.FAILED) if verdict else JobState.FAILED

    def _alive(self) -> dict[str, Standing]:
        """How the jobs stand that have a live submission."""
        return {
            s.names[i]: self._standings.get((s.token, i), Standing()) for s in self._open() for i in s.open
        }

    def _open(self) -> list[Submission]:
        return [s for s in self.journal.submissions.values() if s.open]

    def _submitted(self) -> list[Submission]:
        return [s for s in self._open() if s.array]


_STATES = {End.DONE: JobState.ENDED, End.CANCELLED: JobState.CANCELLED}
