"""`perfsweep new` and `perfsweep init`: the first files of a user's own measurements."""

from __future__ import annotations

import keyword
import shlex
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from perfsweep.pipelines.config.external_workload import read_mapping
from perfsweep.pipelines.config.launcher import profile_of
from perfsweep.pipelines.config.overrides import FILE
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.site import SiteProfile
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.imports import PACKAGE

MODULE, CLASS = "my_workload", "MyWorkload"
"""Names in the template; a workload's own take their place."""

WORKFLOW = ".github/workflows/perfsweep.yml"
EXAMPLE = ("workload=script", "workload.path=train.py")
"""What a workflow judges where the user has not said what."""

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
    _write_all(texts, otherwise="choose another name")
    print(f"next: perfsweep check {name}:{own}")
    print(f"      perfsweep sweep workload={name}:{own}")
    return 0


def _refuse_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise ConfigError(
            f"{name} is no name for a module: use lower case letters, digits and underscores, such as"
            " my_workload"
        )
    if name == PACKAGE:
        raise ConfigError(f"{name} is perfsweep itself: choose another name, or neither could be imported")


def init(
    words: Sequence[str] = (), ci: str | None = None, launcher: str | None = None, overwrite: bool = False
) -> int:
    """Make a folder to measure in: configuration, site profile, batch script and a Makefile fragment.

    With `ci` a workflow that judges pull requests is written instead, by the options among the words; with
    `launcher` a site profile of that file, which is one of Hydra's submitit launcher.

    Raises
    ------
    ConfigError
        One of the files is there already, or the folder cannot be written.
    """
    folders = [word for word in words if "=" not in word]
    if len(folders) > 1:
        raise ConfigError(f"init takes one folder, and {' and '.join(folders)} are named")
    folder, options = next(iter(folders), "."), [word for word in words if "=" in word]
    if ci:
        return _init_ci(folder, options or EXAMPLE, overwrite)
    if options:
        raise ConfigError(f"{options[0]} is for --ci github: options of the judge that its workflow runs")
    if launcher:
        return _init_profile(folder, Path(launcher), overwrite)
    return _init_study(folder, overwrite)


def _init_ci(folder: str, options: Sequence[str], overwrite: bool) -> int:
    """Write the workflow of GitHub."""
    judged = " ".join(map(shlex.quote, options))
    text = _template("github_workflow.yaml").replace("@OPTIONS@", judged)
    text = text.replace("@VERSION@", version("perfsweep"))
    _write_all({WORKFLOW if folder == "." else f"{folder}/{WORKFLOW}": text}, overwrite)
    print(f"next: check what it installs and measures ({judged}), then commit it")
    return 0


def _init_study(folder: str, overwrite: bool) -> int:
    texts = {**{name: _template(f"study/{name}") for name in STUDY}, "sweep.sbatch": _batch_script()}
    named = {f"{folder}/{name}" if folder != "." else name: text for name, text in texts.items()}
    _write_all(named, overwrite)
    steps = [
        *_into(folder),
        "put your site's names into configs/cluster/site.yaml, then:",
        "perfsweep doctor cluster=site",
        "perfsweep new my_workload",
    ]
    _show_next(steps)
    return 0


def _init_profile(folder: str, launcher: Path, overwrite: bool) -> int:
    """Write a site profile of what a launcher was told, and say what it does not hold."""
    fields, left = profile_of(read_mapping(launcher))
    try:
        SiteProfile(**fields).check()
    except ClusterError as error:
        raise ConfigError(f"{launcher}: {error}") from None
    own = Path(folder, FILE)
    conf = str(read_mapping(own).get("conf") or "configs") if own.is_file() else "configs"
    taken = [file.name for file in files("perfsweep.conf").joinpath("cluster").iterdir()]
    name = f"my_{launcher.stem}" if f"{launcher.stem}.yaml" in taken else launcher.stem
    comments = "".join(f"# left out: {one} ({reason})\n" for one, reason in left.items())
    values = yaml.safe_dump({"defaults": ["slurm"], **fields}, sort_keys=False, allow_unicode=True)
    texts = {str(Path(folder, conf, "cluster", f"{name}.yaml")): f"# from {launcher}\n{comments}{values}"}
    if not own.is_file():
        texts[str(own)] = _template(f"study/{FILE}")
    _write_all(texts, overwrite)
    for one, reason in left.items():
        print(f"left out: {one} ({reason})")
    _show_next([*_into(folder), f"perfsweep doctor cluster={shlex.quote(name)}"])
    return 0


def _into(folder: str) -> list[str]:
    return [] if folder == "." else [f"cd {shlex.quote(folder)}"]


def _show_next(steps: Sequence[str]) -> None:
    print("next: " + "\n      ".join(steps))


def _batch_script() -> str:
    """The script for a whole sweep in one allocation, as it is called from a user's own folder."""
    text = files("perfsweep.slurm").joinpath("sweep.sbatch").read_text()
    return text.replace("slurm/sweep.sbatch", "sweep.sbatch").replace(".venv/bin/perfsweep", "perfsweep")


def _template(name: str) -> str:
    place: Traversable = files("perfsweep.pipelines.commands").joinpath("templates")
    return place.joinpath(*name.split("/")).read_text()


def _write_all(texts: Mapping[str, str], overwrite: bool = False, otherwise: str = "say --overwrite") -> None:
    """All of them or none: nothing that is there is overwritten unless that was asked for."""
    there = [name for name in texts if Path(name).exists()]
    if there and not overwrite:
        raise ConfigError(f"{there[0]} is there already: remove it, or {otherwise}")
    for name, text in texts.items():
        try:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        except OSError as error:
            raise ConfigError(
                f"{name} cannot be written ({error.strerror}); choose another folder"
            ) from error
        print(f"wrote {name}")
