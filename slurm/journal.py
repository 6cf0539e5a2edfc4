"""What was submitted and how it ended, in an append-only file: all that another shell needs to follow."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsweep.checksums import append_line, unsealed
from perfsweep.slurm.states import Action, End, remedied


@dataclass
class Submission:
    """One array: `names[i]` is the job of element i.

    `array` is None while its fate is unknown: sbatch did not answer, or the submitter died; it is empty where
    an element has started all the same, and the number is unknown. `ended` holds how elements ended that
    need no more watching, `cancelled` the ones that the user wants to end. `cluster` is Slurm's name of it:
    another cluster's answers say nothing about this array.
    """

    token: str
    names: tuple[str, ...]
    time: float
    array: str | None = None
    refused: str | None = None
    ended: dict[int, End] = field(default_factory=dict)
    conf: str | None = None
    cluster: str | None = None
    cancelled: set[int] = field(default_factory=set)

    @property
    def open(self) -> list[int]:
        """Elements that may still be alive."""
        if self.refused is not None:
            return []
        return [index for index in range(len(self.names)) if index not in self.ended]


@dataclass(frozen=True)
class Verdict:
    """How one job ended at last, and what the user should know about it."""

    end: End
    action: Action
    note: str


class Journal:
    """The submissions of one sweep, in memory and on disk.

    Several commands may write to the file at once: each applies all its lines, its own included.

    Attributes
    ----------
    tries : how often each job was tried again, by the end that it answered; of an end that the user can
        remedy also the one after which it was not
    limits : what each job was allowed when it was submitted last
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.submissions: dict[str, Submission] = {}
        self.tries: dict[str, Counter[End]] = defaultdict(Counter)
        self.verdicts: dict[str, Verdict] = {}
        self.limits: dict[str, dict[str, Any]] = {}
        self.bad_nodes: set[str] = set()
        self._read = 0
        self.refresh()

    def submitting(
        self,
        names: Sequence[str],
        conf: str | None,
        cluster: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> Submission:
        """Note an array before it is handed over, so that a submitter killed in between leaves a trace."""
        token = uuid.uuid4().hex[:12]
        place = {"conf": conf, "cluster": cluster, "limits": dict(limits or {})}
        self._add({"event": "submitting", "token": token, "names": list(names), **place})
        return self.submissions[token]

    def submitted(self, token: str, array: str, cluster: str | None = None) -> None:
        """Note the job number of an array, and the cluster that has it where sbatch has named one."""
        self._add({"event": "submitted", "token": token, "array": array, "cluster": cluster})

    def refused(self, token: str, message: str) -> None:
        """Note that an array was not submitted."""
        self._add({"event": "refused", "token": token, "message": message})

    def cancelling(self, submission: Submission, indices: Collection[int]) -> None:
        """Note that the user wants elements to end, before Slurm is told: it may forget them, we do not."""
        self._add({"event": "cancelling", "token": submission.token, "indices": sorted(indices)})

    def ended(
        self, submission: Submission, index: int, verdict: Verdict, failed_nodes: Sequence[str] = ()
    ) -> None:
        """Note how an element ended, what follows, and the nodes that it is tried again without."""
        place = {"token": submission.token, "index": index, "failed_nodes": list(failed_nodes)}
        self._conclude(submission.names[index], verdict, place)

    def given_up(self, name: str, verdict: Verdict) -> None:
        """Note that a job which has no live submission is not submitted again."""
        self._conclude(name, verdict, {})

    def open_submissions(self) -> list[Submission]:
        """Submissions of which an element may be alive."""
        return [s for s in self.submissions.values() if s.refused is None and len(s.ended) < len(s.names)]

    def open_names(self) -> set[str]:
        """Jobs of which a copy may be alive."""
        return {s.names[index] for s in self.open_submissions() for index in s.open}

    def forgive(self, name: str, kept: Collection[End] = ()) -> None:
        """Forget earlier tries of a job that the user asks for again, but for those of some ends."""
        self._add({"event": "again", "name": name, "kept": [end.value for end in kept]})

    def refresh(self) -> None:
        """Apply the lines that were added since the last time, by whichever command."""
        try:
            with self.file.open("rb") as journal:
                journal.seek(self._read)
                content = journal.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in _parsed(whole):
            with suppress(
                KeyError, ValueError, TypeError
            ):  # a line that lost its checksum and more says nothing
                self._apply(line)

    def _conclude(self, name: str, verdict: Verdict, place: Mapping[str, Any]) -> None:
        how = {"end": verdict.end.value, "action": verdict.action.value, "note": verdict.note}
        self._add({"event": "ended", "name": name, **how, **place})

    def _add(self, line: dict[str, Any]) -> None:
        append_line(self.file, {"time": time.time(), **line})
        self.refresh()

    def _apply(self, line: dict[str, Any]) -> None:
        submission = self.submissions.get(line.get("token", ""))
        match line.get("event"):
            case "submitting":
                self._note_opened(line)
            case "submitted" if submission:
                submission.array = line["array"]
                submission.cluster = line.get("cluster") or submission.cluster
            case "refused" if submission:
                submission.refused = line["message"]
            case "cancelling" if submission:
                submission.cancelled.update(line["indices"])
            case "ended":
                if submission:
                    submission.ended[line["index"]] = End(line["end"])
                self._concluded(line)
            case "again":
                kept = {End(text) for text in line.get("kept", ())}
                tries = {end: count for end, count in self.tries[line["name"]].items() if end in kept}
                self.tries[line["name"]] = Counter(tries)
                self.verdicts.pop(line["name"], None)

    def _note_opened(self, line: dict[str, Any]) -> None:
        token, names = line["token"], tuple(line["names"])
        opened = Submission(token, names, line["time"], conf=line.get("conf"), cluster=line.get("cluster"))
        self.submissions[token] = opened
        for name in names:
            self.verdicts.pop(name, None)
            self.limits[name] = line.get("limits", {})

    def _concluded(self, line: dict[str, Any]) -> None:
        name, end, action = line["name"], End(line["end"]), Action(line["action"])
        before = self.verdicts.get(name)
        if before is None or before.end is not End.DONE:  # a second copy's end takes nothing back
            self.verdicts[name] = Verdict(end, action, line["note"])
        if action is Action.RETRY or (action is Action.FINAL and line.get("token") and remedied(end)):
            self.tries[name][end] += 1
        self.bad_nodes.update(line.get("failed_nodes", ()))


def _parsed(content: bytes) -> Iterator[dict[str, Any]]:
    """Lines of the file; one half written by a submitter that was killed, or damaged since, says nothing."""
    for raw in content.splitlines():
        try:
            line = json.loads(raw)
            if isinstance(line, dict):
                yield unsealed(line)
        except (ValueError, RecursionError):
            continue
