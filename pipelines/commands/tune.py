"""`perfsweep tune`: search for the best arm under limits, compare it in fresh rounds, write a preset."""

from __future__ import annotations

from omegaconf import DictConfig

from perfsweep.pipelines import api
from perfsweep.pipelines.commands.sweep import Display, measured
from perfsweep.pipelines.config import validation
from perfsweep.pipelines.config.types import TuneCommand
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.search import factors
from perfsweep.pipelines.search.driver import SearchDriver
from perfsweep.pipelines.search.factors import Grid
from perfsweep.pipelines.search.limits import budget, refuse_too_much_memory, take_memory
from perfsweep.pipelines.search.measurements import Limits, SearchSweep
from perfsweep.pipelines.search.search import search
from perfsweep.pipelines.search.verification import Verification
from perfsweep.pipelines.store import locks, provenance
from perfsweep.pipelines.terminal import console_here


def tune(cfg: DictConfig) -> int:
    """Search, verify, write the preset; status as of a sweep."""
    command: TuneCommand = validation.typed(cfg, TuneCommand)
    console = console_here()
    take_memory(command, "tune", command.tune.memory_gib)
    limits = Limits(command.tune.iterations, command.tune.compile_s)
    sweep = SearchSweep(console, command, cfg, limits, command.tune.rounds, command.tune.reference)
    refuse_too_much_memory("tune", command.measure.memory_gib, sweep.device.memory_bytes)
    planned = factors.search_factors(sweep.space, sweep.reference.levels, command.tune)
    driver = SearchDriver(console, sweep, Grid(sweep.space, sweep.reference.levels, planned.factors))
    for (name, value), why in planned.left_out.items():
        console.print(f"left out: {name}={value}: {why}", style="yellow", highlight=False)
    driver.print_space(command)
    if command.dry_run:
        return DONE
    Display(console).notices(api.prepare_tracking(command))
    with locks.locked(sweep.folder):
        limit = budget(command, sweep.device.memory_bytes)
        status = driver.run(search(planned.factors, driver.grid.legal, limit))
    if status is not None:
        return status
    text = provenance.sweep_yaml(cfg)
    return Verification(console, command, driver, lambda again: measured(console, again, text)).run()
