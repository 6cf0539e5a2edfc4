"""`perfsweep script`: whether a training script can be measured as it is, and what can be switched in it."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

from rich.console import Console

from perfsweep.pipelines.check import first_look
from perfsweep.pipelines.check.first_look import FirstLook, NotMeasurable, Parting, Seen
from perfsweep.pipelines.config import composition, pasted_line, validation
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.pipelines.config.types import MeasureConfig, RunCommand, SweepCommand
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.terminal import console_here, shell_word
from perfsweep.pipelines.units import duration
from perfsweep.workloads.api import Toggle
from perfsweep.workloads.script import sources
from perfsweep.workloads.script.config import FEWEST, LEAST

WORKLOAD = "script"
_OPTIONS = ("iteration", "every", "units", "writes", "ranks")
"""Fields of the workload that are options of this command."""


def script(
    path: str,
    args: Sequence[str],
    iteration: str | None,
    every: int | None,
    units: float | None,
    writes: str | None,
    ranks: int | None,
    timeout: float,
) -> int:
    """Run a script twice for a few iterations, and say what was seen; status 1 if it cannot be measured."""
    console, line = console_here(), pasted_line.read([path, *args])
    sources.refuse_first({"path": line.path})
    os.environ.update(line.variables)
    options = {"iteration": iteration, "every": every, "units": units, "writes": writes, "ranks": ranks}
    overrides = overrides_of(line, options)
    manifest, cls = first_look.planned(_command(overrides, timeout))
    try:
        with FirstLook(manifest, cls) as look:
            seen, parting = looked(look, console, line.path)
    except NotMeasurable as reason:
        return refused(console, line.path, reason)
    for text in _lines(line.path, seen, parting, cls.toggles):
        console.print(_spelled(text), markup=False, soft_wrap=True)
    for text in _next(line, overrides, seen, parting):
        console.print(text, markup=False, soft_wrap=True)
    return DONE


def _spelled(text: str) -> str:
    """Name options as this command spells them."""
    text = re.sub(rf"\bworkload\.({'|'.join(_OPTIONS)})\b", r"--\1", text)
    return text.replace("workload.args", "arguments after --").replace("measure.timeout_s", "--timeout")


def looked(look: FirstLook, console: Console, path: str) -> tuple[Seen, Parting | None]:
    """Run the script, and tell the waiting user what is being done."""
    with console.status(look) if console.is_terminal else nullcontext() as shown:
        if shown:
            return look.run(lambda text: None)
        return look.run(lambda text: console.print(f"{path}: {text}"))


def overrides_of(line: PastedLine, options: Mapping[str, Any] = MappingProxyType({})) -> list[str]:
    """What was asked for, as it would be typed after another command.

    Parameters
    ----------
    options : of this command; None is left out
    """
    asked = {"module": line.module, "ranks": line.ranks}
    asked |= {name: value for name, value in options.items() if value is not None}
    texts = {"path": line.path, "args": " ".join(map(_argument, line.args))}
    texts |= {name: asked.pop(name) for name in ("iteration", "module") if name in asked}
    written = {name: composition.written(text) for name, text in texts.items() if text}
    numbers = {name: value for name, value in asked.items() if value is not None}
    return [
        f"workload={WORKLOAD}",
        *(f"workload.{name}={text}" for name, text in {**written, **numbers}.items()),
    ]


def _argument(word: str) -> str:
    """Quote an argument where `shlex.split` needs it: quotes within quotes of Hydra's are hard to read."""
    try:
        return word if shlex.split(word) == [word] else shlex.quote(word)
    except ValueError:  # a quote of its own
        return shlex.quote(word)


def _command(overrides: Sequence[str], timeout: float) -> SweepCommand:
    command: RunCommand = validation.typed(composition.compose("run", overrides), RunCommand)
    measure = dataclasses.replace(command.measure, timeout_s=timeout)
    return SweepCommand(workload=command.workload, toggles=command.toggles, measure=measure)


def refused(console: Console, path: str, reason: NotMeasurable) -> int:
    failure = reason.failure
    ours = failure.type in ("ConfigError", "UnsupportedHere")
    raised = f"{path} raised {failure.type}: {failure.message}"
    text = _spelled(failure.message) if ours else raised if failure.where else f"{path}: {failure.message}"
    console.print(f"cannot be measured: {text}", style="red", markup=False, soft_wrap=True)
    if failure.where and not ours:
        console.print(f"at {failure.where}", markup=False, soft_wrap=True)
    console.print(f"all that it printed: {reason.log}", soft_wrap=True)
    return SOME_FAILED


