"""Waiting jobs -> arrays: grouped by shape, cut to what the site takes, with a window below its limits."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from perfsweep.slurm import batch, element
from perfsweep.slurm.client import SlurmClient, out_of_reach
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import PYTHON, Job
from perfsweep.slurm.journal import Journal, Submission
from perfsweep.slurm.observation import MARK
from perfsweep.slurm.site import REDACTED, Shape, SiteProfile
from perfsweep.slurm.states import End, end_of, remedy

BACKOFF_MAX_S = 300.0

GIVE_UP_AFTER = 5
"""An sbatch that says nothing this often, and submits nothing, will not do so by waiting."""


class Submitter:
    """Hands jobs to sbatch.

    Parameters
    ----------
    folder : `submissions/` of the sweep: job files, batch scripts, Slurm's output and the elements' own
        records
    code : archive of the package that the nodes run; `element.FILE` lies next to it
    digest : of the snapshot, which jobs hold it against before they start; None: they do not
    """

    def __init__(
        self,
        site: SiteProfile,
        folder: Path,
        name: str,
        code: Path,
        client: SlurmClient,
        journal: Journal,
        clock: Callable[[], float],
        digest: str | None = None,
    ) -> None:
        self.folder, self._digest = folder, digest
        self._site, self._code, self._client, self._journal, self._clock = site, code, client, journal, clock
        self._name = re.sub(r"[^\w.-]", "_", name)
        self._arrays: batch.ArrayExecutor | None = None
        self._largest: int | None = None
        self._delay_s, self._not_before, self._refusals = 0.0, 0.0, 0
        self._alone = False  # whether a single job is to show if the site takes any
        self._last_words = ""
        self._excluding = True
        self._heard: list[str] = []
        self._news: list[str] = []
        self._told: set[str] = set()

    def submit(self, waiting: Sequence[Job], queued: int) -> list[Submission]:
        """Submit as many of the waiting jobs as may be queued in addition to `queued` of ours.

        Raises
        ------
        ClusterError
            The site refuses for a reason that waiting does not remove; the message names the field of the
            profile.
        """
        done: list[Submission] = []
        if not waiting or self._clock() < self._not_before:
            return done
        for shape, jobs in self.grouped(waiting):
            while jobs:
                room = (self._site.max_submit or sys.maxsize) - queued
                chunk = jobs[: min(1 if self._alone else self._chunk(), room)]
                if not chunk:
                    return done
                submission = self._hand_over(chunk, shape, queued)
                if submission is None:
                    if self._clock() < self._not_before:
                        return done
                    continue  # a smaller chunk may pass
                done.append(submission)
                queued += len(chunk)
                jobs = jobs[len(chunk) :]
        return done

    def text(self, shape: Shape, count: int = 1) -> str:
        """The batch script of an array of `count` jobs of this shape, to be read or tried."""
        return self._executor().text(self._command(shape, "TOKEN"), count, self._parameters(shape, "TOKEN"))

    def texts(self, jobs: Sequence[Job]) -> list[str]:
        """The batch scripts that these jobs would be submitted with, one for each shape and chunk."""
        most = self._site.max_array
        return [
            self.text(shape, len(group[i : i + most]))
            for shape, group in self.grouped(jobs)
            for i in range(0, len(group), most)
        ]

    def grouped(self, jobs: Sequence[Job]) -> list[tuple[Shape, list[Job]]]:
        """Jobs by the resources they ask for."""
        shapes = [(Shape.of(self._site, job.ranks, job.resources), job) for job in jobs]
        # Sorting is stable: jobs keep their order.
        ordered = sorted(shapes, key=lambda pair: (pair[0].gpus, pair[0].cpus, repr(pair[0].fields)))
        return [
            (shape, [job for _, job in group]) for shape, group in groupby(ordered, key=lambda pair: pair[0])
        ]

    def collector(self, job: Job, after: Sequence[str]) -> Submission:
        """Submit a last job that starts when all of these arrays have ended, however they ended."""
        site, dependency = replace(self._site, sbatch=[]), "afterany:" + ":".join(after)
        shape = Shape(0, 1)  # it counts and draws: it needs no GPU, and must not wait for one
        return self._sbatch(
            [job], shape, self._parameters(shape, "{token}", site) | {"dependency": dependency}
        )

    def _hand_over(self, chunk: list[Job], shape: Shape, queued: int) -> Submission | None:
        try:
            submission = self._sbatch(chunk, shape, self._parameters(shape, "{token}"))
        except batch.SubmissionFailed as error:
            if self._excluding and self._journal.bad_nodes and batch.no_such_nodes(error.words):
                # They are down, or repaired by now: Slurm knows better than we which of the two.
                self._excluding, failed = False, " and ".join(sorted(self._journal.bad_nodes))
                self._news.append(
                    f"too few nodes are left without {failed}, which failed: packs may run there again"
                )
            else:
                self._after_refusal(error, len(chunk), queued)
            return None
        if submission.array is not None:
            self._delay_s, self._refusals, self._alone = 0.0, 0, False
        return submission

    def _sbatch(self, jobs: Sequence[Job], shape: Shape, parameters: dict[str, Any]) -> Submission:
        """One sbatch. Of unknown fate, it counts as submitted until the queue was asked for its token."""
        names, cluster = [job.name for job in jobs], self._client.cluster()
        refuse_other_cluster(cluster, os.environ)
        limits = self.limits(jobs[0].resources)
        submission = self._journal.submitting(names, self._client.conf, cluster, limits)
        token = submission.token
        self._write_jobs(token, jobs)
        filled = {k: v.replace("{token}", token) if isinstance(v, str) else v for k, v in parameters.items()}
        try:
            answer = self._executor().submit_text_array(self._command(shape, token), len(jobs), filled)
        except batch.SubmissionFailed as error:
            if error.unknown or out_of_reach(error.words or "\n".join(error.said)):
                self._last_words = str(error)
                self._heard += error.said
                return submission
            self._journal.refused(token, "\n".join(error.said) or str(error))
            raise
        self._heard += answer.said
        self._journal.submitted(token, answer.array, answer.cluster)
        return submission

    def _after_refusal(self, error: batch.SubmissionFailed, count: int, queued: int) -> None:
        """Fail at once where waiting is useless, try a smaller array, or wait twice as long as last time."""
        for word in error.words.split("\n"):
            if " " not in word and (todo := remedy("PENDING", word)):
                raise ClusterError(f"Slurm refuses the sweep: {word}: {todo}{error.site}")
        if not batch.is_limit(error.words):
            raise ClusterError(f"{self._objection(error)}{error.site}")
        self._heard += error.said
        if count > 1:
            self._largest = count // 2
        waits = queued > 0 or batch.is_limit_of_others(error.words) or self._has_queued()
        if not waits and self._alone:
            raise ClusterError(
                f"Slurm refuses even a single job while none of yours is queued: {error}. Choose another"
                f" cluster.qos, cluster.account or cluster.partition, or ask the site.{error.site}"
            )
        self._alone = not waits
        if waits and count == 1:
            self.back_off()
            self._news.append(
                f"Slurm takes no more jobs for now ({error}): the rest is submitted later, asked for every"
                f" {self._site.poll_min_s:g} to {BACKOFF_MAX_S:g} s; what is submitted goes on"
            )

    def _has_queued(self) -> bool:
        """Whether this user has jobs whose end may lift a limit; so it counts where Slurm does not say."""
        try:
            return any(end_of(seen.state) is None for seen in self._client.queue())
        except ClusterError:
            return True

    def _objection(self, error: batch.SubmissionFailed) -> str:
        """Say what Slurm refuses, by the field of the profile where it names one."""
        if field := batch.refusal(error.words):
            given = getattr(self._site, field, None)
            named = f"cluster.{field}={given}" if given is not None else f"cluster.{field}"
            return f"Slurm refuses {named}: {error}"
        return f"Slurm refuses the sweep: {error}; `perfsweep doctor cluster=...` shows what it takes"

    def heard(self) -> list[str]:
        """Tell once what sbatch has said beyond the numbers of jobs, line by line, and what follows."""
        lines = [*(f"the site says: {line}" for line in self._heard), *self._news]
        self._heard, self._news = [], []
        heard = [line for line in dict.fromkeys(lines) if line not in self._told]
        self._told.update(heard)
        return heard

    def never_arrived(self) -> None:
        """Hear that the array of an sbatch without an answer is not there: wait before the next.

        Raises
        ------
        ClusterError
            That has happened too often.
        """
        self._refusals += 1
        if self._refusals >= GIVE_UP_AFTER:
            raise ClusterError(
                f"sbatch submitted nothing {self._refusals} times and did not say why; its last words:"
                f" {self._last_words}"
            )
        self.back_off()

    def limits(self, resources: Mapping[str, Any]) -> dict[str, Any]:
        """What jobs with these resources of their own are allowed, by the end that they meet beyond it."""
        site = replace(self._site, **resources)
        memory = f"{site.mem_flag}={site.memory}" if site.memory else None
        return {End.TIMEOUT.value: site.time_min, End.OOM.value: memory}

    def back_off(self) -> None:
        """Wait before the next sbatch, twice as long as the last time."""
        self._delay_s = min(BACKOFF_MAX_S, max(self._site.poll_min_s, 2 * self._delay_s))
        self._not_before = self._clock() + self._delay_s * random.uniform(1.0, 1.2)

    def _chunk(self) -> int:
        if self._largest is None:
            allowed = self._client.config().get("MaxArraySize", "")
            most = int(allowed) if allowed.isdigit() else 0
            self._largest = min(self._site.max_array, most or self._site.max_array)
        return self._largest

    def _write_jobs(self, token: str, jobs: Sequence[Job]) -> None:
        values = {
            "token": token,
            "requeue": self._site.requeue,
            "max_retries": self._site.max_retries,
            "heartbeat_s": self._site.heartbeat_s,
            "code": str(self._code.absolute()),
            "digest": self._digest,
            "jobs": [asdict(j) | {"command": _portable(j), "log": str(j.log.absolute())} for j in jobs],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_environment()
        self.jobs_file(token).write_text(json.dumps(values, indent=1))

    @property
    def _env_file(self) -> Path:
        """Variables of `cluster.env_set`, for the eyes of this user alone."""
        return self.folder.absolute() / "env_set.sh"

    def _write_environment(self) -> None:
        """Write them, unless they come from a sweep.yaml, which does not hold them: then the file does."""
        if not self._site.env_set or REDACTED in self._site.env_set.values():
            return
        self._env_file.touch(mode=0o600)
        self._env_file.chmod(0o600)
        self._env_file.write_text(batch.environment(self._site))

    def submitted_jobs(self) -> list[Job]:
        """Every job that was handed over, as it was submitted last."""
        found: dict[str, Job] = {}
        for token in self._journal.submissions:
            try:
                rows = json.loads(self.jobs_file(token).read_text())["jobs"]
            except (OSError, ValueError, KeyError):
                continue  # a submitter died before it could write the file: nothing was handed over
            kept = (row | {"command": tuple(row["command"]), "log": Path(row["log"])} for row in rows)
            found |= {row["name"]: Job(**row) for row in kept}
        return list(found.values())

    def jobs_file(self, token: str) -> Path:
        """What an array's elements read."""
        return self.folder.absolute() / f"{token}.json"

    def _parameters(self, shape: Shape, token: str, site: SiteProfile | None = None) -> dict[str, Any]:
        site = site or replace(self._site, exclude=self._excluded(), **dict(shape.fields))
        name, comment, environ = f"{self._name}.{token}", MARK + token, self._client.env
        return batch.parameters(site, shape, name, comment, environ, self._env_file)

    def _excluded(self) -> str | None:
        """Nodes of the profile, and nodes that failed under us."""
        failed = sorted(self._journal.bad_nodes) if self._excluding else []
        names = [*filter(None, [self._site.exclude]), *failed]
        return ",".join(names) or None

    def _command(self, shape: Shape, token: str) -> str:
        script = self._code.absolute().with_name(element.FILE)
        return batch.command(self._site, shape, sys.executable, script, self.jobs_file(token))

    def _executor(self) -> batch.ArrayExecutor:
        if self._arrays is None:
            self._arrays = batch.ArrayExecutor(self.folder.absolute(), self._client, self._site)
        return self._arrays


def refuse_other_cluster(here: str | None, environ: Mapping[str, str]) -> None:
    """Refuse what a shell says of clusters where that is not the one that answers here, and is followed.

    Raises
    ------
    ClusterError
        It names another; the message names the variable.
    """
    for name in ("SBATCH_CLUSTERS", "SLURM_CLUSTERS"):
        if (others := environ.get(name)) and others != here:
            raise ClusterError(
                f"{name}={others}: jobs go to {here or 'the cluster that answers here'}, and are followed"
                f" there alone. Unset {name}, or start this command on a machine of {others}."
            )


def _portable(job: Job) -> list[str]:
    """The command with the place of the interpreter left open: the element fills in its own."""
    return [PYTHON if word == sys.executable else word for word in job.command]
