"""A git repository of a test's own, with commits whose author and time are fixed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_WHO = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "t"), ("EMAIL", "t@t"), ("DATE", "2024-01-01T00:00:00Z"))
}


class Planned(NamedTuple):
    """A commit to be made: its name, what it changes, the names of its parents, and its branch."""

    name: str
    files: Mapping[str, str]
    parents: tuple[str, ...] = ()
    branch: str = "main"


def git(folder: Path, *arguments: str) -> str:
    """Run git as nobody in particular; what it printed."""
    env = {
        **os.environ,
        **_WHO,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def begin(folder: Path) -> Path:
    """Make an empty repository with a branch called main."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    return folder.resolve()


def commit(root: Path, files: Mapping[str, str | None], tag: str) -> str:
    """Commit files, None for one that goes; the commit can be named by `tag`."""
    for name, text in files.items():
        if text is None:
            (root / name).unlink()
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", tag)
    git(root, "tag", tag)
    return git(root, "rev-parse", "HEAD")


def imported(folder: Path, commits: Sequence[Planned]) -> Path:
    """Make a repository of many commits in one go, each with a tag of its name; HEAD is the last on main."""
    root = begin(folder)
    stream, places = [], {one.name: place for place, one in enumerate(commits, 1)}
    for place, one in enumerate(commits, 1):
        stream += [f"commit refs/heads/{one.branch}", f"mark :{place}", f"committer t <t@t> {place} +0000"]
        stream += [f"data {len(one.name)}", one.name]
        stream += [
            f"{word} :{places[name]}" for word, name in zip(("from", "merge"), one.parents, strict=False)
        ]
        for name, text in one.files.items():
            stream += [f"M 644 inline {name}", f"data {len(text.encode())}", text]
        stream += ["", f"reset refs/tags/{one.name}", f"from :{place}", ""]
    given = "\n".join(stream).encode()
    subprocess.run(["git", "-C", str(root), "fast-import", "--quiet"], input=given, check=True)
    git(root, "reset", "-q", "--hard", "main")
    return root


def state(root: Path) -> tuple[str, ...]:
    """Everything that must stay as it is: files, index, stashes, worktrees, references, configuration."""
    index = (root / ".git/index").read_bytes().hex()
    said = [
        ("status", "--porcelain"),
        ("stash", "list"),
        ("worktree", "list"),
        ("show-ref",),
        ("config", "-l", "--local"),
    ]
    return (index, *(git(root, *words) for words in said))