def _lines(path: str, seen: Seen, parting: Parting | None, toggles: Sequence[Toggle]) -> Iterator[str]:
    sight, counts = seen["sight"], seen["counts"]
    yield f"{path} can be measured; an iteration ends with {sight['ends']}"
    times = [duration(time) for time in seen["times_ns"]]
    middle = duration(statistics.median(seen["times_ns"]))
    yield f"  time        {middle} an iteration ({', '.join(times)}); set-up {seen['setup_s']:.1f} s"
    yield f"  updates     {_updates(sight, counts)}"
    yield f"  models      {_models(sight['models'])}"
    yield f"  batches     {_batches(counts)}"
    yield f"  units       {_units(seen['units'], sight['unit'])}"
    yield f"  repeats     {repeats(parting, sight['seeded_here'])}"
    yield from _epoch(seen)
    for became in sight["writes"]:
        yield f"  writes      {became}"
    if seen["threads"]:
        yield f"  leaves      threads that do not end: {', '.join(seen['threads'])}; make them daemons"
    obstacles: Mapping[str, str] = sight["obstacles"]
    yield f"  can act     {', '.join(_able(toggles, obstacles)) or 'no toggle'}"
    for why, names in _by_reason(obstacles).items():
        yield f"  cannot act  {', '.join(names)}: {why}"


def _units(number: float, unit: str) -> str:
    if unit == "iteration":
        return "iterations; say how many examples one has with workload.units"
    return f"{number:g} {unit}{'' if number == 1 else 's'} an iteration"


def _updates(sight: Mapping[str, Any], counts: Mapping[str, float]) -> str:
    optimizers = ", ".join(f"{number} {name}" for name, number in sight["updates"].items()) or "no optimiser"
    skipped = counts.get("skipped_updates", 0)
    return (
        f"{counts.get('optimizer_steps', 0):g} an iteration by {optimizers}, after"
        f" {counts.get('backward_calls', 0):g} backward"
        + (f"; {skipped:g} more skipped by its GradScaler" if skipped else "")
    )


def _models(models: Mapping[str, int]) -> str:
    told = [f"{name} with {number:,} parameters" for name, number in models.items()]
    return ", ".join(told) or "none was called before the first iteration ended"


def _batches(counts: Mapping[str, float]) -> str:
    batches = counts.get("batches", 0)
    if not batches:
        return "none from a DataLoader"
    workers = " by worker processes" if counts.get("worker_batches") else ""
    return f"{batches:g} an iteration from a DataLoader{workers}, {counts.get('examples', 0):g} examples"


def repeats(parting: Parting | None, seeded_here: Sequence[str] = ()) -> str:
    if parting is None:
        why = f", because perfsweep seeds {' and '.join(seeded_here)}; the script itself does not"
        return f"yes: two runs computed the same{why if seeded_here else ''}"
    where = f"at iteration {parting.iteration}" if parting.iteration else "in their parameters"
    return f"no: two runs part {where}. {parting.cause}"


DAY_NS = 24 * 3600e9
"""An epoch that takes longer is none: loaders without an end are given a number that is never reached."""


def _epoch(seen: Seen) -> Iterator[str]:
    """What happened at the end of an epoch, or of the script, if it was seen."""
    if after := seen["ended_after"]:
        bounds = (
            "which bounds what is timed" if after >= FEWEST else "too few for a sweep: give it more to do"
        )
        yield f"  ends        by itself after {after} iterations, {bounds}"
    elif 0 < (left := seen["to_epochs_end"]) < DAY_NS / statistics.median(seen["times_ns"]):
        yield f"  epoch       its end is {left} iterations away: what happens there was not seen"


def _able(toggles: Sequence[Toggle], obstacles: Mapping[str, str]) -> Iterator[str]:
    """Toggles that can act, each with those of its levels that can."""
    for toggle in toggles:
        levels = [str(level.value) for level in toggle.levels[1:]]
        able = [level for level in levels if f"{toggle.name}={level}" not in obstacles]
        if toggle.name not in obstacles and able:
            yield f"{toggle.name} ({', '.join(able)})"


