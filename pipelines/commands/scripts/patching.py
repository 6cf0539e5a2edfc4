"""The patch that writes winning levels into a script: kept, shown, measured, applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.commands.scripts import looking
from perfsweep.pipelines.commands.sweep import Display
from perfsweep.pipelines.commands.two_versions import DEFAULTS, TwoVersions
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.parity.results import loosest
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.pipelines.units import MB
from perfsweep.pipelines.versions import patched
from perfsweep.pipelines.versions.patched import ORIGINAL, PATCH, Patched
from perfsweep.workloads.api import Declaration, Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.edits.draft import Patch, unified
from perfsweep.workloads.script.edits.patch import patch as written
from perfsweep.workloads.script.edits.site import read

JUDGED = ("measure.region_s=0.2", "measure.servers=3", "measure.budget_s=60", "measure.warmup_max=100")
"""How the patched script is measured: effects that are worth a patch are large, and a script may be short."""

TUNED = "tuned.yaml"
"""The levels that won, in the folder of the search."""

_FILES = "patch"
"""Folder of the patched files, below that of the search."""


@dataclass(frozen=True)
class Measured:
    """A script whose fastest arm is known.

    Attributes
    ----------
    path, args : as they were typed
    folder : of the search
    levels : that won, off their baseline
    sight : what a look at the script showed, see `perfsweep.workloads.script.sight`
    """

    path: str
    args: tuple[str, ...]
    folder: Path
    levels: Levels
    workload: type[Declaration]
    sight: Mapping[str, Any]

    @property
    def file(self) -> Path:
        """The patch as a diff."""
        return self.folder / f"{Path(self.path).stem}.patch"


def patch(console: Console, measured: Measured, words: Sequence[str]) -> int:
    """Write the winning levels down as a patch, measure the patched script, and say what it buys.

    Parameters
    ----------
    words : options of the sweep that compares both: the script, and how it is measured

    Raises
    ------
    ConfigError
        A file has changed since the script was looked at; no patch is written.
    """
    facts = _facts(measured)
    facts.refuse_changed("no patch is written. Run perfsweep tune again")
    script = next(iter(measured.sight["files"]))
    sites = [read(site) for site in measured.sight["sites"]]
    made = written(measured.levels, sites, script, lambda file: Path(file).read_bytes())
    for line in (*made.changes, *made.advice):
        console.print(f"  {line}", soft_wrap=True)
    _forget(measured)
    if not made.files:
        return _without_edit(console, measured, words)
    _keep(measured, facts, made)
    return _judged(console, measured, words)


def _facts(measured: Measured, changed: Sequence[str] = ()) -> Patched:
    """The state of the script that was measured, and how far the winning levels may move its results."""
    chosen = measured.workload.levels_of(measured.levels)
    parity, bounds = loosest([chosen[name] for name in measured.levels], measured.workload.checks)
    return Patched(measured.sight["files"], tuple(changed), measured.args, parity, dict(bounds))


def _forget(measured: Measured) -> None:
    """Remove the patch of an earlier run."""
    measured.file.unlink(missing_ok=True)
    patched.forget(measured.folder / _FILES)


def _keep(measured: Measured, facts: Patched, made: Patch) -> None:
    before = {file: Path(file).read_bytes() for file in made.files}
    write_atomically(measured.file, unified(before, made.files, Path.cwd()))
    patched.keep(measured.folder / _FILES, _facts(measured, list(made.files)), made.files)


def _without_edit(console: Console, measured: Measured, words: Sequence[str]) -> int:
    own = ("--with", str(measured.folder / TUNED))
    options = [word for word in words if word.startswith("workload.")]
    command = looking.typed("run", measured.path, measured.args, options, *own)
    text = f"no line of {measured.path} can be changed for you. Without a change: {command}"
    console.print(text, soft_wrap=True)
    return SOME_FAILED


def _judged(console: Console, measured: Measured, words: Sequence[str]) -> int:
    """Measure the patched script against the original, and print in one line what the patch buys."""
    head = Side(str(measured.folder / _FILES), None, PATCH)
    decided = {word.partition("=")[0] for word in (*DEFAULTS, *JUDGED)}
    same = [word for word in words if word.partition("=")[0] not in decided]
    place = (f"runs={measured.folder.parent}", f"name={measured.folder.name}-judged")
    try:
        versions = TwoVersions.of("judge", [*JUDGED, *same, *place], commits=False)
        answer = versions.compare(Side(ORIGINAL, None, PATCH), head, Display(console))
    except BaseException:  # Ctrl-C too: a patch that was not measured must not be there to be applied
        _forget(measured)
        raise
    if answer.verdict in _NO_PATCH:
        _forget(measured)
    line = bought(measured.path, measured.file, answer, _memory_bytes(answer))
    console.print(line, markup=False, soft_wrap=True)
    return DONE if answer.verdict == "faster" else SOME_FAILED


_NO_PATCH = ("different results", "fewer units", "failed")
"""Verdicts after which no patch is kept."""


def bought(path: str, file: Path, answer: Answer, memory_bytes: float | None) -> str:
    """What a patch buys, in one line: ``train.py is 1.41x as fast [1.37 .. 1.45], results in tolerance``."""
    results = f"results {answer.results.replace('within', 'in')}"
    if answer.verdict in _NO_PATCH:
        why = answer.deviation or answer.reason or results
        return f"{path} as patched: {answer.verdict} ({why}); no patch is kept"
    if answer.ratio is None or answer.low is None or answer.high is None:
        return f"{path} as patched: {answer.verdict}; {answer.reason}; patch: {file}"
    speed = f"{1 / answer.ratio:.2f}x as fast [{1 / answer.high:.2f} .. {1 / answer.low:.2f}]"
    memory = f", {memory_bytes / MB:+.0f} MB" if memory_bytes is not None else ""
    doubt = "" if answer.verdict == "faster" else f", which is {answer.verdict}"
    return f"{path} is {speed}{doubt}, {results}{memory}; patch: {file}"


def _memory_bytes(answer: Answer) -> float | None:
    """How much more memory the patched script needs."""
    if not answer.sweep:
        return None
    effects = api.open_sweep(answer.sweep).comparison.effects
    return next((one.memory_bytes for one in effects if one.effect.design != PLACEBO), None)


def is_kept(folder: Path, args: Sequence[str]) -> bool:
    """Whether a patch is kept that was measured with these arguments of the script."""
    try:
        return patched.kept(folder / _FILES).args == tuple(args)
    except ConfigError:
        return False


def apply(console: Console, folder: Path) -> int:
    """Write the patch that is kept into the files that it changes.

    Raises
    ------
    ConfigError
        A file has changed since it was measured; nothing is written.
    """
    for file in patched.apply(folder / _FILES):
        console.print(f"patched: {file}", soft_wrap=True)
    return DONE
