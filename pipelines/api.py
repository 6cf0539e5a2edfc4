"""The Python interface: plan a sweep, measure it, compare it, open it again.

What these functions know they return; a caller who wants to hear of it meanwhile passes a `Watch`. Commands
print.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from perfsweep.fields import refusals
from perfsweep.pipelines.analysis import baselines, collect
from perfsweep.pipelines.analysis import compare as comparing
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.overrides import as_overrides
from perfsweep.pipelines.config.tracking import contradictions, from_shell
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.execution import executor_choice, launch, missing_trials, pack_jobs, submitted
from perfsweep.pipelines.execution.missing_trials import beside_rounds
from perfsweep.pipelines.plan import foreseen, power
from perfsweep.pipelines.plan import plan as planning
from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.report import html, markdown, notebook, progress_display
from perfsweep.pipelines.report.notebook import Comparison, Display, Report
from perfsweep.pipelines.store import locks
from perfsweep.pipelines.store import provenance as origin
from perfsweep.pipelines.store.declared import declared_by
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import Event, Manifest, Outcome, Pack, SweepFolder, opened
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.versions.tree import notices as version_notices
from perfsweep.slurm import executors
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError, PerfsweepError


@dataclass(frozen=True, repr=False)
class Sweep:
    """A sweep in its folder, as far as it is measured.

    Everything is read once, since a large sweep is thousands of small files: open it again to see what was
    measured since.
    """

    folder: SweepFolder
    manifest: Manifest

    def __repr__(self) -> str:
        sweep, effects = self.manifest.sweep, len(self.manifest.effects)
        arms = f"{len(self.manifest.arms)} arms, {effects} effects"
        return f"Sweep({str(self.folder.path)!r}: workload {sweep.workload}, {arms})"

    def _repr_html_(self) -> str:
        return self.comparison._repr_html_()

    @cached_property
    def progress(self) -> Progress:
        """Which trials there are."""
        return read_progress(self.folder, self.manifest)

    @cached_property
    def trials(self) -> pl.DataFrame:
        """One row for each trial; also written as ``tables/trials.parquet``."""
        return collect.collect(self.folder, self.manifest, self.progress)

    @cached_property
    def comparison(self) -> Comparison:
        """Effects with their verdicts, parity and rulings; also written below ``tables/``."""
        return Comparison.of(comparing.compare(self.folder, self.manifest, self.trials, self.progress))

    @cached_property
    def provenance(self) -> Provenance:
        """Command, commit, versions and machine."""
        return origin.read_provenance(self.folder.config_file, _environments(self.progress))

    @property
    def effects(self) -> pl.DataFrame:
        """One row for each effect: ratio of times, 95 % interval, verdict, parity, memory in bytes."""
        assert self.comparison  # writes the table
        return pl.read_parquet(self.folder.tables_dir / "effects.parquet")

    @property
    def baseline(self) -> baselines.Baseline:
        """What other sweeps can be compared with."""
        unit = declared_by(self.manifest, self.progress.every).unit
        return baselines.baseline_of(self.manifest, unit, self.trials, self.provenance)

    def report(self) -> Report:
        """Write report.html and report.md anew; the path of the first, which a notebook shows."""
        html.write_html(self.folder, self.manifest, self.comparison, self.trials, self.provenance)
        markdown.write_markdown(self.folder, self.comparison, self.provenance)
        return Report(self.folder.report_file, self.comparison)


@dataclass(frozen=True)
class Planned:
    """A sweep that may be measured: where, on what device, and what a person should hear before.

    `config_text` is kept as its sweep.yaml; `notices` say where something will not be as asked.
    """

    sweep: Sweep
    command: SweepCommand
    config_text: str
    place: executor_choice.Choice
    device: Device
    notices: tuple[str, ...]

    def unfinished(self) -> dict[str, int]:
        """Count unfinished rounds by pack.

        On another machine records of any device count, as only the nodes know theirs.
        """
        progress, outcomes = self._progress_here(), frozenset(map(Outcome, self.command.retry))
        packs = self.sweep.manifest.packs
        return {pack.id: len(progress.unfinished_rounds(pack, outcomes)) for pack in packs}

    def finished(self) -> int:
        """Count the rounds that are there already, on the same terms."""
        progress = self._progress_here()
        return sum(progress.finished_rounds(pack) for pack in self.sweep.manifest.packs)

    def _progress_here(self) -> Progress:
        keys = None if self.place.remote else environment.comparison_keys(self.device)
        return read_progress(self.sweep.folder, self.sweep.manifest, keys)

    def untested(self) -> set[str]:
        """Name the packs with arms that lack counts or evidence, lost ones of finished rounds included."""
        retry = frozenset(map(Outcome, self.command.retry))
        return missing_trials.lacking(self.sweep.manifest, self._progress_here(), retry)


class Watch:
    """What is told of a sweep while it is measured; this one keeps silent."""

    def begins(self, planned: Planned, unfinished: Mapping[str, int]) -> None:
        """Hear what will be measured: unfinished rounds by pack."""

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Open what hears of each trial that ends, for as long as packs run."""
        return nullcontext(lambda event: None)

    def counts(self, text: str) -> None:
        """Hear how many jobs run and wait on a cluster, and what for, when that has changed."""

    def notice(self, text: str) -> None:
        """Hear a sentence, such as that a job was submitted again."""


