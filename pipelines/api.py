"""The Python interface: plan a sweep, measure it, compare it, open it again.

These functions return results and print nothing; pass a `Watch` to follow the progress.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from perfsweep.fields import refusals
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.overrides import as_overrides
from perfsweep.pipelines.config.tracking import CHOSEN_SERVER, contradictions, from_shell
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.execution import executor_choice, launch, pack_jobs, submitted
from perfsweep.pipelines.execution.missing_trials import beside_rounds
from perfsweep.pipelines.measured import Planned, Sweep, Watch, second_sweep, watch_here
from perfsweep.pipelines.plan import foreseen, power
from perfsweep.pipelines.plan import plan as planning
from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.report.notebook import Comparison
from perfsweep.pipelines.store import provenance as origin
from perfsweep.pipelines.store import writers
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.records import SweepFolder, opened
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.versions.tree import notices as version_notices
from perfsweep.slurm.jobs import executor_class
from perfsweep.workloads.errors import ConfigError, PerfsweepError

if TYPE_CHECKING:
    from perfsweep.pipelines.config.sweep_options import SweepOptions


def plan(command: SweepCommand, config_text: str) -> Planned:
    """Plan a sweep: choose where it runs, and which arms it measures. Writes nothing.

    Raises
    ------
    ConfigError
        The workload, a toggle, a level or a design cannot be used, or the rounds are too few for any verdict.
    ClusterError
        The chosen executor cannot be used from here now.
    """
    cluster = command.cluster
    place = executor_choice.choose(cluster, dry_run=command.dry_run)
    crowded = executor_choice.crowded(cluster, command.measure.threads) if place.remote else None
    cluster.executor = place.executor
    here = environment.device_facts()
    if here.type == "cuda" and not place.remote:
        environment.refuse_old_driver()  # on other machines packs check it
    device = executor_choice.planning_device(cluster, place, here)
    warnings = executor_class(place.executor).warnings(cluster)
    manifest = planning.make_plan(command, device)
    notices = [place.line, crowded, *warnings, *version_notices(manifest.sweep.versions)]
    notices += prepare_tracking(command)
    if place.remote and cluster.network is False and command.tracking.mode == "online":
        notices.append("cluster.network=false: nodes do not reach W&B; choose tracking=offline")
    notices += [*pack_jobs.unused(cluster, manifest), *foreseen.unfilled_columns(manifest)]
    power.refuse_undecidable(manifest)
    cls, _ = planning.load_workload(command.workload)
    foreseen.refuse_unknown(cls, cls.toggles_named(manifest.arms[0].levels))
    sweep = Sweep(SweepFolder(Path(command.runs) / manifest.sweep.name), manifest)
    return Planned(sweep, command, config_text, place, device, tuple(filter(None, notices)))


def measure(planned: Planned, watch: Watch | None = None) -> dict[str, str]:
    """Measure the missing trials of a sweep; return the packs that ended early, with the end of their logs.

    After Ctrl-C packs of this machine end and keep their finished rounds, jobs on Slurm go on, and
    `KeyboardInterrupt` is raised.

    Raises
    ------
    ConfigError
        Another command measures the sweep, or another plan of it is still on Slurm.
    Held
        The remaining jobs wait for something that needs your action.
    """
    watch = watch or Watch()
    folder, manifest = planned.sweep.folder, planned.sweep.manifest
    with writers.locked(folder):
        submitted.refuse_second_place(folder, planned.place.executor)
        submitted.refuse_other_plan(folder, manifest)
        launch.prepare(folder, manifest, planned.config_text)
        unfinished = planned.unfinished()
        watch.begins(planned, unfinished)
        lacking = planned.untested() | beside_rounds(folder, manifest, planned.command.retry)
        packs = [pack for pack in manifest.packs if unfinished[pack.id] or pack.id in lacking]
        command, broken = planned.command, {}
        if packs:
            with watch.trials(planned, unfinished) as hear:
                broken = launch.launch(
                    *(folder, manifest, packs, command.cluster, planned.device, tuple(command.retry)),
                    *(hear, watch.notice, watch.counts),
                )
        else:
            launch.settle(folder, manifest, command.cluster, watch.notice)
        submitted.tidy(folder)
    return broken


def measure_together(planned: Planned, watch: Watch | None = None) -> dict[str, str]:
    """Measure all winners of a sweep together, adding one after the other, where there are two or more.

    Returns and raises as `measure` does; the watch is told of winners that cannot be combined.
    """
    found, watch = Sweep(planned.sweep.folder, planned.sweep.manifest), watch or Watch()
    command = second_sweep(planned.command, found.manifest, found.comparison)
    if command is None:
        return {}
    try:
        second = plan(command, planned.config_text)
    except ConfigError as error:
        watch.notice(f"the winners are not measured together: {error}")
        return {}
    return measure(second, watch)


def prepare_tracking(command: SweepCommand) -> list[str]:
    """Fill unset W&B settings from the shell; return a line on each setting that will not work as asked."""
    command.tracking = dataclasses.replace(command.tracking, **from_shell(command.tracking, os.environ))
    if command.tracking.mode == "disabled":
        return []
    os.environ[CHOSEN_SERVER] = command.tracking.base_url or ""
    _, notice = publishing.target(command.tracking)
    return [f"W&B: {line}" for line in (*contradictions(command.tracking, os.environ), notice) if line]


def sweep(*overrides: str, watch: Watch | None = None, **options: Unpack[SweepOptions]) -> Sweep:
    """Plan, measure, compare and publish a sweep, as ``perfsweep sweep`` does, and open it.

    Parameters
    ----------
    overrides : as on the command line, such as ``"tracking=disabled"``
    watch : is told of the progress; None: a notebook shows it, and otherwise nothing is shown
    options : the same as keywords, with mappings for fields: ``workload={"name": "digits", "width": 64}``,
        ``toggles={"amp": "bf16"}``; the fields of `measure` need no prefix: ``rounds=8``

    Raises
    ------
    ConfigError
        An option is unknown, or the sweep cannot be planned.
    PerfsweepError
        A pack ended early; the results of the other packs are in the report.
    """
    watch = watch or watch_here()
    cfg = composition.compose("sweep", [*overrides, *as_overrides("sweep", options)])
    planned = plan(validation.typed(cfg, SweepCommand), origin.sweep_yaml(cfg))
    for notice in planned.notices:
        watch.notice(notice)
    broken = measure(planned, watch) or measure_together(planned, watch)
    try:
        planned.sweep.report()
    finally:
        publishing.publish(planned.sweep.folder)
    for pack, log in broken.items():
        raise PerfsweepError(f"pack {pack} broke off; the end of its log: {log}")
    return planned.sweep


def open_sweep(path: str | Path, columns: Sequence[str] | None = None, output: str | None = None) -> Sweep:
    """Open the sweep in a folder, such as ``runs/digits-demo``.

    `columns` are shown next to time instead of the ones that its ``report.columns`` chose. Tables and reports
    go into `output`; by default into the sweep's folder, if that can be written.

    Raises
    ------
    ConfigError
        The folder has no sweep, or a column is unknown.
    """
    folder, manifest = opened(str(path), output)
    if columns is None:
        return Sweep(folder, manifest)
    report = ReportConfig(list(columns))
    for refusal in refusals(report, "report."):
        raise ConfigError(refusal)
    shown = manifest.sweep.model_copy(update={"report": report})
    return Sweep(folder, manifest.model_copy(update={"sweep": shown}))


def compare(path: str | Path) -> Comparison:
    """Compare the arms of the sweep in a folder, by all that is measured so far.

    Raises
    ------
    ConfigError
        The folder has no sweep.
    """
    return open_sweep(path).comparison
