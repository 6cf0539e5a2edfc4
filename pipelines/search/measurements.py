"""A search as one sweep: measures what it proposes, and reads what was observed of every arm so far.

The sweep grows by a pack with each proposal; what is measured already is read again, so that the same
search, started again, comes to where it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines.analysis import collect
from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.analysis.exclusions import Exclusion, Exclusions, comparable_trials
from perfsweep.pipelines.analysis.judging import cells_of
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.execution import executor_choice, launch, missing_trials, submitted
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import Assignment, PlannedEffect
from perfsweep.pipelines.plan.packs import balanced_orders
from perfsweep.pipelines.plan.tally import trials_ahead
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.search.search import Observation
from perfsweep.pipelines.statistics.log_ratios import Cell
from perfsweep.pipelines.store import provenance
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Arm, Manifest, Outcome, Pack, SweepFolder, read_evidence
from perfsweep.pipelines.store.schema import declare
from perfsweep.pipelines.trial.identity import arm_id
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.errors import PerfsweepError


class PackBroke(PerfsweepError):
    """A pack of a search ended before it had measured what it was to measure."""


class SearchSweep:
    """The sweep of a search: it grows with every proposal.

    Parameters
    ----------
    rounds : of each arm
    reference : levels of the baseline
    iterations : of the baseline, over whose work set-up and compiling are to pay off; None: only the time per
        unit counts
    compile_s : seconds of compiling that an arm may take, with nothing compiled yet; None: any
    """

    def __init__(
        self,
        console: Console,
        command: SweepCommand,
        cfg: DictConfig,
        rounds: int,
        reference: Mapping[str, Any],
        iterations: float | None = None,
        compile_s: float | None = None,
    ) -> None:
        self._console, self._command = console, command
        self._iterations, self._compile_s = iterations, compile_s
        self._config_text = provenance.sweep_yaml(cfg)
        self.where = executor_choice.choose(command.cluster)
        if self.where.line:
            console.print(self.where.line, style="yellow")
        command.cluster.executor = self.where.executor
        self.device = executor_choice.planning_device(command.cluster, self.where, environment.device_facts())
        measure = dataclasses.replace(
            command.measure,
            rounds=rounds,
            precision=None,
            budget_s=None,
            placebo=0,  # from here on: the winner is compared in a sweep
            repeats=0,
            timed_parity=False,
            stall=False,
            target=None,
        )
        planned = dataclasses.replace(command, measure=measure)
        self.space, self.manifest = _alone(planned, self.device, reference)
        self.folder = SweepFolder(Path(command.runs) / self.manifest.sweep.name)
        self.reference = self.manifest.arms[0]

    def measure(self, candidates: Sequence[PlannedEffect]) -> None:
        """Add candidates to the sweep and measure what is missing of them.

        Raises
        ------
        PackBroke
            A pack broke off.
        KeyboardInterrupt
            Finished rounds stay.
        """
        self.manifest = extended(self.manifest, candidates, self.space, self._command.cluster.arms_per_pack)
        todo, lacking = self._todo()
        packs = [pack for pack in self.manifest.packs if todo[pack.id] or pack.id in lacking]
        if not packs:
            return
        submitted.refuse_second_place(self.folder, self.where.executor)
        submitted.refuse_other_plan(self.folder, self.manifest)
        launch.prepare(self.folder, self.manifest, self._config_text)
        retry = tuple(self._command.retry)
        ahead, cluster = trials_ahead(self._rest(packs), todo), self._command.cluster
        with progress_display.live(self._console, self.manifest, ahead) as progress:
            broken = launch.launch(
                self.folder, self.manifest, packs, cluster, self.device, retry, progress, self._say
            )
        for pack, log in broken.items():
            raise PackBroke(
                f"pack {pack} broke off; the end of {self.folder.pack_dir(pack) / 'log.txt'}:\n{log}"
            )

    def cancel_jobs(self) -> int:
        """End the jobs that are running; how many there were."""
        return launch.resume(self.folder, self.manifest, self._command.cluster).cancel()

    def arm(self, levels: Assignment) -> str:
        """Id of the arm with these levels."""
        sweep = self.manifest.sweep
        return arm_id(sweep.workload, plan.load_workload(self._command.workload)[1], levels, sweep.code)

    def observations(self) -> dict[str, Observation]:
        """What is known of every arm (id) that has been asked for."""
        progress = read_progress(self.folder, self.manifest)
        trials = collect.collect(self.folder, self.manifest, progress)
        sound = comparable_trials(trials.filter(pl.col("used") & (pl.col("outcome") == Outcome.OK.value)))
        # Packs of later proposals do not count: a search that is started again must see what it saw.
        records = ArmRecords(progress, self.manifest.packs, sound.left_out)
        agreement = Agreement(self.manifest, progress, read_evidence)
        exclusions = Exclusions(
            self.manifest, records, agreement, agreement.sharing(sound.data), self._compile_s
        )
        cells = _costs(sound.trials, records, self.reference.id, self._iterations)
        times = log_times(cells, self.reference.id)
        peaks = dict(sound.trials.group_by("arm").agg(pl.col("peak_bytes").max()).iter_rows())
        return {
            arm.id: _observation(exclusions.of_arm(arm.id), times.get(arm.id), peaks.get(arm.id))
            for arm in self.manifest.arms
        }

    @property
    def trials(self) -> int:
        """Timing trials that the search has planned."""
        return sum(len(order) for pack in self.manifest.packs for order in pack.orders)

    def _todo(self) -> tuple[dict[str, int], set[str]]:
        """Count unfinished rounds by pack, and name the packs that lack counts or evidence."""
        here = None if self.where.remote else environment.comparison_keys(self.device)
        progress = read_progress(self.folder, self.manifest, here)
        retry = frozenset(map(Outcome, self._command.retry))
        rounds = {pack.id: len(progress.unfinished_rounds(pack, retry)) for pack in self.manifest.packs}
        return rounds, missing_trials.lacking(self.manifest, progress, retry)

    def _rest(self, packs: Sequence[Pack]) -> Manifest:
        """The plan as far as it is still to be measured, for progress."""
        ids = {arm for pack in packs for arm in pack.arms}
        return self.manifest.model_copy(
            update={"arms": tuple(arm for arm in self.manifest.arms if arm.id in ids)}
        )

    def _say(self, text: str) -> None:
        self._console.print(text, style="yellow")


def _alone(command: SweepCommand, device: Any, reference: Mapping[str, Any]) -> tuple[Space, Manifest]:
    """The baseline alone, with nothing to measure yet."""
    cls, config = plan.load_workload(command.workload)
    space = Space(cls.toggles_named({*command.toggles, *reference}), config, device)
    # A size may need another toggle's level with it.
    levels = space.closure({**command.toggles, **reference})
    alone = plan.single_arm(dataclasses.replace(command, toggles=levels), device)
    sweep = alone.sweep.model_copy(
        update={
            "name": plan.sweep_name(command, cls),
            "references": {"naive": alone.arms[0].id},
            "tracking": command.tracking,
            "measure": command.measure,
        }
    )
    return space, alone.model_copy(update={"sweep": sweep, "packs": ()})


def extended(
    manifest: Manifest, candidates: Sequence[PlannedEffect], space: Space, arms_per_pack: int
) -> Manifest:
    """A manifest with more candidates, in packs of their own that have the baseline too."""
    sweep, reference = manifest.sweep, next(iter(manifest.sweep.references.values()))
    cls, config = plan.load_workload({"name": sweep.workload, **sweep.config})
    arms = {arm.id: arm for arm in manifest.arms}

    def arm_of(levels: Assignment) -> Arm:
        identity = arm_id(sweep.workload, config, levels, sweep.code)
        return arms.setdefault(identity, Arm(id=identity, label=space.label(levels), levels=levels))

    asked = [plan.identified(one, arm_of) for one in candidates]
    pairs = [one.pairs[0] for one in asked]
    effects = {effect.id: effect for effect in manifest.effects}
    effects |= {one.id: one for one, (arm, base) in zip(asked, pairs, strict=True) if arm != base}
    bases = dict.fromkeys([reference, *(base for _, base in pairs)])
    rest = [arm for arm in dict.fromkeys(arm for arm, _ in pairs) if arm not in bases]
    declared = declare(cls, config, arms.values())
    grown = {"arms": tuple(arms.values()), "effects": tuple(effects.values())}
    extended = manifest.model_copy(update={"sweep": sweep.model_copy(update={"declared": declared}), **grown})
    packs = _packs(extended, list(bases), rest, arms_per_pack)
    return extended.model_copy(update={"packs": (*manifest.packs, *packs)})


def _packs(manifest: Manifest, bases: Sequence[str], rest: Sequence[str], arms_per_pack: int) -> list[Pack]:
    """Packs for the rest of some arms, each with all bases; one at least."""
    measure, packs = manifest.sweep.measure, []
    cls, _ = declared_workload(manifest.sweep.workload, manifest.sweep.config)
    room = max(1, arms_per_pack - len(bases))
    for number, start in enumerate(range(0, max(1, len(rest)), room), start=len(manifest.packs)):
        members, name = [*bases, *rest[start : start + room]], f"p{number:03d}"
        orders = balanced_orders(members, measure.rounds, f"{measure.seed}-{name}")
        by_exec = any(cls.needs_exec(manifest.arm(arm).levels) for arm in members)
        packs.append(Pack(id=name, orders=orders, start="exec" if by_exec else "fork"))
    return packs


def _observation(
    exclusion: Exclusion | None, time: Observation | None, peak_bytes: int | None
) -> Observation:
    """What is known of an arm that may be ruled out, or have no time yet."""
    if exclusion is None and time is not None:
        return dataclasses.replace(time, peak_bytes=peak_bytes)
    exclusion = exclusion or Exclusion("unfinished")
    return Observation(None, 0.0, exclusion.reason or "no finished round", exclusion.outcome, peak_bytes)


def _costs(used: pl.DataFrame, records: ArmRecords, reference: str, iterations: float | None) -> list[Cell]:
    """What each arm costs per round: time per unit, or seconds of the stated work with set-up and compile."""
    cells = list(cells_of(used, "ns_per_unit"))
    if iterations is None:
        return cells
    own = used.filter(pl.col("arm") == reference)
    units = iterations * (median((own["units"] / own["iterations"]).to_list()) if own.height else 1.0)
    once_s = {cell.arm: records.one_off_s(cell.arm) or 0.0 for cell in cells}

    def cost_s(cell: Cell, ns_per_unit: float) -> float:
        return once_s[cell.arm] + units * ns_per_unit / 1e9

    return [
        dataclasses.replace(
            cell,
            value=cost_s(cell, cell.value),
            plain=None if cell.plain is None else cost_s(cell, cell.plain),
        )
        for cell in cells
    ]


LEAST_SD = 0.005
"""Least standard deviation of one log time: a few rounds may agree by luck."""
HUBER_THRESHOLD = 2.0
"""Residuals beyond so many scales lose weight (Huber 1964)."""
REWEIGHTINGS = 20


def log_times(cells: Sequence[Cell], reference: str) -> dict[str, Observation]:
    """Fit log time = arm + round by least squares that outlying rounds pull little on.

    A round is slow or fast for all arms in it, so that arms of different packs compare through the arms which
    their packs have in common. An arm that no chain of shared rounds joins to the baseline has no estimate.
    """
    arms = list(dict.fromkeys([reference, *(cell.arm for cell in cells)]))
    rounds = list(dict.fromkeys((cell.pack, cell.number) for cell in cells))
    if not any(cell.arm == reference for cell in cells):
        return {}
    design = np.zeros((len(cells), len(arms) + len(rounds)))
    for row, cell in enumerate(cells):
        design[row, [arms.index(cell.arm), len(arms) + rounds.index((cell.pack, cell.number))]] = 1
    fitted, scatter = _huber(design, np.log([cell.value for cell in cells]))
    count = {arm: sum(cell.arm == arm for cell in cells) for arm in arms}
    joined = _joined(cells, reference)
    return {
        arm: Observation(float(fitted[i] - fitted[0]), scatter**2 / count[arm])
        for i, arm in enumerate(arms)
        if arm in joined
    }


def _huber(design: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """Coefficients and the standard deviation of one value, by reweighted least squares."""
    weights = np.ones(len(values))
    fitted = np.zeros(design.shape[1])
    for _ in range(REWEIGHTINGS):
        root = np.sqrt(weights)
        fitted = np.linalg.lstsq(design * root[:, None], values * root, rcond=None)[0]
        off = np.abs(values - design @ fitted)
        # 1.483 times the median deviation of normal values is their standard deviation.
        scale = max(LEAST_SD, 1.483 * float(np.median(off)))
        weights = np.minimum(1.0, HUBER_THRESHOLD * scale / np.maximum(off, 1e-12))
    # Arms and rounds overlap in one column: the rank, not the number of columns, counts what was fitted.
    free = len(values) - np.linalg.matrix_rank(design)
    square = float((weights * (values - design @ fitted) ** 2).sum())
    return fitted, max(LEAST_SD, float(np.sqrt(square / free)) if free > 0 else LEAST_SD)


def _joined(cells: Sequence[Cell], reference: str) -> set[str]:
    """The baseline and every arm that a chain of shared rounds joins to it; empty if there is no such arm."""
    together: dict[tuple[str, int], set[str]] = {}
    for cell in cells:
        together.setdefault((cell.pack, cell.number), set()).add(cell.arm)
    joined = {reference}
    while grown := {arm for arms in together.values() if arms & joined for arm in arms - joined}:
        joined |= grown
    return joined if len(joined) > 1 else set()
