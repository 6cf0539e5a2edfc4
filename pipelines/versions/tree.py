"""What trials of a version run: files as a commit, the checkout or a patch has them, and its environment.

The sweep keeps the files. A patch that is worth it is kept too, with digests of what was measured: it is
applied to these files only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.schema import Environment, Version
from perfsweep.pipelines.units import few
from perfsweep.pipelines.versions.environments import environment_lines
from perfsweep.pipelines.versions.repository import WORKTREE, Repository, submodules
from perfsweep.workloads.api import Parity
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.imports import OURS, PACKAGE
from perfsweep.workloads.registry import CODE
from perfsweep.workloads.snapshot import Snapshot
from perfsweep.workloads.user_environment import INTERPRETER


@dataclass(frozen=True)
class Tree:
    """The code of one version.

    Attributes
    ----------
    repository : that the files lie in; None where only files of the workload itself differ
    commit : full hash, None for the checkout with what is not committed
    parity, bounds : how far results may move; the checks of versions of a repository must be met exactly
    files : content by the path that each file has, or would have, in the checkout
    digest : SHA-256 over places and contents
    """

    repository: Repository | None
    commit: str | None
    files: Mapping[Path, bytes]
    digest: str
    parity: Parity = Parity.EXACT
    bounds: Mapping[str, float] = field(default_factory=dict)


def read(repository: Repository, name: str, others: Iterable[Path] = ()) -> Tree:
    """Read the code of a version.

    Parameters
    ----------
    name : anything that git takes for a commit, or ``worktree``
    others : files outside of the repository that belong to the workload too, as they are now

    Raises
    ------
    ConfigError
        There is no such commit.
    """
    if name == WORKTREE:
        commit = None
        paths = _code(repository.checkout_paths(), repository)
        inside = {path: (repository.root / path).read_bytes() for path in paths}
    else:
        commit = repository.commit(name)
        entries = repository.entries(commit)
        inside = repository.contents(entries, _code(entries, repository))
    outside = {file: file.read_bytes() for file in others if not file.is_relative_to(repository.root)}
    files = {**{repository.root / path: text for path, text in inside.items()}, **outside}
    return Tree(repository, commit, files, _digest(inside, outside))


PATCH, ORIGINAL = "patch", "original"
"""The toggle whose levels are patches, and the level that is none."""

_PATCH_FACTS = "patch.json"


@dataclass(frozen=True)
class Patched:
    """What is known of a patch.

    Attributes
    ----------
    files : SHA-256 of every file of the workload when it was measured, by its path
    changed : paths of files that the patch changes
    args : of the script
    parity, bounds : how far its results may move, as the levels that it writes down may
    """

    files: Mapping[str, str]
    changed: tuple[str, ...]
    args: tuple[str, ...] = ()
    parity: Parity = Parity.EXACT
    bounds: Mapping[str, float] = field(default_factory=dict)

    def refuse_changed(self, remedy: str) -> None:
        """Refuse files that are others than they were.

        Raises
        ------
        ConfigError
            One is; `remedy` says what to do.
        """
        for file, known in self.files.items():
            if _file_digest(Path(file)) != known:
                raise ConfigError(f"{file} has changed since it was measured: {remedy}")


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def keep_patch(folder: Path, facts: Patched, contents: Mapping[str, bytes]) -> None:
    """Keep the new content of each file that changes."""
    shutil.rmtree(folder, ignore_errors=True)
    copies = Snapshot(folder)
    for file, content in contents.items():
        copy = copies.copy_of(Path(file))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    write_atomically(folder / _PATCH_FACTS, json.dumps(dataclasses.asdict(facts)).encode())


def kept_patch(folder: Path) -> Patched:
    """Read what is known of a patch.

    Raises
    ------
    ConfigError
        There is none in this folder.
    """
    try:
        facts = json.loads((folder / _PATCH_FACTS).read_bytes())
        facts |= {"changed": tuple(facts["changed"]), "args": tuple(facts["args"])}
        return Patched(**{**facts, "parity": Parity(facts["parity"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} holds no patch; perfsweep tune train.py writes one, and {ORIGINAL} is none"
        ) from error


def apply_patch(folder: Path) -> tuple[str, ...]:
    """Write a patch into the files that it changes; their paths.

    Raises
    ------
    ConfigError
        A file of the workload has changed since it was measured; nothing is written then.
    """
    facts, copies = kept_patch(folder), Snapshot(folder)
    contents = {file: copies.copy_of(Path(file)).read_bytes() for file in facts.changed}
    if all(Path(file).is_file() and Path(file).read_bytes() == text for file, text in contents.items()):
        raise ConfigError("the patch is applied already; nothing is written")
    facts.refuse_changed("nothing is written. Run perfsweep tune again, which measures it as it is now")
    for file, content in contents.items():
        place = Path(file)
        mode = place.stat().st_mode
        write_atomically(place, content)
        place.chmod(mode)
    return facts.changed


def with_patch(name: str, files: Iterable[Path]) -> Tree:
    """Read the files of a workload as a patch has them.

    Parameters
    ----------
    name : folder of the patch, or ``original``

    Raises
    ------
    ConfigError
        There is no such patch.
    """
    if name == ORIGINAL:
        facts, every = Patched({}, ()), {file: file.read_bytes() for file in files}
    else:
        facts, copies = kept_patch(Path(name)), Snapshot(Path(name))
        places = {file: copies.copy_of(file) if str(file) in facts.changed else file for file in files}
        every = {file: place.read_bytes() for file, place in places.items()}
    digest = _digest({str(file): text for file, text in every.items()}, {})
    return Tree(None, None, every, digest, facts.parity, facts.bounds)


def blobs(repository: Repository, commit: str) -> str:
    """Digest what git keeps of a commit's code, without reading it: equal digests are equal code."""
    entries = repository.entries(commit)
    named = sorted(
        f"{path}\0{entries[path].mode}\0{entries[path].blob}" for path in _code(entries, repository)
    )
    return hashlib.sha256("\n".join(named).encode(errors="surrogateescape")).hexdigest()


