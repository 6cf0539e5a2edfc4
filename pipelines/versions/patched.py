"""A patch that is kept: files as they would be, and digests of what was measured."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfsweep.pipelines.store.files import write_atomically
from perfsweep.workloads.api import Parity
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.snapshot import Snapshot

PATCH, ORIGINAL = "patch", "original"
"""The toggle whose levels are patches, and the level that is none."""

_FACTS = "patch.json"


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
    bounds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def refuse_changed(self, remedy: str) -> None:
        """Refuse files that are others than they were.

        Raises
        ------
        ConfigError
            One is; `remedy` says what to do.
        """
        for file, known in self.files.items():
            if _digest(Path(file)) != known:
                raise ConfigError(f"{file} has changed since it was measured: {remedy}")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def keep(folder: Path, facts: Patched, contents: Mapping[str, bytes]) -> None:
    """Keep the new content of each file that changes."""
    forget(folder)
    copies = Snapshot(folder)
    for file, content in contents.items():
        copy = copies.copy_of(Path(file))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    write_atomically(folder / _FACTS, json.dumps(dataclasses.asdict(facts)).encode())


def forget(folder: Path) -> None:
    """Remove a patch that is kept."""
    shutil.rmtree(folder, ignore_errors=True)


def kept(folder: Path) -> Patched:
    """Read what is known of a patch.

    Raises
    ------
    ConfigError
        There is none in this folder.
    """
    try:
        facts = json.loads((folder / _FACTS).read_bytes())
        facts |= {"changed": tuple(facts["changed"]), "args": tuple(facts["args"])}
        return Patched(**{**facts, "parity": Parity(facts["parity"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} holds no patch; perfsweep tune train.py writes one, and {ORIGINAL} is none"
        ) from error


def apply(folder: Path) -> tuple[str, ...]:
    """Write a patch into the files that it changes; their paths.

    Raises
    ------
    ConfigError
        A file of the workload has changed since it was measured; nothing is written then.
    """
    facts, copies = kept(folder), Snapshot(folder)
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


def contents(name: str, files: Iterable[Path]) -> dict[Path, bytes]:
    """The files of a workload as a level of `PATCH` has them.

    Raises
    ------
    ConfigError
        There is no such patch.
    """
    if name == ORIGINAL:
        return {file: file.read_bytes() for file in files}
    changed, copies = kept(Path(name)).changed, Snapshot(Path(name))
    return {file: (copies.copy_of(file) if str(file) in changed else file).read_bytes() for file in files}
