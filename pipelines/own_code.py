"""Runs a module of ours in a process of its own, and says in one line where its code cannot be read.

Run as ``python -m perfsweep.pipelines.own_code <module> <its arguments>``. The copy of the code in a sweep's
folder may be closed or removed while an interpreter starts, whose own words for that are a traceback.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from perfsweep.workloads.imports import OURS, PACKAGE

GONE = 66
"""Exit status where the code cannot be read; sysexits.h calls it EX_NOINPUT."""


def is_gone(module: str, error: Exception) -> bool:
    """Whether the import of a module failed since a file or folder of ours was closed or removed.

    A user's module that imports what we have not got is its own mistake.
    """
    if isinstance(error, PermissionError):
        return Path(str(error.filename)).is_relative_to(OURS)
    if not isinstance(error, ImportError):
        return False
    return all(name.partition(".")[0] == PACKAGE for name in (module, str(error.name)))


def main(arguments: list[str]) -> int:
    """Import a module and run its `main`; status `GONE` where its code cannot be read."""
    name, *rest = arguments
    try:
        module = importlib.import_module(name)
    except (ImportError, PermissionError) as error:
        if not is_gone(name, error):
            raise
        print(f"{OURS}: the code cannot be read ({error}); fix this and start the sweep again", flush=True)
        return GONE
    return module.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
