"""Scripts as workloads inside the test's own process: where they lie, how they are started and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from perfsweep.workloads.api import Context, Device, LevelValue, NullClock
from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.workload import Script

SCRIPTS = Path(__file__).with_name("scripts")

Start = Callable[..., Script]
Write = Callable[..., Path]

BASELINE: Mapping[str, LevelValue] = MappingProxyType({})


def context(place: Path, device: Device | None = None, deadline: float | None = None) -> Context:
    """A trial's folders, beside those of the user."""
    folders = place / "scratch" / "rank0", place / "cache"
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return Context(device or Device(), *folders, deadline=deadline)


@contextmanager
def running(
    config: ScriptConfig, around: Context, levels: Mapping[str, LevelValue] = BASELINE
) -> Iterator[Script]:
    """A script at its first mark, with every toggle but those of `levels` at its baseline."""
    cls = Script.configured(config)
    baseline = {toggle.name: toggle.levels[0].value for toggle in cls.toggles}
    script: Any = cls()
    try:
        script.setup(config, {**baseline, **levels}, around)
        yield script
    finally:
        script.close()


@contextmanager
def started(
    folder: Path,
    text: str,
    place: Path | None = None,
    levels: Mapping[str, LevelValue] = BASELINE,
    **values: Any,
) -> Iterator[Script]:
    """The script ``folder/train.py`` with this text, at its first mark."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(text)
    config = ScriptConfig("train.py", folder=str(folder), **values)
    with running(config, context(place or folder / "runs"), levels) as script:
        yield script


def run(script: Script, iterations: int) -> Script:
    """Go on for some iterations."""
    for _ in range(iterations):
        script.step(NullClock())
    return script


def content(folder: Path) -> dict[str, str]:
    """What the user's files hold, but for the script and what trials write."""
    files = [file for file in folder.rglob("*") if file.is_file() and "runs" not in file.parts]
    return {str(file.relative_to(folder)): file.read_text() for file in files if file.name != "train.py"}
