"""What was submitted and how it ended, in an append-only file: all that another shell needs to follow."""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.retry import Action, Tries
from slurm.states import End


@dataclass
class Submission:
    """One array: `names[i]` is the job of element i.

    `array` is None while its fate is unknown: sbatch did not answer, or the submitter died. `ended` holds how
    elements ended that need no more watching.
    """

    token: str
    names: tuple[str, ...]
    time: float
    array: str | None = None
    refused: str | None = None
    ended: dict[int, End] = field(default_factory=dict)
    conf: str | None = None

    @property
    def open(self) -> list[int]:
        """Elements that may still be alive."""
        if self.refused is not None:
            return []
        return [index for index in range(len(self.names)) if index not in self.ended]


@dataclass(frozen=True)
class Verdict:
    """How one job ended at last, and what a person should know about it."""

    end: End
    action: Action
    note: str


class Journal:
    """The submissions of one sweep, in memory and on disk."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.submissions: dict[str, Submission] = {}
        self.tries: dict[str, Tries] = defaultdict(Tries)
        self.verdicts: dict[str, Verdict] = {}
        for line in self._lines():
            self._apply(line)

    def submitting(self, names: Sequence[str], conf: str | None) -> Submission:
        """Note an array before it is handed over, so that a submitter killed in between leaves a trace."""
        token = uuid.uuid4().hex[:12]
        self._add({"event": "submitting", "token": token, "names": list(names), "conf": conf})
        return self.submissions[token]

    def submitted(self, token: str, array: str) -> None:
        """Note the job number of an array."""
        self._add({"event": "submitted", "token": token, "array": array})

    def refused(self, token: str, message: str) -> None:
        """Note that an array was not submitted."""
        self._add({"event": "refused", "token": token, "message": message})

    def ended(self, submission: Submission, index: int, verdict: Verdict, node: str = "") -> None:
        """Note how an element ended and what follows."""
        line = {"event": "ended", "token": submission.token, "index": index, "name": submission.names[index]}
        self._add(
            {
                **line,
                "end": verdict.end.value,
                "action": verdict.action.value,
                "note": verdict.note,
                "node": node,
            }
        )

    def open_names(self) -> set[str]:
        """Jobs of which a copy may be alive."""
        return {s.names[index] for s in self.submissions.values() for index in s.open}

    def forgive(self, name: str) -> None:
        """Forget earlier tries of a job that a person asks for again."""
        self._add({"event": "again", "name": name})

    def bad_nodes(self) -> set[str]:
        """Nodes that failed under jobs of this sweep."""
        return {
            line["node"]
            for line in self._lines()
            if line.get("event") == "ended" and line.get("end") == End.NODE_FAIL.value and line["node"]
        }

    def _add(self, line: dict[str, Any]) -> None:
        line = {"time": time.time(), **line}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as out:
            out.write(json.dumps(line).encode() + b"\n")
        self._apply(line)

    def _apply(self, line: dict[str, Any]) -> None:
        match line.get("event"):
            case "submitting":
                token, names = line["token"], tuple(line["names"])
                self.submissions[token] = Submission(token, names, line["time"], conf=line.get("conf"))
                for name in line["names"]:
                    self.verdicts.pop(name, None)
            case "submitted":
                self.submissions[line["token"]].array = line["array"]
            case "refused":
                self.submissions[line["token"]].refused = line["message"]
            case "ended":
                end, action = End(line["end"]), Action(line["action"])
                self.submissions[line["token"]].ended[line["index"]] = end
                before = self.verdicts.get(line["name"])
                if before is None or before.end is not End.DONE:  # a second copy's end takes nothing back
                    self.verdicts[line["name"]] = Verdict(end, action, line["note"])
                if action is Action.RETRY:
                    self.tries[line["name"]] = self.tries[line["name"]].after(end)
            case "again":
                self.tries.pop(line["name"], None)
                self.verdicts.pop(line["name"], None)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Lines of the file; a last one half written by a submitter that was killed says nothing."""
        try:
            text = self.file.read_text()
        except FileNotFoundError:
            return
        for raw in text.splitlines():
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield line
