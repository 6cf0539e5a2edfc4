"""What a person should hear of versions: what they are, and where trials run what they do not show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from perfsweep.pipelines.store.schema import Version
from perfsweep.pipelines.versions.environments import _some, environment_lines
from perfsweep.pipelines.versions.repository import WORKTREE, Repository, submodules
from perfsweep.workloads.registry import CODE

_PROSE = (".md", ".rst")
_NAMED = 3


def notices(every: Sequence[Version]) -> Iterator[str]:
    """Name environments, and say what is the checkout's in all versions although it differs between them."""
    yield from environment_lines(every)
    versions = [version for version in every if version.repository]
    if not versions:
        return
    repository = Repository(Path(versions[0].repository))
    if differing := _differing([_data(repository, version.commit) for version in versions]):
        yield (
            f"{_some(differing)}: no code, and not the same in all versions; a trial that reads such a file"
            " finds the checkout's, whichever version it runs"
        )
    heads = [version.commit or "HEAD" for version in versions]
    if modules := {path for head in heads for path in submodules(repository.entries(head))}:
        yield f"{_some(sorted(modules))}: submodules, of which all versions import what is checked out"


def _data(repository: Repository, commit: str | None) -> dict[str, str]:
    """What tells one content from another, of each file that is no code."""
    entries = repository.entries(commit or "HEAD")
    changed = () if commit else repository.changed_paths()
    every = {**{path: entry.blob for path, entry in entries.items()}, **dict.fromkeys(changed, WORKTREE)}
    return {path: blob for path, blob in every.items() if Path(path).suffix not in (*CODE, *_PROSE)}


def _differing(every: Iterable[Mapping[str, str]]) -> list[str]:
    several = list(every)
    paths = sorted({path for data in several for path in data})
    return [path for path in paths if len({data.get(path) for data in several}) > 1]
