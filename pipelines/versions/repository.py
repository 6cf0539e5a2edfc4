"""Reads a git repository: names of commits, and what lies in them. Nothing of it is ever written.

Blobs are read as they are stored: no checkout, no index and no worktree takes part, and no filter or
attribute of the repository acts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from perfsweep.workloads.errors import ConfigError

WORKTREE = "worktree"
"""Names the state of the checkout, with what is not committed."""

_LINK, _SUBMODULE = "120000", "160000"
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
"""Variables of a hook that calls us: they may name another repository than the one of the file."""


class Entry(NamedTuple):
    """One path of a commit."""

    mode: str
    blob: str


class Commit(NamedTuple):
    """A commit of a line of history: its full hash, the first line of its message, and its parents."""

    hash: str
    subject: str
    parents: tuple[str, ...]

    @property
    def is_merge(self) -> bool:
        """Whether it joins other lines to this one."""
        return len(self.parents) > 1


@dataclass(frozen=True)
class Repository:
    """The git repository in a folder."""

    root: Path

    @classmethod
    def of(cls, file: Path) -> Repository:
        """Find the repository that a file lies in.

        Raises
        ------
        ConfigError
            There is none, or git refuses it.
        """
        done = _git(file.parent, "rev-parse", "--show-toplevel")
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            why = f" (git: {said[0]})" if said and "not a git repository" not in said[0] else ""
            raise ConfigError(f"{file} is in no git repository, so it has no versions{why}; commit it to one")
        return cls(Path(os.fsdecode(done.stdout).rstrip("\n")))

    def commit(self, name: str) -> str:
        """Look up the full hash of a commit by any name that git knows.

        Raises
        ------
        ConfigError
            There is no such commit here.
        """
        done = (
            None if name.startswith("-") else self._try("rev-parse", "--verify", "-q", f"{name}^{{commit}}")
        )
        if done is None or done.returncode:
            raise ConfigError(f"{name} is no commit of {self.root}{self._shallow_hint}")
        return done.stdout.decode().strip()

    def merge_base(self, one: str, other: str) -> str:
        """Find the best common ancestor of two commits.

        Raises
        ------
        ConfigError
            There is none here.
        """
        done = self._try("merge-base", self.commit(one), self.commit(other))
        if done.returncode:
            raise ConfigError(f"{one} and {other} have no common commit in {self.root}{self._shallow_hint}")
        return done.stdout.decode().strip()

    def first_parents(self, old: str, new: str) -> list[Commit]:
        """List the commits after `old` up to `new`, oldest first; of merges the first parent is followed.

        Raises
        ------
        ConfigError
            One of them is unknown, or `new` does not descend from `old`.
        """
        ends = self.commit(old), self.commit(new)
        if ends[0] == ends[1]:
            raise ConfigError(f"{old} and {new} are the same commit; name two")
        if self._try("merge-base", "--is-ancestor", *ends).returncode:
            raise ConfigError(
                f"{new} does not descend from {old}{self._shallow_hint or self._fork_hint(old, new)}"
            )
        span = ["--first-parent", "--reverse", "--format=%P%x00%s", f"{ends[0]}..{ends[1]}"]
        lines = self._output("rev-list", *span).decode(errors="replace").splitlines()
        # Two lines each: "commit HASH", and what was asked for.
        return [_commit(head, about) for head, about in zip(lines[::2], lines[1::2], strict=True)]

    def _fork_hint(self, old: str, new: str) -> str:
        found = self._try("merge-base", old, new)
        base = found.stdout.decode().strip()[:12]
        return f"; begin at {base}, which both descend from" if found.returncode == 0 else ""

    @property
    def default_branch(self) -> str | None:
        """The branch that others start from: what the remote says, else main or master."""
        remote = self._try("symbolic-ref", "-q", "--short", "refs/remotes/origin/HEAD")
        named = [remote.stdout.decode().strip()] if remote.returncode == 0 else []
        known = [*named, "origin/main", "origin/master", "main", "master"]
        return next(
            (name for name in known if self._try("rev-parse", "-q", "--verify", name).returncode == 0), None
        )

    @property
    def is_dirty(self) -> bool:
        """Whether the checkout has anything that is not committed, ignored files aside."""
        return bool(self._output("status", "--porcelain", "-z"))

    def entries(self, commit: str) -> dict[str, Entry]:
        """List what a commit holds, by path below the root."""
        listing = os.fsdecode(self._output("ls-tree", "-r", "-z", "--full-tree", commit))
        rows = (row.partition("\t") for row in listing.split("\0") if row)
        return {path: Entry(about.split()[0], about.split()[2]) for about, _, path in rows}

    def checkout_paths(self) -> list[str]:
        """List the files of the checkout that are not ignored, whether they are known to git or not."""
        listing = self._output("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return [path for path in os.fsdecode(listing).split("\0") if path and (self.root / path).is_file()]

    def changed_paths(self) -> list[str]:
        """List the known files of which the checkout has another state than HEAD."""
        return [
            path
            for path in os.fsdecode(self._output("diff-index", "--name-only", "-z", "HEAD")).split("\0")
            if path
        ]

    def contents(self, entries: dict[str, Entry], paths: Iterable[str]) -> dict[str, bytes]:
        """Read files of a commit; a link has the content of what it leads to, if that is in the commit.

        Raises
        ------
        ConfigError
            git cannot read a blob, as in a clone that left some out.
        """
        asked = list(paths)
        blobs = dict(zip(asked, self._blobs([entries[path].blob for path in asked]), strict=True))
        links = {path: _target(path, blobs[path]) for path in asked if entries[path].mode == _LINK}
        there = {path: other for path, other in links.items() if other in entries}
        found = self._blobs([entries[other].blob for other in there.values()])
        plain = {path: blob for path, blob in blobs.items() if path not in links}
        return {**plain, **dict(zip(there, found, strict=True))}

    def _blobs(self, names: list[str]) -> list[bytes]:
        if not names:
            return []
        output = self._output("cat-file", "--batch", given="\n".join(names).encode() + b"\n")
        found, at = [], 0
        for name in names:
            end = output.index(b"\n", at)
            words = output[at:end].split()
            if len(words) != 3:
                raise ConfigError(f"{self.root}: git has not got {name}, which this commit needs; fetch it")
            size = int(words[2])
            found.append(output[end + 1 : end + 1 + size])
            at = end + 2 + size
        return found

    @cached_property
    def _shallow_hint(self) -> str:
        shallow = self._try("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        return ", a shallow clone, which may lack it: run `git fetch --unshallow`" if shallow else ""

    def _output(self, *arguments: str, given: bytes | None = None) -> bytes:
        done = self._try(*arguments, given=given)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise ConfigError(f"{self.root}: git {arguments[0]} failed: {said.partition(chr(10))[0]}")
        return done.stdout

    def _try(self, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        return _git(self.root, *arguments, given=given)


def submodules(entries: dict[str, Entry]) -> list[str]:
    """Name the submodules of a commit, whose code git keeps elsewhere."""
    return [path for path, entry in entries.items() if entry.mode == _SUBMODULE]


def _commit(head: str, about: str) -> Commit:
    parents, _, subject = about.partition("\0")
    return Commit(head.split()[1], subject, tuple(parents.split()))


def _target(path: str, link: bytes) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(path), os.fsdecode(link)))  # noqa: PTH118, PTH120


def _git(folder: Path, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    # Without optional locks git does not even refresh the index.
    env = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], input=given, env=env, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise ConfigError("versions are read by git, which cannot be found; install it") from error