class NotebookWatch(Watch):
    """Shows in a notebook how far a sweep is."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._counted = False

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Show a bar for as long as packs run."""
        manifest = planned.sweep.manifest
        ahead = progress_display.trials_ahead(manifest, dict(unfinished))
        return notebook.live(self._display, manifest, ahead, planned.sweep.folder)

    def counts(self, text: str) -> None:
        """Show how many jobs run and wait, in one line that changes."""
        self._display({"text/plain": text}, raw=True, display_id=f"jobs-{id(self)}", update=self._counted)
        self._counted = True

    def notice(self, text: str) -> None:
        """Show a sentence that a person should not miss."""
        self._display({"text/plain": text}, raw=True)


def watch_here() -> Watch:
    """Show progress where this process is the kernel of a notebook; elsewhere keep silent."""
    display = notebook.notebook_display()
    return NotebookWatch(display) if display else Watch()


def plan(command: SweepCommand, config_text: str) -> Planned:
    """Plan a sweep: choose where it runs, and which arms it measures. Writes nothing.

    Raises
    ------
    ConfigError
        The workload, a toggle, a level or a design cannot be used, or the rounds could decide nothing.
    ClusterError
        The executor that was asked for cannot be used from here now.
    """
    cluster = command.cluster
    place = executor_choice.choose(cluster, dry_run=command.dry_run)
    crowded = executor_choice.crowded(cluster, command.measure.threads) if place.remote else None
    cluster.executor = place.executor
    here = environment.device_facts()
    if here.type == "cuda" and not place.remote:
        environment.refuse_old_driver()  # of other machines their packs say it
    device = executor_choice.planning_device(cluster, place, here)
    warnings = executors.find(place.executor).warnings(cluster)
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
    """Measure what is missing of a sweep; the packs that broke off, each with the end of its log.

    Ctrl-C passes through: packs of this machine end after their last finished round, those on Slurm go on.

    Raises
    ------
    ConfigError
        Another command measures the sweep, or another plan of it is still on Slurm.
    Held
        What is left waits for something that will not come by itself.
    """
    watch = watch or Watch()
    folder, manifest = planned.sweep.folder, planned.sweep.manifest
    with locks.locked(folder):
        submitted.refuse_second_place(folder, planned.place.executor)
        submitted.refuse_other_plan(folder, manifest)
        launch.prepare(folder, manifest, planned.config_text)
        unfinished = planned.unfinished()
        watch.begins(planned, unfinished)
        lacking = planned.untested() | beside_rounds(folder, manifest, planned.command.retry)
        packs = [pack for pack in manifest.packs if unfinished[pack.id] or pack.id in lacking]
        if not packs:
            launch.settle(folder, manifest, planned.command.cluster, watch.notice)
        broken = _launched(planned, packs, unfinished, watch) if packs else {}
        submitted.tidy(folder)
    return broken


