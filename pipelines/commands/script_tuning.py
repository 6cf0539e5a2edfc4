"""`perfsweep tune train.py`: the levels that win together on a script, and a patch of it.

The patch writes them into the script: it is kept, shown, measured, and applied where that is asked for.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.check import first_look
from perfsweep.pipelines.check.first_look import FirstLook, NotMeasurable
from perfsweep.pipelines.commands import frontier, judge, script_looking
from perfsweep.pipelines.commands.judge import TwoVersions
from perfsweep.pipelines.commands.sweep import Display
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.pipelines.config.types import SweepCommand, TuneCommand, TuneConfig
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.parity.results import loosest
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.pipelines.terminal import bold, console_here
from perfsweep.pipelines.units import MB
from perfsweep.pipelines.versions import tree
from perfsweep.pipelines.versions.tree import ORIGINAL, PATCH, Patched
from perfsweep.workloads.api import Declaration, Levels, Toggle
from perfsweep.workloads.errors import ConfigError, did_you_mean
from perfsweep.workloads.script import sources
from perfsweep.workloads.script.edits.draft import Patch, unified
from perfsweep.workloads.script.edits.patch import patch as written
from perfsweep.workloads.script.edits.site import read

DEFAULTS = ("tune=outside", "tracking=disabled")
"""What is asked for where nothing else is typed."""

JUDGED = ("measure.region_s=0.2", "measure.servers=3", "measure.budget_s=60", "measure.warmup_max=100")
"""How the patched script is measured: effects that are worth a patch are large, and a script may be short."""

TUNED = "tuned.yaml"
"""The levels that won, in the folder of the search."""

_FILES = "patch"
"""Folder of the patched files, below that of the search."""


def tune_script(
    line: PastedLine, overrides: Sequence[str], apply: bool, timeout: float | None, **options: Any
) -> int:
    """Look at a script, search the fastest arm, and print and keep a patch that has it; status as of a sweep.

    Parameters
    ----------
    overrides : options of `perfsweep tune`
    apply : whether to write the patch into the script; one that is kept is not measured again
    timeout : seconds for each trial
    options : the ones that `perfsweep script` has too

    Raises
    ------
    ConfigError
        The script or an option cannot be used, or a file has changed since it was measured.
    """
    console, path, args = console_here(), line.path, line.args
    sources.refuse_first({"path": line.path})
    script = script_looking.overrides_of(line, options)
    script += [] if timeout is None else [f"measure.timeout_s={timeout}"]
    cfg = composition.compose("tune", [*DEFAULTS, *script, *overrides])
    command: TuneCommand = validation.typed(cfg, TuneCommand)
    cls, _ = plan.load_workload(command.workload)
    folder = Path(command.runs) / plan.sweep_name(command, cls)
    if apply and is_kept(folder, args):
        return apply_patch(console, folder)
    same = [word for word in overrides if word.startswith(("measure.", "workload."))]
    status = _tuned(console, path, cfg, command, cls, folder, args, [*script, *same])
    if apply and status == DONE and is_kept(folder, args):
        return apply_patch(console, folder)
    return status


def _tuned(
    console: Console,
    path: str,
    cfg: DictConfig,
    command: TuneCommand,
    cls: type[Declaration],
    folder: Path,
    args: Sequence[str],
    words: Sequence[str],
) -> int:
    toggles = cls.toggles_named({*command.tune.toggles, *command.tune.levels})
    able(command.tune, toggles, {})  # a mistake shows before the script is run
    try:
        sight = _seen(console, path, command)
    except NotMeasurable as reason:
        return script_looking.refused(console, path, reason)
    levels = able(command.tune, toggles, sight["obstacles"])
    if not levels:
        reasons = "; ".join(dict.fromkeys(sight["obstacles"].values()))
        _say(console, f"{path}: no toggle that is to be tried can act: {reasons}")
        return DONE
    _name_on_request(command, cls, levels)
    command.tune = dataclasses.replace(command.tune, toggles=[], levels=levels)
    status, tuned = frontier.tuned(console, command, cfg, folder / TUNED)
    if command.dry_run or not tuned:
        if status == DONE and not command.dry_run:
            _say(console, f"{path}: no toggle makes it faster with the same results; no patch is written")
        return status
    console.print(bold("\npatch", f" of {path}"))
    measured = Measured(path, tuple(args), folder, tuned, cls, sight)
    return patch(console, measured, words)


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)


def _seen(console: Console, path: str, command: TuneCommand) -> Mapping[str, Any]:
    """What a look at the script shows.

    Raises
    ------
    ConfigError
        It does not repeat itself, so that no results could be compared.
    """
    single = SweepCommand(workload=command.workload, toggles=command.toggles, measure=command.measure)
    with FirstLook(*first_look.planned(single)) as look:
        seen, parting = script_looking.looked(look, console, path)
    if parting is not None:
        raise ConfigError(
            f"{path} does not repeat itself, so results of its arms cannot be compared:"
            f" {script_looking.repeats(parting).removeprefix('no: ')}. Seed it first, then tune it"
        )
    return seen["sight"]


def able(tune: TuneConfig, toggles: Sequence[Toggle], obstacles: Mapping[str, str]) -> dict[str, list[Any]]:
    """The levels to try that can act, by toggle.

    `tune.toggles` chooses among those of `tune.levels`, and brings all levels of any other toggle.

    Raises
    ------
    ConfigError
        A toggle is unknown.
    """
    every = {toggle.name: [level.value for level in toggle.levels[1:]] for toggle in toggles}
    if unknown := [name for name in (*tune.toggles, *tune.levels) if name not in every]:
        hint = did_you_mean(unknown[0], every)
        raise ConfigError(
            f"tune.toggles={unknown[0]}: it is no toggle. {hint}Choose from: {', '.join(every)}"
        )
    wanted = {name: tune.levels.get(name) or every[name] for name in tune.toggles} or tune.levels
    levels = {
        name: [value for value in values if f"{name}={value}" not in obstacles]
        for name, values in wanted.items()
        if name not in obstacles
    }
    return {name: values for name, values in levels.items() if values}


def _name_on_request(command: TuneCommand, cls: type[Declaration], levels: Mapping[str, Any]) -> None:
    """Set toggles that are only there where they are named to their baselines."""
    for toggle in cls.on_request:
        if toggle.name in levels:
            command.toggles.setdefault(toggle.name, toggle.levels[0].value)


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
    shutil.rmtree(measured.folder / _FILES, ignore_errors=True)


def _keep(measured: Measured, facts: Patched, made: Patch) -> None:
    before = {file: Path(file).read_bytes() for file in made.files}
    write_atomically(measured.file, unified(before, made.files, Path.cwd()))
    tree.keep_patch(measured.folder / _FILES, _facts(measured, list(made.files)), made.files)


def _without_edit(console: Console, measured: Measured, words: Sequence[str]) -> int:
    own = ("--with", str(measured.folder / TUNED))
    options = [word for word in words if word.startswith("workload.")]
    command = script_looking.typed("run", measured.path, measured.args, options, *own)
    text = f"no line of {measured.path} can be changed for you. Without a change: {command}"
    console.print(text, soft_wrap=True)
    return SOME_FAILED


def _judged(console: Console, measured: Measured, words: Sequence[str]) -> int:
    """Measure the patched script against the original, and print in one line what the patch buys."""
    head = Side(str(measured.folder / _FILES), None, PATCH)
    decided = {word.partition("=")[0] for word in (*judge.DEFAULTS, *JUDGED)}
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
        return tree.kept_patch(folder / _FILES).args == tuple(args)
    except ConfigError:
        return False


def apply_patch(console: Console, folder: Path) -> int:
    """Write the patch that is kept into the files that it changes.

    Raises
    ------
    ConfigError
        A file has changed since it was measured; nothing is written.
    """
    for file in tree.apply_patch(folder / _FILES):
        console.print(f"patched: {file}", soft_wrap=True)
    return DONE
