"""An arm's profiles as a W&B run of type ``profile``: tables, pages, and all files as an artifact."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from perfsweep.pipelines.publish.content import (
    LONGEST_NAME,
    LONGEST_TAG,
    PROFILE_JOB,
    RunContent,
    Segment,
    toggle_levels,
)
from perfsweep.pipelines.publish.history_rows import plain
from perfsweep.pipelines.store.profiles import RESULT, Kept, kept_profiles, overhead_text
from perfsweep.pipelines.store.records import SCHEMA, Arm, Manifest, SweepFolder

PROFILE = "profile"
"""Stands for the pack in the key of a run that shows an arm's profiles."""

COLUMNS = ("name", "where", "self_ns", "device_ns", "calls", "flops", "bytes")
ROWS = 200


def profiled_arms(folder: SweepFolder, problems: list[str]) -> list[str]:
    """Ids of the arms that have profiles; those that cannot be read are named in `problems`."""
    return list(dict.fromkeys(kept.profile.arm.id for kept in kept_profiles(folder, problems)))


def profile_content(folder: SweepFolder, manifest: Manifest, identity: str, arm_id: str) -> RunContent:
    """The run that holds the profiles of an arm."""
    found = [kept for kept in kept_profiles(folder) if kept.profile.arm.id == arm_id]
    sweep, tracking, arm = manifest.sweep, manifest.sweep.tracking, found[0].profile.arm
    short = sweep.workload.rpartition(":")[2]
    return RunContent(
        run_id=f"{identity}-{arm_id}-profile",
        arm=arm_id,
        label=f"profile of {arm.label}",
        pack="",
        name=f"profile-{short}-{arm.label}"[:LONGEST_NAME],
        project=tracking.project,
        entity=tracking.entity,
        group=sweep.name[:LONGEST_NAME],
        job_type=PROFILE_JOB,
        tags=tuple(tag[:LONGEST_TAG] for tag in (short, sweep.name)),
        config=_config(manifest, arm),
        segments=(Segment(_digest(found), 1, partial(_media, found), numbers=False),),
        summary=_summary(found),
        exit_code=0,
        files=tuple((f"{kept.folder.name}/{file.name}", file) for kept in found for file in _files(kept)),
    )


def _files(kept: Kept) -> list[Path]:
    return [kept.folder / RESULT, *kept.files]


def _config(manifest: Manifest, arm: Arm) -> dict[str, Any]:
    """The arm as its timing runs name it, so that both are found together."""
    sweep = manifest.sweep
    known = {"schema_version": SCHEMA, "workload": sweep.workload, "sweep_id": sweep.name, "code": sweep.code}
    return {**known, "arm": arm.id, "variant": arm.label, "toggles": toggle_levels(manifest, arm)}


def _digest(found: Sequence[Kept]) -> str:
    digest = hashlib.sha256()
    for kept in found:
        for file in _files(kept):
            digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _summary(found: Sequence[Kept]) -> dict[str, Any]:
    """What each tool cost, and its facts."""
    said: dict[str, Any] = {}
    for kept in found:
        place = f"profile/{plain(kept.folder.name)}"
        said |= {
            f"{place}/{plain(name)}": value for name, value in kept.profile.facts.items() if value is not None
        }
        if kept.profile.overhead is not None:
            said[f"{place}/overhead"] = kept.profile.overhead
        said[f"{place}/says"] = " | ".join([*kept.profile.findings, overhead_text(kept.profile)])
    return said


def _media(found: Sequence[Kept]) -> Iterator[dict[str, Any]]:
    """The one row of the run. Imports wandb."""
    import wandb

    row: dict[str, Any] = {}
    for kept in found:
        rows = [[getattr(cost, name) for name in COLUMNS] for cost in kept.profile.costs[:ROWS]]
        if rows:
            row[kept.folder.name] = wandb.Table(columns=list(COLUMNS), data=rows)
        for file in kept.files:
            if file.suffix == ".html":
                row[f"{kept.folder.name}-page"] = wandb.Html(file.read_text(), inject=False)
    yield row or {"profiles": len(found)}
