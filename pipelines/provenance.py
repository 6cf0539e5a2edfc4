"""Where a sweep comes from: the configuration with the commit and the versions that produced it."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

_PACKAGES = ("torch", "hydra-core", "wandb", "numpy", "scipy", "polars")


def sweep_yaml(cfg: DictConfig) -> str:
    """The text of sweep.yaml: resolved configuration, command, versions, commit and uncommitted changes."""
    values = OmegaConf.to_container(cfg, resolve=True)
    facts = OmegaConf.create({"configuration": values, "provenance": provenance()})
    return OmegaConf.to_yaml(facts)


def provenance() -> dict[str, Any]:
    """Command, versions and state of the source tree."""
    return {
        "command": shlex.join(["perfsweep", *sys.argv[1:]]),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_diff": _git("diff", "HEAD"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """Output of git in the folder of our sources, None where they are no checkout."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
