"""Views on a W&B server that are built from code: building one again replaces it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.tracking import guarded, own_environment
from perfsweep.pipelines.publish.server import address, key_may_go_to, probe
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.errors import ConfigError

Identity = dict[str, str]
"""`id` and `name` of a view in W&B's database."""

Save = Callable[[str, Identity | None], tuple[str, Identity]]
"""Saves a view for an entity, in the place of an earlier one where there is one: its address and identity."""


def _kept(file: Path) -> dict[str, Identity]:
    """Which view a sweep has on which server and in which project."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return {}  # not built yet, or damaged: a view more in W&B does no harm


def tracking_of(manifest: Manifest, entity: str | None, project: str | None) -> Any:
    """Return the sweep's settings, with another entity or project where one is named."""
    known = {"entity": entity, "project": project}
    return replace(manifest.sweep.tracking, **{name: value for name, value in known.items() if value})


def save_view(tracking: Any, file: Path, what: str, save: Save) -> str:
    """Save a view on the server of `tracking` and return its address; `file` remembers it.

    Raises
    ------
    ConfigError
        The server cannot be used, or it refuses the view.
    """
    account = probe(tracking)
    if account.problem:
        raise ConfigError(f"{account.problem}; --file PATH writes the specification without a server")
    server, entity = address(tracking, os.environ), account.entity or tracking.entity or ""
    place, kept, problems = f"{server}/{entity}/{tracking.project}", _kept(file), list[str]()
    sent = key_may_go_to(server, os.environ)
    with tempfile.TemporaryDirectory() as aside, own_environment(Path(aside), server, credentials=sent):
        try:
            for known in (kept.get(place), None):
                problems.clear()
                with guarded(problems):  # it may have been deleted in W&B: then it gets a new one
                    url, kept[place] = save(entity, known)
                    write_atomically(file, json.dumps(kept, indent=1).encode())
                    return url
        finally:
            if "wandb" in sys.modules:
                with guarded([]):
                    sys.modules["wandb"].teardown()
    raise ConfigError(
        f"{server} did not take the {what} ({problems[0]}); --file PATH writes it without a server"
    )
