"""Where a sweep comes from: its configuration, commit and versions, and the machine it ran on."""

from __future__ import annotations

import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import AliasEvent, YAMLError

from perfsweep.pipelines.store.files import read_whole
from perfsweep.slurm.site import REDACTED

_PACKAGES = ("torch", "hydra-core", "wandb", "numpy", "scipy", "polars")


def sweep_yaml(cfg: DictConfig) -> str:
    """Write the text of sweep.yaml: resolved configuration, command, versions, commit and own changes.

    The values of `cluster.env_set` may be secrets: no file that others can read has them.
    """
    values = OmegaConf.to_container(cfg, resolve=True)
    cluster = values.get("cluster") if isinstance(values, dict) else None
    if isinstance(cluster, dict) and cluster.get("env_set"):
        cluster["env_set"] = dict.fromkeys(cluster["env_set"], REDACTED)
    texts = {name: _literal(fact) if isinstance(fact, str) else fact for name, fact in provenance().items()}
    return OmegaConf.to_yaml(OmegaConf.create({"configuration": values, "provenance": texts}))


def _literal(text: str) -> str:
    """Escape what OmegaConf would take for an interpolation: a diff may hold ``${``, and need not be one."""
    return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + r"\${", text)


def provenance() -> dict[str, Any]:
    """Collect command, versions and state of the source tree."""
    return {
        "command": command_line(),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_diff": _git("diff", "HEAD"),
    }


def command_line() -> str:
    """Write the command that runs, but for the values of `cluster.env_set`."""
    words = [_ENV_SET.sub(rf"\g<name>={REDACTED}", word) for word in sys.argv[1:]]
    return shlex.join(["perfsweep", *words])


_ENV_SET = re.compile(r"^(?P<name>\+{0,2}cluster\.env_set(\.[^=]*)?)=.*", re.DOTALL)


_VOLATILE = ("load", "steal_share", "memory_available_bytes", "gpus", "slurm")
"""Facts that differ from trial to trial by nature; what disturbs a trial is judged when it ends."""


@dataclass(frozen=True)
class Provenance:
    """What a reader needs to reproduce a table; `differing` facts were not the same in all trials."""

    command: str
    commit: str
    versions: str
    machine: str
    differing: tuple[str, ...] = ()


def read_sweep_yaml(file: Path) -> Any:
    """Read what `sweep_yaml` wrote.

    Raises
    ------
    OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException
        The file cannot be read, or is none that was written here: aliases may expand without end.
    """
    text = read_whole(file).decode()
    if any(isinstance(event, AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
        raise YAMLError("it has aliases, which perfsweep does not write")
    return OmegaConf.create(text)


def read_provenance(config_file: Path, environments: Sequence[Mapping[str, Any]]) -> Provenance:
    """Read it from sweep.yaml and the environments of the trials, as far as they were recorded.

    Of a file that is damaged nothing is known: no time depends on it; the sweep's command writes it again.
    """
    try:
        facts = OmegaConf.to_container(read_sweep_yaml(config_file)) if config_file.exists() else {}
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError):
        facts = {}
    found = _mapping(_mapping(facts).get("provenance"))
    commit = (found.get("git_commit") or "unknown") + (
        " with uncommitted changes" if found.get("git_diff") else ""
    )
    packages = [f"{name} {number}" for name, number in _mapping(found.get("versions")).items()]
    versions = ", ".join([f"Python {found.get('python', 'unknown')}", *packages])
    machine = _machine(environments[0]) if environments else "unknown"
    return Provenance(found.get("command") or "unknown", commit, versions, machine, _differing(environments))


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _machine(environment: Mapping[str, Any]) -> str:
    gpus = ", ".join(str(gpu.get("name", "unknown")) for gpu in environment.get("gpus", [])) or "none"
    cores = environment.get("cores", "?")
    features = ", ".join(environment.get("cpu_features", []))  # of one name there are some with and without
    processor = f"{environment.get('cpu_model', 'unknown')}{f' ({features})' if features else ''}"
    return f"{processor}, {cores} core{'' if cores == 1 else 's'}; GPU: {gpus}"


def _differing(environments: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    facts = [dict(_facts(environment)) for environment in environments]
    lines = []
    for name in dict.fromkeys(name for found in facts for name in found):
        values = list(dict.fromkeys(str(found.get(name, "not set")) for found in facts))
        if len(values) > 1:
            lines.append(f"{name}: {'; '.join(values[:4])}{' ...' if len(values) > 4 else ''}")
    return tuple(lines)


def _facts(environment: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each fact by itself, those of a group by the group's name too: ``settings.OMP_NUM_THREADS``."""
    for name, value in environment.items():
        if name in _VOLATILE:
            continue
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", one) for key, one in value.items())
        else:
            yield name, value


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """Run git in the folder of our sources, None where they are no checkout."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
