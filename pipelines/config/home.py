"""The folder that you measure in: ``perfsweep.yaml`` says what every command there starts from.

::

    conf: configs               # folder with site profiles and sweeps of your own: configs/cluster/site.yaml
    overrides:                  # as on the command line, which wins
      - cluster=site
      - tracking.project=my-study
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from pathlib import Path

from perfsweep.pipelines.config.external_workload import read_mapping
from perfsweep.workloads.errors import ConfigError

FILE = "perfsweep.yaml"
_PLAIN = re.compile(r"[\w./:-]+", re.ASCII)


def overrides(allowed: Collection[str], typed: Sequence[str], folder: Path | None = None) -> list[str]:
    """List the overrides that the current folder adds in front of those on the command line.

    `allowed` are the command's parts of the configuration: a cluster means nothing to ``perfsweep run``.

    Raises
    ------
    ConfigError
        ``perfsweep.yaml`` cannot be meant; the message names the entry.
    """
    file = (folder or Path.cwd()) / FILE
    if not file.is_file():
        return []
    values = read_mapping(file)
    if unknown := sorted(set(values) - {"conf", "overrides"}):
        raise ConfigError(f"{file}: {unknown[0]} is unknown; it has conf and overrides")
    own = values.get("overrides") or []
    if not isinstance(own, list) or not all(isinstance(text, str) and "=" in text for text in own):
        raise ConfigError(f"{file}: overrides must be a list of texts such as cluster=site")
    taken = {_key(text) for text in typed}
    kept = [text for text in own if _key(text) not in taken and _key(text).split(".")[0] in allowed]
    return [*_search_path(file, values.get("conf")), *kept]


def conf_folder() -> Path | None:
    """Find the current folder's own configuration: for completion, which must not complain."""
    for line in Path(FILE).read_text().splitlines() if Path(FILE).is_file() else ():
        name, colon, value = line.partition("#")[0].partition(":")
        if name == "conf" and colon and value.strip():
            return Path(value.strip().strip("'\""))
    return None


def search_path(folder: Path) -> str:
    """The override by which Hydra finds a folder: it takes what follows ``file://`` as it is."""
    place = f"file://{folder.resolve()}"
    return f"hydra.searchpath=[{place if _PLAIN.fullmatch(place) else quoted(place)}]"


def quoted(text: str) -> str:
    """Quote text for Hydra; backslashes are doubled where a quote follows, as it reads them."""
    escaped = re.sub(r"(\\*)'", r"\1\1\'", text)
    return "'" + escaped + "\\" * (len(escaped) - len(escaped.rstrip("\\"))) + "'"


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _search_path(file: Path, conf: object) -> list[str]:
    if conf is None:
        return []
    folder = file.parent / str(conf)
    if not folder.is_dir():
        raise ConfigError(f"{file}: conf={conf} is no folder; create it, or remove the line")
    for own in sorted(folder.rglob("*.yaml")):
        name = own.relative_to(folder)
        if files("perfsweep.conf").joinpath(name.as_posix()).is_file():
            raise ConfigError(f"{own} would be hidden by perfsweep's own {name}: give it another name")
    return [search_path(folder)]
