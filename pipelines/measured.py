"""A sweep in its folder: what is measured, what is missing, who is told, and the second sweep of its winners.

The second sweep adds all winners one after the other. Gains are never multiplied: two levels may save the
same time, and then the second level gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from perfsweep.pipelines.analysis import baselines, collect
from perfsweep.pipelines.analysis import compare as comparing
from perfsweep.pipelines.analysis.combinations import Together
from perfsweep.pipelines.analysis.effect_result import (
    CROSSED,
    EffectResult,
    by_todo,
    counts,
    effect_name,
    summary,
    todo,
)
from perfsweep.pipelines.config.types import DesignConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution import executor_choice, missing_trials
from perfsweep.pipelines.plan.tally import trials_ahead
from perfsweep.pipelines.report import markdown, notebook, sentences
from perfsweep.pipelines.report.notebook import Comparison, Display, Report
from perfsweep.pipelines.store import provenance as origin
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import Event, Manifest, Outcome, SweepFolder, opened
from perfsweep.pipelines.store.schema import declared_by
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.units import MB
from perfsweep.workloads.api import Device, LevelValue
from perfsweep.workloads.errors import PerfsweepError

COLUMNS: dict[str, type[pl.DataType]] = {
    "name": pl.String,
    "todo": pl.String,
    "speed": pl.Float64,
    "speed_low": pl.Float64,
    "speed_high": pl.Float64,
    "verdict": pl.String,
    "results": pl.String,
    "memory_mb": pl.Float64,
    "compile_s": pl.Float64,
    "rounds": pl.Int64,
}
"""Each row is one effect; `effects.parquet` has all columns."""


@dataclass(frozen=True, repr=False)
class Setting:
    """Levels to use, and their speed against the baseline.

    Attributes
    ----------
    levels : level of each toggle that is off its baseline
    speed, low, high : speed against the baseline with its 95 % interval; 2.0 is twice as fast
    results : how the results compare with the baseline's, such as ``identical``
    command : runs the workload with these levels
    text : all of this in one line
    """

    levels: Mapping[str, LevelValue]
    speed: float
    low: float | None
    high: float | None
    results: str
    command: str
    text: str

    def __repr__(self) -> str:
        return self.text


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
        return brief_effects(self.comparison)

    @property
    def effects_all(self) -> pl.DataFrame:
        """One row for each effect with all columns of ``tables/effects.parquet``."""
        assert self.comparison  # writes the table
        return pl.read_parquet(self.folder.tables_dir / "effects.parquet")

    @property
    def best(self) -> Setting | None:
        """The fastest arm whose levels may be turned on, with its command; None where nothing is faster."""
        return best(self.comparison, self.manifest)

    @property
    def recommended(self) -> Setting | None:
        """The winners together, as far as each adds a measured gain, or `best`: what `Use it` runs."""
        return recommended(self.comparison, self.manifest)

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


def brief_effects(comparison: Comparison) -> pl.DataFrame:
    """Tabulate the effects by what to do about them: levels to turn on come first, the fastest at the top.

    Speeds are null where the time does not count, because results differ or less work was done.
    """
    return pl.DataFrame([_brief(one) for one in by_todo(comparison.effects)], schema=COLUMNS, orient="row")


def _brief(result: EffectResult) -> tuple[object, ...]:
    speeds = (result.speed, result.speed_low, result.speed_high) if counts(result) else (None, None, None)
    return (
        effect_name(result),
        str(todo(result)),
        *speeds,
        result.word,
        result.parity_text,
        None if result.memory_bytes is None else result.memory_bytes / MB,
        result.compile_s,
        result.rounds,
    )


def best(comparison: Comparison, manifest: Manifest) -> Setting | None:
    """The fastest arm whose levels may be turned on; None where nothing is faster."""
    return comparison.fastest and _setting(comparison, manifest, comparison.fastest)


def recommended(comparison: Comparison, manifest: Manifest) -> Setting | None:
    """The winners together, as far as each adds a measured gain, or `best`: what `Use it` runs."""
    found = sentences.recommended(comparison)
    return found and _setting(comparison, manifest, found)


def _setting(comparison: Comparison, manifest: Manifest, result: EffectResult) -> Setting:
    texts = sentences.level_texts(result)
    planned = {
        (name, str(arm.levels[name])): arm.levels[name]
        for arm in manifest.arms
        for name in texts
        if name in arm.levels
    }
    levels = {name: planned.get((name, text), text) for name, text in texts.items()}
    named = ", ".join(f"{name}={text}" for name, text in texts.items()) or effect_name(result)
    return Setting(
        levels,
        result.speed or 1.0,
        result.speed_low,
        result.speed_high,
        result.parity_text,
        sentences.use(comparison, result),
        f"{named}: {summary(result)}",
    )


SUFFIX = "-together"
"""Ends the name of the second sweep."""
SHARE, LEAST_S = 1 / 3, 20.0
"""The second sweep's budget, as a share of the first sweep's, and its minimum: it has fewer arms."""


def second_sweep(
    command: SweepCommand, manifest: Manifest, comparison: comparing.Comparison
) -> SweepCommand | None:
    """The command that measures all winners together; None if fewer than two can be combined."""
    won = comparison.winners
    if len(won) < 2 or not command.sweep.together or manifest.sweep.name.endswith(SUFFIX):
        return None
    name = next(iter(manifest.sweep.references))
    base = command.sweep.references.get(name, {})
    own = SweepConfig(
        name=f"{command.sweep.name}{SUFFIX}",
        designs=_designs([_level(one, manifest) for one in won], base),
        references={name: base},
    )
    return replace(
        command,
        sweep=own,
        name=f"{manifest.sweep.name}{SUFFIX}",
        axes={},
        measure=_measure(command.measure),
        keep=None,
        retry=list(command.retry),
    )


def _designs(steps: list[dict[str, Any]], base: Mapping[str, Any]) -> list[DesignConfig]:
    """Designs of each step alone, and of the first two, three ... steps together against the baseline."""
    arms, levels = {}, {**base, **steps[0]}
    for count, step in enumerate(steps[1:-1], 2):
        levels = {**levels, **step}
        arms[f"first {count} steps"] = levels
    return [DesignConfig("chain", steps=steps), *([DesignConfig("arms", arms=arms)] if arms else [])]


def _measure(first: MeasureConfig) -> MeasureConfig:
    budget_s = None if first.budget_s is None else max(LEAST_S, SHARE * first.budget_s)
    return replace(first, budget_s=budget_s, placebo=0, stall=False, target=None)


def _level(result: EffectResult, manifest: Manifest) -> dict[str, Any]:
    toggle = result.effect.toggle
    return {toggle: manifest.arm(result.effect.pairs[0][0]).levels[toggle]}


def with_together(
    comparison: comparing.Comparison, folder: SweepFolder, manifest: Manifest
) -> comparing.Comparison:
    """Add the results of the second sweep, if there is one of the same winners."""
    second = SweepFolder(folder.path.with_name(folder.path.name + SUFFIX))
    if len(comparison.winners) < 2 or not second.manifest_file.exists():
        return comparison
    try:
        _, own = opened(str(second.path))
        progress = read_progress(second, own)
        found = comparing.compare(second, own, collect.collect(second, own, progress), progress)
    except PerfsweepError:
        return comparison  # `perfsweep compare` of that folder shows the error
    chain = [one for one in found.effects if one.effect.design == "chain"]
    if not chain or not _same(comparison.winners, manifest, chain[-1], own):
        return comparison
    return replace(comparison, together=_together(comparison.winners, str(second.path), found.effects, chain))


def _together(
    won: Sequence[EffectResult], folder: str, effects: Sequence[EffectResult], chain: Sequence[EffectResult]
) -> Together:
    *steps, whole = chain
    baseline = whole.effect.pairs[0][1]
    of_pair = {one.effect.pairs[0]: one for one in (*effects, *won) if one.effect.design not in CROSSED}
    parts = tuple(of_pair.get((step.effect.pairs[0][0], baseline)) for step in steps)
    return Together(folder, whole, tuple(steps), parts)


def _same(won: Sequence[EffectResult], manifest: Manifest, whole: EffectResult, second: Manifest) -> bool:
    """Whether an arm of the same work differs from its base by the levels of all winners, and no others."""
    if whole.ratio is None or _work(manifest) != _work(second):
        return False
    due = {toggle: level for one in won for toggle, level in _level(one, manifest).items()}
    along = {toggle for one in won for toggle in one.effect.also}
    arm, base = (second.arm(name).levels for name in whole.effect.pairs[0])
    moved = {toggle for toggle, level in arm.items() if base.get(toggle) != level}
    return due.items() <= arm.items() and due.keys() <= moved <= due.keys() | along


def _work(manifest: Manifest) -> tuple[object, ...]:
    """Identity of the work: sweeps with different code or configurations cannot be compared."""
    sweep = manifest.sweep
    return sweep.workload, sweep.config, sweep.code


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


class Watch:
    """Is told of the progress while a sweep is measured; this class shows nothing."""

    def begins(self, planned: Planned, unfinished: Mapping[str, int]) -> None:
        """Called with what will be measured: unfinished rounds by pack."""

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Enter a context while packs run; it gives the function that is called after each trial."""
        return nullcontext(lambda event: None)

    def counts(self, text: str) -> None:
        """Called when the numbers of running and waiting jobs change, with the reasons why they wait."""

    def notice(self, text: str) -> None:
        """Called with a sentence, such as that a job was submitted again."""


class NotebookWatch(Watch):
    """Shows the progress of a sweep in a notebook."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._counted = False

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Show a progress bar while packs run."""
        manifest = planned.sweep.manifest
        ahead = trials_ahead(manifest, dict(unfinished))
        return notebook.live(self._display, manifest, ahead, planned.sweep.folder)

    def counts(self, text: str) -> None:
        """Show how many jobs run and wait, in one line that is updated."""
        self._display({"text/plain": text}, raw=True, display_id=f"jobs-{id(self)}", update=self._counted)
        self._counted = True

    def notice(self, text: str) -> None:
        """Show a sentence that the user should not miss."""
        self._display({"text/plain": text}, raw=True)


def watch_here() -> Watch:
    """The watch for this process: shows progress if it is the kernel of a notebook, else nothing."""
    display = notebook.notebook_display()
    return NotebookWatch(display) if display else Watch()