def _by_reason(obstacles: Mapping[str, str]) -> dict[str, list[str]]:
    """Toggles and levels that cannot act, those of one reason together."""
    names: dict[str, list[str]] = {}
    for name, why in obstacles.items():
        names.setdefault(why, []).append(name)
    return names


QUICK = "sweep=quick"
"""The sweep to start with."""

IMPORTS_S, START_S, OTHER_TRIALS, WARM_UP = 3.0, 1.0, 3, 60
"""Seconds in which a server imports, and a trial starts and ends; trials of an arm next to its rounds; usual
iterations of warm-up."""

ENOUGH_S = 8.0
"""Seconds of warm-up, of a timed region and of compared iterations that tell enough of slow iterations."""


def _next(line: PastedLine, overrides: Sequence[str], seen: Seen, parting: Parting | None) -> Iterator[str]:
    """Commands to go on with, each after a line that says what for and how long it takes."""
    command: SweepCommand = validation.typed(composition.compose("sweep", [*overrides, QUICK]), SweepCommand)
    from perfsweep.pipelines.report.version_answer import duration_of  # brings polars along

    able = _levels_that_act(command, seen["sight"]["obstacles"])
    words = " ".join(map(shell_word, overrides))
    before = "".join(f"{name}={shell_word(value)} " for name, value in line.variables.items())
    if parting and parting.held:
        before = f"{parting.held} {before}"
    if able:
        measure, fitted = _fitted(seen, command.measure)
        seconds = _seconds(seen, sum(map(len, able.values())), measure)
        axes = [f"axes.{name}=[{','.join(map(str, levels))}]" for name, levels in able.items()]
        each = f"each toggle that can act by itself, in about {duration_of(seconds)} and compiling"
        if parting is None or parting.held:
            yield f"next: what wins together, as a patch, in about {duration_of(2 * seconds)}"
            yield f"  {before}{typed('tune', line.path, line.args, [*overrides, *fitted])}"
            yield f"or {each}"
        else:
            yield f"next: {each}; for a patch it must repeat itself"
        yield f"  {before}perfsweep sweep {words} {QUICK} {' '.join(map(shell_word, [*axes, *fitted]))}"
    yield "or where its time goes" if able else "next: where its time goes"
    yield f"  {before}perfsweep profile {words}"


def _fitted(seen: Seen, measure: MeasureConfig) -> tuple[MeasureConfig, list[str]]:
    """Fewer iterations for a script whose iterations are slow, or are few, and how to ask for them."""
    each_s = statistics.median(seen["times_ns"]) / 1e9
    enough = min(math.ceil(ENOUGH_S / each_s), seen["ended_after"] // 4 or sys.maxsize)
    usual = {"iterations": measure.iterations or sys.maxsize, "warmup_max": measure.warmup_max}
    usual["evidence_iterations"] = measure.evidence_iterations
    fewer = {name: max(LEAST[name], enough) for name, most in usual.items() if enough < most}
    return dataclasses.replace(measure, **fewer), [f"measure.{name}={value}" for name, value in fewer.items()]


def _levels_that_act(command: SweepCommand, obstacles: Mapping[str, str]) -> dict[str, list[Any]]:
    """Levels of a sweep's design that can take effect."""
    found = {
        name: [level for level in levels if f"{name}={level}" not in obstacles]
        for design in command.sweep.designs
        for name, levels in design.levels.items()
        if name not in obstacles
    }
    return {name: levels for name, levels in found.items() if levels}


def _seconds(seen: Seen, levels: int, measure: MeasureConfig) -> float:
    """About how long a sweep takes: each trial sets the script up, warms up, and is timed."""
    step_s = statistics.median(seen["times_ns"]) / 1e9
    timed = measure.iterations or measure.region_s / step_s
    trial_s = START_S + seen["setup_s"] + step_s * (min(WARM_UP, measure.warmup_max) + timed)
    return measure.servers * IMPORTS_S + (1 + levels) * (OTHER_TRIALS + measure.rounds) * trial_s


def typed(command: str, path: str, args: Sequence[str], overrides: Sequence[str], *own: str) -> str:
    """A command about a script, as it is typed."""
    known = ("workload=", "workload.path=", "workload.args=")
    options = [word for word in overrides if not word.startswith(known)]
    words = [path, *own, *options, *(["--", *args] if args else [])]
    return " ".join([f"perfsweep {command}", *map(shell_word, words)])