def hidden(tree: Tree) -> list[Path]:
    """List the code files of the checkout that the version has not got: no trial of it may import them."""
    if tree.repository is None:
        return []
    here = _code(tree.repository.checkout_paths(), tree.repository)
    return sorted(file for path in here if (file := tree.repository.root / path) not in tree.files)


def export(tree: Tree, place: Path) -> None:
    """Write the version into a folder, unless it is there, as `perfsweep.workloads.snapshot` reads it."""
    if place.is_dir():
        return
    fresh = Snapshot(place.with_name(f".{place.name}.{os.getpid()}"))
    for file, text in tree.files.items():
        copy = fresh.copy_of(file)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(text)
    fresh.root.mkdir(parents=True, exist_ok=True)
    fresh.hide(hidden(tree))
    try:
        fresh.root.rename(place)
    except OSError:  # another command was first: a folder that is not empty is not replaced
        shutil.rmtree(fresh.root)


def _code(paths: Iterable[str], repository: Repository) -> list[str]:
    """The paths of code; what measures is never a version's, wherever it is installed."""
    package = OURS / PACKAGE
    linked = [place.resolve() for place in package.iterdir() if place.is_symlink()]  # as a checkout has it
    ours = (package, *linked)
    code = (path for path in paths if Path(path).suffix in CODE)
    return [path for path in code if not any((repository.root / path).is_relative_to(one) for one in ours)]


def _digest(inside: Mapping[str, bytes], outside: Mapping[Path, bytes]) -> str:
    """Digest code by its place in the repository, wherever that lies; other files by their names."""
    named = [*inside.items(), *((file.name, text) for file, text in outside.items())]
    each = sorted(
        hashlib.sha256(name.encode(errors="surrogateescape") + b"\0" + text).digest() for name, text in named
    )
    return hashlib.sha256(b"".join(each)).hexdigest()


def keep(code_dir: Path, version: Version, others: Iterable[Path]) -> None:
    """Write the code of a version into the sweep's folder, unless it is there or the sweep's own runs.

    Parameters
    ----------
    others : files of the workload outside of the repository

    Raises
    ------
    ConfigError
        It is not what was planned any more: files were edited meanwhile, or the commit is gone.
    """
    place = code_snapshot.sources_place(code_dir, version.sources)
    if not version.sources or place.is_dir():
        return
    if version.repository:
        found = read(Repository(Path(version.repository)), version.commit or WORKTREE, others)
    else:
        found = with_patch(version.levels[PATCH], others)
    if found.digest != version.sources:
        raise ConfigError(
            f"{version.name}: files of {version.repository or 'the script'} changed while the sweep was"
            " planned; start the same command again"
        )
    export(found, place)


def variables(environment: Environment, code_dir: Path, import_path: Iterable[str]) -> dict[str, str]:
    """List the variables that a process of an environment starts with, its interpreter among them.

    What a program of the user's starts by name is found in the environment too, as if it were activated.

    Parameters
    ----------
    code_dir : holds the libraries of `code_snapshot.take_libraries`
    import_path : folders to import from before what is installed, ours first
    """
    libraries = map(str, code_snapshot.libraries(code_dir, environment.abi))
    path = [*import_path, *libraries]
    programs = [str(Path(environment.interpreter).parent), os.environ.get("PATH", os.defpath)]
    is_venv = Path(environment.prefix, "pyvenv.cfg").exists()
    return {
        INTERPRETER: environment.interpreter,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, path))),
        "PATH": os.pathsep.join(programs),
        "VIRTUAL_ENV": environment.prefix if is_venv else "",
    }


_PROSE = (".md", ".rst")


def notices(every: Sequence[Version]) -> Iterator[str]:
    """Name environments, and say what is the checkout's in all versions although it differs between them."""
    yield from environment_lines(every)
    versions = [version for version in every if version.repository]
    if not versions:
        return
    repository = Repository(Path(versions[0].repository))
    if differing := _differing([_data(repository, version.commit) for version in versions]):
        yield (
            f"{few(differing, most=3)}: no code, and not the same in all versions; a trial that reads such a"
            " file finds the checkout's, whichever version it runs"
        )
    heads = [version.commit or "HEAD" for version in versions]
    if modules := {path for head in heads for path in submodules(repository.entries(head))}:
        yield f"{few(sorted(modules), most=3)}: submodules, of which all versions import what is checked out"


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
