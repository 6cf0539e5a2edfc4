"""A tuned arm as a preset of toggles that `run` and `sweep` accept: where it lies, and what it holds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import yaml

from perfsweep.pipelines.config import home
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.workloads.api import Device, Levels
from perfsweep.workloads.errors import ConfigError


@dataclass(frozen=True)
class PresetFile:
    """Where a preset goes. `extra` is what a command needs in addition to its name to find it there."""

    file: Path
    extra: str = ""

    @property
    def override(self) -> str:
        """What to add to a `run` or `sweep` command."""
        return " ".join(filter(None, [self.extra, f"toggles={self.file.stem}"]))


def preset_file(name: str, runs: Path) -> PresetFile:
    """Choose where a preset goes: a checkout's ``conf``, else ``perfsweep.yaml``'s folder or the sweeps'."""
    own = Path("conf")
    if own.is_dir() and own.resolve() == Path(str(files("perfsweep.conf"))).resolve():
        return PresetFile(own / "toggles" / f"{name}.yaml")
    if (folder := home.conf_folder()) is not None:
        return PresetFile(folder / "toggles" / f"{name}.yaml")
    folder = runs / "conf"
    return PresetFile(folder / "toggles" / f"{name}.yaml", shlex.quote(home.search_path(folder)))


def preset_name(workload: str, device: Device) -> str:
    """Name a preset ``tuned-<workload>-<device>``: of a GPU its model, as they differ in what pays."""
    model = device.name if device.type == "cuda" and device.name else device.type
    return f"tuned-{workload}-{re.sub(r'[^a-z0-9]+', '-', model.lower()).strip('-')}"


def write(preset: PresetFile, levels: Levels, facts: Sequence[str]) -> None:
    """Write the levels off their baseline, with what is known of them as comments.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    lines = [f"# {line}" for fact in facts for line in fact.splitlines()]
    text = "\n".join(lines) + "\n" + yaml.safe_dump(dict(levels), default_flow_style=False, sort_keys=False)
    try:
        preset.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(preset.file, text.encode())
    except OSError as error:
        raise ConfigError(
            f"{preset.file} cannot be written ({error.strerror}); what was measured stays: the same command"
            " writes it again"
        ) from error
