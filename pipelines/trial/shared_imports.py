"""Imports that trials of a pack share: one of them notes what its set-up imported, later servers import it.

A set-up often spends most of its time on imports. Only installed modules are shared: a user's own are
imported by each trial, from the copies that it is to run. What an import does after the seed of a trial, such
as drawing a random number, it does before: all trials whose numbers are compared share the same imports.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfsweep.workloads.imports import INSTALLED

_FILE = "imports.json"


def note(folder: Path, before: Collection[str], replaced: Collection[str]) -> None:
    """Keep the names of installed modules that were imported since `before`, in their order.

    They end before the first package of `replaced`, in which levels put functions in the place of others:
    what imports these must come after.
    """
    packages, names = {name.partition(".")[0] for name in replaced}, []
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] in packages:
            break
        if name not in before and _is_installed(name, module):
            names.append(name)
    (folder / _FILE).write_text(json.dumps(names))


def noted(folder: Path, versions: Iterable[Path] = ()) -> str:
    """The file that `note` has written into a trial's folder; empty where there is none to read.

    Empty too where one of `versions`, folders of copies of a user's files, has a module or a package of such
    a name: its trials must find that and no other.
    """
    file = folder / _FILE
    packages = {name.partition(".")[0] for name in _names(file)}
    own = {path.stem for version in versions for path in version.rglob("*")}
    return str(file) if packages and not packages & own else ""


def import_all(file: str) -> None:
    """Import what a file names, in a process that will fork."""
    for name in _names(Path(file)) if file else ():
        with suppress(Exception):  # whatever an installed module raises, the trial that imports it tells
            importlib.import_module(name)


def may_fork() -> bool:
    """Whether no import has started threads or a device, which a fork does not take along."""
    torch = sys.modules.get("torch")
    return threading.active_count() == 1 and not (torch and torch.cuda.is_initialized())


def _names(file: Path) -> list[str]:
    try:
        names = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return []
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _is_installed(name: str, module: Any) -> bool:
    spec = getattr(module, "__spec__", None)
    if spec is None or spec.name != name or not spec.has_location:
        return False
    return name.partition(".")[0] in sys.stdlib_module_names or bool(INSTALLED & {*Path(spec.origin).parts})
