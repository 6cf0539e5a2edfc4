"""Profiles as a report shows them: by arm, with what they cost and links to their files."""

from __future__ import annotations

from dataclasses import dataclass

from perfsweep.pipelines.store.profiles import Kept, kept_profiles
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.units import duration

SHOWN = 3
"""Lines of a profile that a report names; its files have the rest."""

PROFILE_HEADINGS = ("arm", "tool and slice", "most of the time", "cost of looking", "files")
"""Over the table of profiles, whose last column is links."""


@dataclass(frozen=True)
class LinkedProfile:
    """One profile in a report. `files` are names with addresses relative to the report's."""

    arm: str
    what: str
    most: str
    cost: str
    files: tuple[tuple[str, str], ...]


def linked_profiles(folder: SweepFolder) -> list[LinkedProfile]:
    """List the profiles of a sweep, in the order of their folders."""
    return [_linked(folder, kept) for kept in kept_profiles(folder)]


def _linked(folder: SweepFolder, kept: Kept) -> LinkedProfile:
    profile = kept.profile
    files = tuple((file.name, file.relative_to(folder.path).as_posix()) for file in kept.files)
    cost = "" if profile.overhead is None else f"{profile.overhead:.2f}x"
    return LinkedProfile(
        profile.arm.label, f"{profile.title}, {profile.slice}", "; ".join(_most(kept)), cost, files
    )


def _most(kept: Kept) -> list[str]:
    """What takes most, or what was found where nothing has a time."""
    profile = kept.profile
    timed = [cost for cost in profile.costs if cost.total_ns]
    if not timed:
        return list(profile.findings[:1])
    if profile.tool == "dynamo":
        return [*profile.findings[:1], *(f"{cost.name} {duration(cost.total_ns)}" for cost in timed[:SHOWN])]
    total = sum(cost.total_ns for cost in timed)
    return [f"{cost.name} {cost.total_ns / total:.0%}" for cost in timed[:SHOWN]]