def _launched(
    planned: Planned, packs: list[Pack], unfinished: Mapping[str, int], watch: Watch
) -> dict[str, str]:
    """Run packs to their end; those that broke off, each with the end of its log."""
    command, sweep = planned.command, planned.sweep
    with watch.trials(planned, unfinished) as hear:
        done = launch.launch(
            sweep.folder,
            sweep.manifest,
            packs,
            command.cluster,
            planned.device,
            tuple(command.retry),
            hear,
            watch.notice,
            watch.counts,
        )
    return done.broken


def prepare_tracking(command: SweepCommand) -> list[str]:
    """Take from the shell what the configuration leaves open; lines on what will not work as asked."""
    command.tracking = dataclasses.replace(command.tracking, **from_shell(command.tracking, os.environ))
    if command.tracking.mode == "disabled":
        return []
    _, notice = publishing.target(command.tracking)
    return [f"W&B: {line}" for line in (*contradictions(command.tracking, os.environ), notice) if line]


def sweep(*overrides: str, watch: Watch | None = None, **options: Any) -> Sweep:
    """Plan, measure, compare and publish a sweep, as ``perfsweep sweep`` does, and open it.

    Parameters
    ----------
    overrides : as on the command line, such as ``"tracking=disabled"``
    watch : hears how far it is; None: a notebook shows that, and anything else keeps silent
    options : the same by name, mappings for fields: ``workload={"name": "digits", "width": 64}``,
        ``toggles={"amp": "bf16"}``; the fields of `measure` need no prefix: ``rounds=8``

    Raises
    ------
    ConfigError
        An option is unknown, or the sweep cannot be planned.
    PerfsweepError
        A pack broke off; what the others measured is in the report.
    """
    watch = watch or watch_here()
    cfg = composition.compose("sweep", [*overrides, *as_overrides("sweep", options)])
    planned = plan(validation.typed(cfg, SweepCommand), origin.sweep_yaml(cfg))
    for notice in planned.notices:
        watch.notice(notice)
    broken = measure(planned, watch)
    publication = publishing.Publication(planned.sweep.folder)
    try:
        planned.sweep.report()
    finally:
        publication.finish()
    for pack, log in broken.items():
        raise PerfsweepError(f"pack {pack} broke off; the end of its log: {log}")
    return planned.sweep


def open_sweep(path: str | Path, columns: Sequence[str] | None = None) -> Sweep:
    """Open the sweep in a folder, such as ``runs/digits-demo``.

    `columns` are shown beside time in place of those that its ``report.columns`` chose.

    Raises
    ------
    ConfigError
        There is none, or a column is unknown.
    """
    folder, manifest = opened(str(path))
    if columns is None:
        return Sweep(folder, manifest)
    report = ReportConfig(list(columns))
    for refusal in refusals(report, "report."):
        raise ConfigError(refusal)
    shown = manifest.sweep.model_copy(update={"report": report})
    return Sweep(folder, manifest.model_copy(update={"sweep": shown}))


def compare(path: str | Path) -> Comparison:
    """Compare what is measured of the sweep in a folder.

    Raises
    ------
    ConfigError
        There is no sweep.
    """
    return open_sweep(path).comparison


def _environments(progress: Progress) -> list[dict[str, Any]]:
    """Facts about the machine from every trial that recorded them, the first trial's first."""
    arms = [arms for attempts in progress.timing.values() for arms in attempts.values()]
    trials = [*progress.other.values(), *(trial for by_arm in arms for trial in by_arm.values())]
    records = sorted((trial.record for trial in trials), key=lambda record: record.started)
    return [record.environment for record in records if record.environment]
