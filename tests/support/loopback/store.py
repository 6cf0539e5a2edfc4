"""What the backend remembers: runs with their rows, artifacts, saved views."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class StoredRun:
    """One run as the backend has it; `history` are the lines of its file stream."""

    storage_id: str
    name: str
    entity: str
    project: str
    display_name: str = ""
    group: str = ""
    job_type: str = ""
    config: str = "{}"
    summary: str = "{}"
    tags: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    state: str = "running"
    exit_code: int | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """History rows as values."""
        return [json.loads(line) for line in self.history]

    @property
    def summary_values(self) -> dict[str, Any]:
        """Summary as values."""
        return json.loads(self.summary)


@dataclass
class StoredArtifact:
    """One version of an artifact."""

    id: str
    run: str
    type: str
    collection: str
    digest: str
    state: str = "PENDING"
    metadata: str = "{}"
    files: dict[str, bytes] = field(default_factory=dict)


class Store:
    """Everything that was sent; callers hold the server's lock."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str, str], StoredRun] = {}
        self.deleted: set[tuple[str, str, str]] = set()
        self.artifacts: dict[str, StoredArtifact] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self._ids = itertools.count(1)

    def new_id(self, kind: str) -> str:
        """An id that nothing else has."""
        return f"{kind}:{next(self._ids)}"

    def upsert(self, key: tuple[str, str, str]) -> tuple[StoredRun, bool]:
        """The run with this (entity, project, name), and whether it is new."""
        if key in self.runs:
            return self.runs[key], False
        entity, project, name = key
        self.runs[key] = StoredRun(self.new_id("Run"), name, entity, project, display_name=name)
        return self.runs[key], True

    def by_storage_id(self, storage_id: str) -> StoredRun | None:
        """The run that the public API knows by this id."""
        return next((run for run in self.runs.values() if run.storage_id == storage_id), None)

    def delete(self, storage_id: str) -> None:
        """Forget a run; as in W&B its name cannot be used again."""
        for key, run in list(self.runs.items()):
            if run.storage_id == storage_id:
                del self.runs[key]
                self.deleted.add(key)

    def stream(self, key: tuple[str, str, str], body: dict[str, Any]) -> None:
        """One request of a run's file stream: lines replace what is there from their offset on."""
        run, _ = self.upsert(key)
        for name, part in (body.get("files") or {}).items():
            content, offset = part.get("content") or [], part.get("offset") or 0
            match name:
                case "wandb-history.jsonl":
                    run.history[offset : offset + len(content)] = content
                case "wandb-events.jsonl":
                    run.events[offset : offset + len(content)] = content
                case "wandb-summary.json" if content:
                    run.summary = content[-1]
        if body.get("complete"):
            run.exit_code = body.get("exitcode")
            run.state = "finished" if not run.exit_code else "failed"
