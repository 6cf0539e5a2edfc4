"""A sweep in its folder, and a planned sweep: what is measured, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from perfsweep.pipelines.analysis import collect
from perfsweep.pipelines.analysis import compare as comparing
from perfsweep.pipelines.analysis.across import baselines
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.execution import executor_choice, missing_trials
from perfsweep.pipelines.measured import answers
from perfsweep.pipelines.measured.answers import Setting
from perfsweep.pipelines.measured.together import with_together
from perfsweep.pipelines.report import markdown
from perfsweep.pipelines.report.notebook import Comparison, Report
from perfsweep.pipelines.store import provenance as origin
from perfsweep.pipelines.store.declared import declared_by
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import Manifest, Outcome, SweepFolder
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Device


@dataclass(frozen=True, repr=False)
class Sweep:
    """A sweep in its folder, as far as it is measured.

    Files are read once, since a large sweep has thousands of them. Open the sweep again to see newer results.
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
        """The trials that have records."""
        return read_progress(self.folder, self.manifest)

    @cached_property
    def trials(self) -> pl.DataFrame:
        """One row for each trial; also written as ``tables/trials.parquet``."""
        return collect.collect(self.folder, self.manifest, self.progress)

    @cached_property
    def comparison(self) -> Comparison:
        """Effects with their verdicts, parity and rulings; also written below ``tables/``."""
        found = comparing.compare(self.folder, self.manifest, self.trials, self.progress)
        return Comparison.of(with_together(found, self.folder, self.manifest))

    @cached_property
    def provenance(self) -> Provenance:
        """Command, commit, versions and machine."""
        return origin.read_provenance(self.folder.config_file, _environments(self.progress))

    @property
    def effects(self) -> pl.DataFrame:
        """One row for each effect, winners first: speed with its 95 % interval, results, costs."""
        return answers.brief_effects(self.comparison)

    @property
    def effects_all(self) -> pl.DataFrame:
        """One row for each effect with all columns of ``tables/effects.parquet``."""
        assert self.comparison  # writes the table
        return pl.read_parquet(self.folder.tables_dir / "effects.parquet")

    @property
    def best(self) -> Setting | None:
        """The fastest arm whose levels may be turned on, with its command; None where nothing is faster."""
        return answers.best(self.comparison, self.manifest)

    @property
    def recommended(self) -> Setting | None:
        """The winners together, as far as each adds a measured gain, or `best`: what `Use it` runs."""
        return answers.recommended(self.comparison, self.manifest)

    @property
    def baseline(self) -> baselines.Baseline:
        """The figures that other sweeps are compared with."""
        unit = declared_by(self.manifest, self.progress.every).unit
        return baselines.baseline_of(self.manifest, unit, self.trials, self.provenance)

    def report(self) -> Report:
        """Write report.html and report.md; returns the path of the first; a notebook shows it as a link."""
        from perfsweep.pipelines.report.html import write_html  # with what draws its pictures

        write_html(self.folder, self.manifest, self.comparison, self.trials, self.provenance)
        markdown.write_markdown(self.folder, self.comparison, self.provenance)
        return Report(
            self.folder.report_file, self.comparison, None if self.folder.kept else self.folder.path
        )


@dataclass(frozen=True)
class Planned:
    """A planned sweep: where it runs, on which device, and notices for the user.

    `config_text` is kept as its sweep.yaml; `notices` name settings that will not work as asked.
    """

    sweep: Sweep
    command: SweepCommand
    config_text: str
    place: executor_choice.Choice
    device: Device
    notices: tuple[str, ...]

    def unfinished(self) -> dict[str, int]:
        """Count unfinished rounds by pack.

        If it runs on another machine, records of any device count, as only its nodes know their device.
        """
        progress, outcomes = self._progress_here(), frozenset(map(Outcome, self.command.retry))
        packs = self.sweep.manifest.packs
        return {pack.id: len(progress.unfinished_rounds(pack, outcomes)) for pack in packs}

    def finished(self) -> int:
        """Count the finished rounds, by the same rule."""
        progress = self._progress_here()
        return sum(progress.finished_rounds(pack) for pack in self.sweep.manifest.packs)

    def _progress_here(self) -> Progress:
        keys = None if self.place.remote else environment.comparison_keys(self.device)
        return read_progress(self.sweep.folder, self.sweep.manifest, keys)

    def untested(self) -> set[str]:
        """Name the packs with arms that lack counts or evidence, packs without unfinished rounds included."""
        retry = frozenset(map(Outcome, self.command.retry))
        return missing_trials.lacking(self.sweep.manifest, self._progress_here(), retry)


def _environments(progress: Progress) -> list[dict[str, Any]]:
    """Facts about the machine from every trial that recorded them, the first trial's first."""
    arms = [arms for attempts in progress.timing.values() for arms in attempts.values()]
    trials = [*progress.other.values(), *(trial for by_arm in arms for trial in by_arm.values())]
    records = sorted((trial.record for trial in trials), key=lambda record: record.started)
    return [record.environment for record in records if record.environment]
