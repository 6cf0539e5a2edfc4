"""`perfsweep judge` and `comment`: two versions of code, and what a pull request is told of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from perfsweep.pipelines.commands.sweep import Display
from perfsweep.pipelines.commands.two_versions import TwoVersions
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.report import markdown, version_answer
from perfsweep.pipelines.report.version_answer import Side
from perfsweep.pipelines.store.files import read_whole
from perfsweep.pipelines.terminal import error_console
from perfsweep.pipelines.versions.environments import ENVIRONMENT
from perfsweep.pipelines.versions.repository import WORKTREE, Repository
from perfsweep.workloads.errors import ConfigError, harmless


def judge(words: Sequence[str], as_json: bool, environment: bool = False) -> int:
    """Judge the second of two versions against the first; the status says how that ended.

    Parameters
    ----------
    environment : the versions are environments, and not commits

    Raises
    ------
    ConfigError
        A version is unknown, has not got the workload, or cannot run it.
    """
    names = [word for word in words if "=" not in word]
    if len(names) > 2 or list(words[: len(names)]) != names:
        raise ConfigError(
            "judge takes at most BASE and HEAD, and then the options of a sweep, such as workload="
        )
    versions = TwoVersions.of("judge", words[len(names) :], commits=not environment)
    base, head = _environments(names) if environment else _commits(versions, names)
    if base.name == head.name:
        raise ConfigError(f"{base.name} is named twice; name two versions")
    answer = versions.compare(base, head, Display(error_console()))
    click.echo(json.dumps(answer.as_json(), indent=2) if as_json else harmless(answer.line))
    return answer.status


def _environments(names: Sequence[str]) -> tuple[Side, Side]:
    """The two environments; nothing says which one came first."""
    if len(names) != 2:
        raise ConfigError(
            "judge --environment compares two: name both, such as perfsweep judge --environment .venv .venv-b"
            " -- workload=..."
        )
    base, head = (Side(name, None, ENVIRONMENT) for name in names)
    return base, head


def _commits(versions: TwoVersions, names: Sequence[str]) -> tuple[Side, Side]:
    """The two commits: the named ones, else what changed last."""
    base, head = (*names, WORKTREE)[:2] if names else _changed_last(versions.commits)
    return versions.side(base), versions.side(head)


def _changed_last(repository: Repository) -> tuple[str, str]:
    """What is not committed against HEAD; else all commits of this branch against where it began."""
    if repository.is_dirty:
        return "HEAD", WORKTREE
    main = repository.default_branch
    base = repository.merge_base(main, "HEAD") if main else None
    if base is None or base == repository.commit("HEAD"):
        raise ConfigError(
            f"{repository.root} has neither uncommitted changes nor commits beyond {main or 'a main branch'};"
            " name what to compare, such as perfsweep judge HEAD~1 HEAD -- workload=..."
        )
    return base[:12], "HEAD"


def comment(files: Sequence[str], output: str | None = None) -> int:
    """Write the comment to a file, or print it.

    Raises
    ------
    ConfigError
        A file is none of `perfsweep judge --json`, or the comment cannot be written.
    """
    text = markdown.comment([_read(Path(file)) for file in files])
    if output is None:
        click.echo(text, nl=False)
        return DONE
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written ({error.strerror}); choose another file") from error
    return DONE


def _read(file: Path) -> dict[str, Any]:
    remedy = f"write it by: perfsweep judge --json -- workload=... > {file}"
    try:
        found = json.loads(read_whole(file))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is no JSON; {remedy}") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != version_answer.SCHEMA or not found.keys() >= version_answer.FIELDS:
        raise ConfigError(f"{file} is no answer of perfsweep judge (schema {schema}); {remedy}")
    return found
