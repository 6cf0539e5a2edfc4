"""How a process starts in another environment: with its interpreter, and our code on its path."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.schema import Environment
from perfsweep.workloads.user_environment import INTERPRETER


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
