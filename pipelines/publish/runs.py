"""Which W&B runs a sweep has, made from its records one by one; and what tells namesakes apart."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.tracking import guarded
from perfsweep.pipelines.publish.comparison_run import compare_content, standings
from perfsweep.pipelines.publish.content import (
    PROFILE_JOB,
    UNCOMPARED,
    RunContent,
    Segment,
    Standing,
    check_arrays,
    run_content,
    toggle_levels,
)
from perfsweep.pipelines.publish.history_rows import Timing, plain
from perfsweep.pipelines.store.files import write_atomically, write_once
from perfsweep.pipelines.store.profiles import RESULT, Kept, kept_profiles, overhead_text
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, Manifest, Outcome, Pack, SweepFolder, read_iterations
from perfsweep.workloads.errors import ConfigError, RecordError

COMPARE = "compare"
"""Takes the place of the pack in the key of the run that shows the comparison."""

RunKey = tuple[str, str]
"""(pack, arm); (COMPARE, "") is the run that shows the comparison, (PROFILE, arm) the one that holds an arm's
profiles."""


class SweepRuns:
    """The runs of a sweep from its records now; files that cannot be read are named in `problems`."""

    def __init__(self, folder: SweepFolder, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.problems: list[str] = []
        self.identity = identity(folder)
        self._progress = read_progress(folder, manifest)
        self.problems += self._progress.damaged
        self._standings: dict[str, Standing] = {}
        with guarded(self.problems):
            self._standings = standings(folder, manifest)

    def keys(self, packs: Sequence[str] | None = None) -> list[RunKey]:
        """Runs of arms with finished rounds, of profiled arms, and of the comparison if there is one.

        Raises
        ------
        ConfigError
            A pack is not of this sweep.
        """
        found = [
            (pack.id, arm)
            for pack in _chosen(self.manifest, packs)
            for arm in pack.arms
            if _final(self._progress, pack, arm)
        ]
        with_comparison = packs is None and (self.folder.tables_dir / "effects.parquet").exists()
        profiled = (
            [(PROFILE, arm) for arm in profiled_arms(self.folder, self.problems)] if packs is None else []
        )
        return [*found, *profiled, (COMPARE, "")] if found and with_comparison else [*found, *profiled]

    def content(self, key: RunKey) -> RunContent | None:
        """The content of a run; None where its records cannot be understood."""
        with guarded(self.problems):  # arrays can be readable and still not be what a trial writes
            pack_id, arm_id = key
            if pack_id == COMPARE:
                return compare_content(self.folder, self.manifest, self.identity, tuple(self._series()))
            if pack_id == PROFILE:
                return profile_content(self.folder, self.manifest, self.identity, arm_id)
            pack = self.manifest.pack(pack_id)
            final = _final(self._progress, pack, arm_id)
            timings = [_timing(found, self.problems) for found in final]
            counting = self._progress.other.get((arm_id, Kind.COUNTING))
            counts, arm = counting and counting.record, self.manifest.arm(arm_id)
            standing = self._standings.get(arm_id, UNCOMPARED)
            return run_content(self.manifest, arm, pack, timings, counts, self.identity, standing)
        return None

    def _series(self) -> Iterator[tuple[str, Path]]:
        """Every iteration of every final round, as the trials wrote them, in a folder for each arm."""
        for pack in self.manifest.packs:
            for arm in pack.arms:
                for found in _final(self._progress, pack, arm):
                    file = found.folder / "iterations.npz"
                    if found.record.outcome is Outcome.OK and file.exists():
                        yield f"{arm}/{pack.id}-round{found.record.round:03d}.npz", file


def identity(folder: SweepFolder) -> str:
    """Six characters of this folder and its copies, which keep sweeps of one name apart in a project.

    Where the file was damaged, they are taken from what was published under them: with others every row would
    be sent once more.
    """
    file = folder.wandb_dir / "sweep.id"
    known = _identity_in(file)
    if known is None and file.exists():
        write_atomically(file, (_identity_of_runs(folder) or secrets.token_hex(3)).encode())
    elif known is None:
        write_once(file, secrets.token_hex(3).encode())
    return known or _identity_in(file) or ""


_IDENTITY = re.compile(r"[0-9a-f]{6}")


def _identity_in(file: Path) -> str | None:
    try:
        text = file.read_text(errors="replace").strip()
    except FileNotFoundError:
        return None
    return text if _IDENTITY.fullmatch(text) else None


def _identity_of_runs(folder: SweepFolder) -> str | None:
    """The identity that the locks of published runs are named after."""
    names = (path.name.partition("-")[0] for path in folder.wandb_dir.glob(".locks/*-*"))
    return next((name for name in names if _IDENTITY.fullmatch(name)), None)


def _chosen(manifest: Manifest, packs: Sequence[str] | None) -> list[Pack]:
    known = {pack.id: pack for pack in manifest.packs}
    if unknown := [name for name in packs or () if name not in known]:
        raise ConfigError(
            f"pack {unknown[0]} is not of sweep {manifest.sweep.name}; choose from: {', '.join(known)}"
        )
    return list(known.values()) if packs is None else [known[name] for name in dict.fromkeys(packs)]


def _final(progress: Progress, pack: Pack, arm: str) -> list[StoredTrial]:
    """The arm's trials in the attempts that finished a round: the ones that comparisons use."""
    used = (one for number in range(len(pack.orders)) for one in progress.used(pack, number))
    return [one for one in used if one.record.arm == arm]


def _timing(found: StoredTrial, problems: list[str]) -> Timing:
    if found.record.outcome is not Outcome.OK:
        return Timing(found.record, {})
    try:
        arrays = read_iterations(found.folder)
        check_arrays(arrays, str(found.folder))
    except RecordError as error:
        problems.append(str(error))
        return Timing(found.record, {})
    return Timing(found.record, arrays)


PROFILE = "profile"
"""Takes the place of the pack in the key of a run that shows an arm's profiles."""

COLUMNS = ("name", "where", "self_ns", "device_ns", "calls", "flops", "bytes")
ROWS = 200


def profiled_arms(folder: SweepFolder, problems: list[str]) -> list[str]:
    """Ids of the arms that have profiles; unreadable ones are named in `problems`."""
    return list(dict.fromkeys(kept.profile.arm.id for kept in kept_profiles(folder, problems)))


def profile_content(folder: SweepFolder, manifest: Manifest, identity: str, arm_id: str) -> RunContent:
    """The run that holds the profiles of an arm."""
    found = [kept for kept in kept_profiles(folder) if kept.profile.arm.id == arm_id]
    arm = found[0].profile.arm
    variant = manifest.arm_names.get(arm.id, arm.label)
    return RunContent.of(
        manifest.sweep,
        f"{identity}-{arm_id}-profile",
        f"profile of {variant}",
        (),
        # as its timing runs name it, so that both are found together
        {"arm": arm.id, "variant": variant, "toggles": toggle_levels(manifest, arm)},
        arm=arm_id,
        label=f"profile of {variant}",
        pack="",
        job_type=PROFILE_JOB,
        segments=(Segment(_digest(found), 1, partial(_media, found), numbers=False),),
        summary=_summary(found),
        files=tuple((f"{kept.folder.name}/{file.name}", file) for kept in found for file in _files(kept)),
    )


def _files(kept: Kept) -> list[Path]:
    return [kept.folder / RESULT, *kept.files]


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
