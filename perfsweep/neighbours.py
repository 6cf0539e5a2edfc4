"""Folders of a user's that have the names of perfsweep's packages, and would be imported in their place."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGES = {"conf": "sweep.yaml", "pipelines": "api.py", "slurm": "executors.py", "workloads": "registry.py"}
"""Packages beside this one, each with a file that tells it from others of its name."""


def refuse_shadows() -> None:
    """Refuse to go on where another package is imported in the place of one of ours.

    Raises
    ------
    ImportError
        One is; the message names its folder, and what to do.
    """
    for name, file in PACKAGES.items():
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if places and not any((Path(place) / file).is_file() for place in places):
            raise ImportError(
                f"{places[0]} has the name of a package of perfsweep, and is imported in its place: rename"
                f" the folder, such as my_{name}, or start `perfsweep` where neither `python -m` nor"
                " PYTHONPATH puts it first"
            )
