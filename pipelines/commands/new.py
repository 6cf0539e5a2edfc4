"""`perfsweep new` and `perfsweep init`: the first files of somebody's own measurements."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pipelines.store import code_snapshot
from workloads.errors import ConfigError

MODULE, CLASS = "my_workload", "MyWorkload"
"""Names in the template; a workload's own take their place."""

STUDY = ("perfsweep.yaml", "configs/cluster/site.yaml", "perfsweep.mk")


def new(name: str) -> int:
    """Write ``name.py`` and ``name.yaml`` into the current folder.

    Raises
    ------
    ConfigError
        `name` is no module name, or a file of that name is there already.
    """
    _refuse_name(name)
    own = "".join(part.capitalize() for part in name.split("_") if part)
    texts = {
        f"{name}{end}": _template(f"{MODULE}{end}").replace(CLASS, own).replace(MODULE, name)
        for end in (".py", ".yaml")
    }
    _write_all(texts)
    print(f"next: perfsweep check {name}:{own}")
    print(f"      perfsweep sweep workload={name}:{own}")
    return 0


def _refuse_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise ConfigError(
            f"{name} is no name for a module: use lower case letters, digits and underscores, such as"
            " my_workload"
        )
    if name in code_snapshot.PACKAGES:
        raise ConfigError(
            f"{name} is a package of perfsweep: choose another name, or neither could be imported"
        )


def init(folder: str) -> int:
    """Make a folder to measure in: configuration, site profile, batch script and a Makefile fragment.

    Raises
    ------
    ConfigError
        One of the files is there already, or the folder cannot be written.
    """
    texts = {**{name: _template(f"study/{name}") for name in STUDY}, "sweep.sbatch": _batch_script()}
    _write_all({f"{folder}/{name}" if folder != "." else name: text for name, text in texts.items()})
    print("next: put your site's names into configs/cluster/site.yaml, then: perfsweep doctor cluster=site")
    print("      perfsweep new my_workload")
    return 0


def _batch_script() -> str:
    """The script for a whole sweep in one allocation, as it is called from somebody's own folder."""
    text = files("slurm").joinpath("sweep.sbatch").read_text()
    return text.replace("slurm/sweep.sbatch", "sweep.sbatch").replace(".venv/bin/perfsweep", "perfsweep")


def _template(name: str) -> str:
    place: Traversable = files("pipelines.commands").joinpath("templates")
    return place.joinpath(*name.split("/")).read_text()


def _write_all(texts: Mapping[str, str]) -> None:
    """All of them or none: nothing that is there is overwritten."""
    if there := [name for name in texts if Path(name).exists()]:
        raise ConfigError(f"{there[0]} is there already: remove it, or choose another name")
    for name, text in texts.items():
        try:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        except OSError as error:
            raise ConfigError(
                f"{name} cannot be written ({error.strerror}); choose another folder"
            ) from error
        print(f"wrote {name}")
