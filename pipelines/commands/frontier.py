"""`perfsweep frontier` and `tune`: the fastest size of a toggle, and the fastest arm within limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.commands.sweep import Display, measured
from perfsweep.pipelines.config import validation
from perfsweep.pipelines.config.types import FrontierCommand, TuneCommand
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.report.tables import Table, table_of
from perfsweep.pipelines.report.terminal_table import print_table
from perfsweep.pipelines.search import factors, ladders
from perfsweep.pipelines.search.driver import SearchDriver
from perfsweep.pipelines.search.factors import (
    Factor,
    Grid,
    budget,
    ladder_factor,
    refuse_too_much_memory,
    take_memory,
)
from perfsweep.pipelines.search.ladders import LadderResult, SizeResult
from perfsweep.pipelines.search.measurements import SearchSweep
from perfsweep.pipelines.search.search import explore, search, stack
from perfsweep.pipelines.search.verification import Verification
from perfsweep.pipelines.store import provenance, writers
from perfsweep.pipelines.terminal import bold, console_here
from perfsweep.pipelines.units import MB, speed
from perfsweep.workloads.api import Levels, Toggle
from perfsweep.workloads.errors import ConfigError


def frontier(cfg: DictConfig) -> int:
    """Measure a ladder as far as it is needed; status 1 where no size runs."""
    command: FrontierCommand = validation.typed(cfg, FrontierCommand)
    console = console_here()
    take_memory(command, "frontier", command.frontier.memory_gib)
    factor = _ladder(command)
    start = {factor.name: factor.values[factor.start]}
    sweep = SearchSweep(console, command, cfg, command.frontier.rounds, start)
    refuse_too_much_memory("frontier", command.measure.memory_gib, sweep.device.memory_bytes)
    grid = Grid(sweep.space, sweep.reference.levels, [_legal(sweep, factor)])
    driver = SearchDriver(console, sweep, grid)
    limit = budget(command, sweep.device.memory_bytes)
    _show(console, sweep, grid.factors[0], limit)
    if command.dry_run:
        return DONE
    Display(console).notices(api.prepare_tracking(command))
    with writers.locked(sweep.folder):
        status = driver.run(explore(grid.factors[0], limit, command.frontier.measurements))
    return status if status is not None else report(console, factor.name, driver.result, sweep)


def _ladder(command: FrontierCommand) -> Factor:
    """The ladder to climb, from the level that the command has set, else from its first size."""
    toggles = {toggle.name: toggle for toggle in plan.load_workload(command.workload)[0].toggles}
    toggle = chosen(toggles, command.frontier.toggle)
    sizes = ladders.sizes_of(toggle, command.frontier.sizes)
    own = command.toggles.get(toggle.name)
    return ladder_factor(toggle.name, sizes, sizes[0] if own is None else toggle.level(own).value)


def chosen(toggles: Mapping[str, Toggle], name: str | None) -> Toggle:
    """The toggle to climb.

    Raises
    ------
    ConfigError
        It is unknown or no ladder, or several could be meant.
    """
    climbable = [toggle for toggle in toggles.values() if ladders.is_ladder(toggle)]
    known = ", ".join(toggle.name for toggle in climbable) or "none"
    if name is None and len(climbable) == 1:
        return climbable[0]
    if name is None:
        raise ConfigError(f"frontier.toggle says which ladder to climb; this workload has: {known}")
    if name not in toggles:
        raise ConfigError(f"frontier.toggle={name} is unknown; the ladders of this workload are: {known}")
    return toggles[name]


def report(console: Console, name: str, result: LadderResult, sweep: SearchSweep) -> int:
    """Print what the ladder showed."""
    print_table(console, _table(name, result))
    for line in lines(name, result):
        console.print(f"- {line}", markup=False)
    console.print(f"report: {sweep.folder.report_file}", soft_wrap=True)
    return DONE if result.fastest else SOME_FAILED


def lines(name: str, result: LadderResult) -> list[str]:
    """The answer in words."""
    if result.fastest is None or result.largest is None:
        reasons = "; ".join(f"{one.size}: {one.reason}" for one in result.measured)
        return [f"no size of {name} runs: {reasons}"]
    best, smallest = result.fastest, result.measured[0]
    sentences = [f"fastest: {name}={best.size}, {_time(best)} against {name}={smallest.size}"]
    if result.cliff:
        before, after = result.cliff
        jump = math.exp((after.log_time or 0.0) - (before.log_time or 0.0))
        sentences.append(f"cliff: a unit at {after.size} is {speed(jump)} than at {before.size}")
    sentences.append(f"largest that fits: {name}={result.largest.size}{_beyond(result)}")
    if result.memory and result.memory.each > 0:
        fixed, each = result.memory.fixed / MB, result.memory.each / MB
        sentences.append(f"peak memory: {fixed:.0f} MB + {each:.3g} MB for each")
    return [*sentences, f"{len(result.measured)} sizes measured"]


def _beyond(result: LadderResult) -> str:
    """Why nothing larger."""
    assert result.largest is not None
    worse = next((one for one in result.measured if one.size > result.largest.size), None)
    if worse is not None:
        return f"; {worse.size} does not run: {worse.reason}"
    if result.skipped:
        size, peak = min(result.skipped.items())
        return (
            f"; {size} is predicted to need {peak / 2**30:.2f} of {(result.budget or 0) / 2**30:.2f} GiB and"
            " was not tried"
        )
    return (
        ", where the ladder ends"
        if result.sure
        else "; larger sizes were not tried: raise frontier.measurements"
    )


def _table(name: str, result: LadderResult) -> Table[tuple[str, ...]]:
    rows = [(str(one.size), _time(one), _megabytes(one.peak_bytes), one.reason) for one in result.measured]
    rows += [
        (str(size), "", _megabytes(predicted), "predicted, not tried")
        for size, predicted in result.skipped.items()
    ]
    headings = (name, "time per unit", "peak memory", "")
    return table_of(f"frontier of {name}", headings, rows, numbers=headings[:3])


def _megabytes(peak_bytes: float | None) -> str:
    return f"{peak_bytes / MB:.0f} MB" if peak_bytes else ""


def _time(one: SizeResult) -> str:
    return "" if one.log_time is None else f"{speed(math.exp(one.log_time))} (+-{2 * one.error:.1%})"


def _legal(sweep: SearchSweep, factor: Factor) -> Factor:
    """The sizes that a legal arm can have with everything else.

    Raises
    ------
    ConfigError
        There is none but the first.
    """
    grid = Grid(sweep.space, sweep.reference.levels, [factor])
    numbers: Sequence[int] = [n for n in range(len(factor.values)) if grid.legal((n,))]
    if len(numbers) < 2:
        raise ConfigError(f"{factor.name} has fewer than two sizes that go with {sweep.reference.label}")
    values = tuple(factor.values[n] for n in numbers)
    return Factor(factor.name, values, tuple(factor.sizes[n] for n in numbers), numbers.index(factor.start))


def _show(console: Console, sweep: SearchSweep, factor: Factor, limit: int | None) -> None:
    sizes = ", ".join(str(value) for value in factor.values)
    console.print(bold(sweep.manifest.sweep.name, f": {factor.name} in {sizes}"))
    memory = f"{limit / 2**30:.2f} GiB" if limit else "not known"
    console.print(
        f"memory: {memory}; next to it {sweep.reference.label}\nrecords: {sweep.folder.path}\n",
        soft_wrap=True,
    )


def tune(cfg: DictConfig) -> int:
    """Search, verify, write the preset; status as of a sweep."""
    return tuned(console_here(), validation.typed(cfg, TuneCommand), cfg)[0]


def tuned(
    console: Console, command: TuneCommand, cfg: DictConfig, place: Path | None = None
) -> tuple[int, Levels | None]:
    """Search, verify, write the preset; the status, and the levels that fresh rounds have borne out.

    Parameters
    ----------
    place : of the preset; then any number of toggles is tried by themselves, and the winners are stacked
    """
    take_memory(command, "tune", command.tune.memory_gib)
    own = command.tune
    sweep = SearchSweep(
        console, command, cfg, own.rounds, own.reference, iterations=own.iterations, compile_s=own.compile_s
    )
    refuse_too_much_memory("tune", command.measure.memory_gib, sweep.device.memory_bytes)
    most = None if place else factors.MOST_TOGGLES
    chosen, left_out = factors.search_factors(sweep.space, sweep.reference.levels, own, most)
    driver = SearchDriver(console, sweep, Grid(sweep.space, sweep.reference.levels, chosen))
    for (name, value), why in left_out.items():
        console.print(f"left out: {name}={value}: {why}", style="yellow")
    driver.print_space(command)
    if command.dry_run:
        return DONE, None
    Display(console).notices(api.prepare_tracking(command))
    with writers.locked(sweep.folder):
        limit, legal = budget(command, sweep.device.memory_bytes), driver.grid.legal
        status = driver.run(stack(chosen, legal) if place else search(chosen, legal, limit))
    if status is not None:
        return status, None
    text = provenance.sweep_yaml(cfg)
    after = Verification(console, command, driver, lambda again: measured(console, again, text), place)
    return after.run(), after.tuned
