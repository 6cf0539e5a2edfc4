"""What follows a search: fresh rounds of the winner, what each of its levels is worth, and the preset."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import polars as pl
import yaml
from rich.console import Console

from perfsweep.pipelines.config import overrides
from perfsweep.pipelines.config.types import DesignConfig, SweepCommand, SweepConfig, TuneCommand
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.plan.designs import Assignment
from perfsweep.pipelines.plan.plan import folder_name
from perfsweep.pipelines.search.driver import SearchDriver
from perfsweep.pipelines.search.factors import Factor, Point, limit_words
from perfsweep.pipelines.search.search import SearchResult, exhaustive
from perfsweep.pipelines.statistics.verdicts import Verdict, verdict_word
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.provenance import command_line
from perfsweep.pipelines.store.records import Outcome, SweepFolder
from perfsweep.pipelines.store.stop_rule import LEAST_TO_STOP
from perfsweep.pipelines.terminal import bold, shell_line
from perfsweep.pipelines.units import bounds_text, speed
from perfsweep.workloads.api import Device, Levels
from perfsweep.workloads.errors import ConfigError

TRIES = 3
"""Most verifications: each says whether the arm is to be changed once more."""
GUESSED = 0.25
"""Share of a prediction's error below which a measurement of the level by itself says more."""
SURELY = 1.5
"""Standard errors beyond which a predicted cost is called one."""


@dataclass(frozen=True)
class VerifiedEffect:
    """An effect of the verification, as its file has it."""

    design: str
    toggle: str
    level: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str | None
    outcome: str
    parity: str | None

    @property
    def text(self) -> str:
        """The effect with its interval and verdict."""
        if self.ratio is None:
            return verdict_word(self.outcome) or "no rounds"
        parity = f", results {self.parity}" if self.parity else ""
        factor = speed(self.ratio)
        word = verdict_word(str(self.verdict))
        verdict = "" if word in factor else f" {word}"  # "1.10x slower" says it
        return f"{factor} ({bounds_text(self.ratio, self.low, self.high)}){verdict}{parity}"


NAIVE, ALL_ON, TUNED = "naive", "all_on", "tuned"
NO_GAIN = (
    Verdict.SLOWER.value,
    Verdict.DIFFERENT.value,
    Verdict.FEWER_UNITS.value,
    Verdict.NO_DIFFERENCE.value,
    Verdict.HELD_BACK.value,
)
"""Verdicts on the winner that contradict the search, or say nothing of its time."""


class Verification:
    """What follows a search: fresh rounds of the winner, what each of its levels is worth, the preset.

    Attributes
    ----------
    tuned : levels of the winner off their baseline, once fresh rounds have borne it out
    """

    def __init__(
        self,
        console: Console,
        command: TuneCommand,
        driver: SearchDriver,
        measure: Callable[[SweepCommand], int],
        place: Path | None = None,
    ) -> None:
        self.console, self.command, self.driver, self.measure = console, command, driver, measure
        self.tuned: Levels | None = None
        self._place = place
        self.result: SearchResult = driver.result
        self.factors = driver.grid.factors
        self.useless: dict[str, str] = {}

    def run(self) -> int:
        """Verify and write; once more where fresh rounds say that another arm is better."""
        best = self.result.best
        self._account()
        if best is None:
            why = self.driver.describe(self.driver.origin)
            self.console.print(f"no feasible arm: not even the baseline: {why}", style="red")
            return SOME_FAILED
        if best == self.driver.origin:
            return self._nothing_better()
        for number in range(1, TRIES + 1):
            name = f"{self.driver.sweep.manifest.sweep.name}-verified" + (f"-{number}" if number > 1 else "")
            status = self.measure(self._verification(best, name))
            if status not in (DONE, SOME_FAILED):
                self.driver.print_best_so_far()
                return status
            effects = _effects(SweepFolder(Path(self.command.runs) / name))
            mended = self._mended(best, effects) if number < TRIES else None
            if mended is None:
                return self._finish(best, effects, name, status)
            best = mended
        return DONE

    def _mended(self, best: Point, effects: Sequence[VerifiedEffect]) -> Point | None:
        """The arm that fresh rounds say beats the winner of the search; None where they bear it out."""
        against = next(
            (effect for effect in effects if effect.toggle == TUNED and effect.level == f"vs {ALL_ON}"), None
        )
        # For a stated number of iterations set-up and compiling count too, which these rounds leave out.
        by_time = self.command.tune.iterations is None
        if by_time and against is not None and against.low is not None and against.low > 1:
            self.console.print("\neverything on is faster: once more with it")
            return self._everything(best)
        useless = {factor.name: why for factor in self.factors if (why := _useless(effects, factor))}
        without = tuple(
            factor.start if factor.name in useless else n
            for factor, n in zip(self.factors, best, strict=True)
        )
        if not useless or not self.driver.grid.legal(without) or without == self.driver.origin:
            return None
        for toggle, why in useless.items():
            self.console.print(f"\n{toggle} {why} with the others: once more without")
        self.useless |= useless
        return without

    def _account(self) -> None:
        searched, grid = self.driver.sweep, self.driver.grid
        arms, trials = exhaustive(grid.factors, grid.legal), searched.trials
        every_trial = arms * self.command.tune.rounds
        self.console.print(
            f"\nsearched {len(self.driver.observations)} of {arms} arms in {trials} timing trials;"
            f" all of them would take {every_trial} ({trials / every_trial:.0%})"
        )
        self.console.print(f"the search's report: {searched.folder.report_file}", soft_wrap=True)

    def _nothing_better(self) -> int:
        observations = self.driver.observations
        every = sum(one.value is None for one in observations.values()) == len(observations) - 1
        why = (
            "every other arm was ruled out" if every else "nothing that was tried is faster than the baseline"
        )
        self.console.print(f"{why}; nothing is written")
        for line in self._dropped([]):
            self.console.print(f"- {line}")
        return SOME_FAILED if every else DONE

    def _verification(self, best: Point, name: str) -> SweepCommand:
        """Winner, reference and everything on in one sweep, each level of the winner left out in turn."""
        references = {NAIVE: self.driver.levels(self.driver.origin)}
        left: list[str] = []
        for i, factor in enumerate(self.factors):
            without = (*best[:i], factor.start, *best[i + 1 :])
            pointless = best[i] == factor.start or without == self.driver.origin
            if pointless or not self.driver.grid.legal(without):
                continue
            arm = self.driver.levels(without)
            if arm == self._baseline(best, factor):
                left.append(factor.name)
            else:
                references[f"{factor.name} at {arm[factor.name]}"] = arm
        if (everything := self._everything(best)) is not None:
            references[ALL_ON] = self.driver.levels(everything)
        designs = [DesignConfig("arms", arms={TUNED: dict(self.driver.levels(best))})]
        if left:
            designs.append(DesignConfig("leave_one_out", best=dict(self.driver.levels(best)), toggles=left))
        kept = {field.name: getattr(self.command, field.name) for field in dataclasses.fields(SweepCommand)}
        measure = self.command.measure
        if measure.rounds < LEAST_TO_STOP:  # so few are asked for by number, and cannot end by their width
            measure = dataclasses.replace(measure, precision=None, budget_s=None)
        sweep = SweepConfig(TUNED, designs, references)
        return SweepCommand(**{**kept, "name": name, "measure": measure, "sweep": sweep})

    def _baseline(self, best: Point, factor: Factor) -> Assignment | None:
        """The arm that leaving a toggle out gives; None where no legal arm has it at its baseline."""
        try:
            return self.driver.sweep.space.without(self.driver.levels(best), factor.name)
        except ConfigError:
            return None

    def _everything(self, best: Point) -> Point | None:
        """Every toggle at the level best by itself, if they go together; None where that is the winner.

        What fresh rounds have found useless stays off.
        """
        point = best
        for i, factor in enumerate(self.factors):
            if factor.name in self.useless:
                continue
            high = self.result.best_levels.get(factor.name, factor.start)
            changed = (*point[:i], high, *point[i + 1 :])
            if not factor.sizes and point[i] == factor.start and self.driver.grid.legal(changed):
                point = changed
        observed = self.driver.observations.get(point)
        ruled_out = observed is not None and observed.value is None
        return None if ruled_out or point in (best, self.driver.origin) else point

    def _finish(self, best: Point, effects: Sequence[VerifiedEffect], name: str, status: int) -> int:
        """Print the verdict and, where it bears the search out, keep the preset; the command's status."""
        lines = self._explained(best, effects)
        against = {effect.level: effect for effect in effects if effect.toggle == TUNED}
        tuned, everything = against[f"vs {NAIVE}"], against.get(f"vs {ALL_ON}")
        self.console.print(bold("\ntuned", f": {self.driver.name(best)}"))
        self.console.print(f"against the baseline: {tuned.text}")
        if everything:
            self.console.print(f"against everything on: {everything.text}")
        if (iterations := self.command.tune.iterations) is not None:
            by_search = f"{self.driver.describe(best)} by the search"
            self.console.print(f"for {iterations:g} iterations: {by_search}")
        for line in lines:
            self.console.print(f"- {line}")
        if tuned.ratio is None or tuned.verdict in NO_GAIN:
            open_ = tuned.verdict == Verdict.HELD_BACK
            why = "the times decide nothing" if open_ else "the comparison does not bear the search out"
            self.console.print(f"{why}: nothing is written", style="yellow")
            return SOME_FAILED
        self._keep(best, [f"{tuned.text} against the baseline", *lines], name)
        return status

    def _keep(self, best: Point, findings: Sequence[str], name: str) -> None:
        """Write the preset, with what was found and how, and print the command that uses it."""
        searched, device = self.driver.sweep, self.driver.sweep.device
        workload = searched.manifest.sweep.workload
        cls, _ = declared_workload(workload, searched.manifest.sweep.config)
        preset = preset_name(folder_name(cls, workload), device)
        file, extra = (self._place, []) if self._place else preset_place(preset, Path(self.command.runs))
        self.tuned = searched.space.choices(self.driver.levels(best))
        verdict, *reasons = findings
        facts = [
            f"{workload} on {device.name or device.type}: {verdict}",
            f"limits: {'; '.join(limit_words(self.command))}",
            *reasons,
            f"by: {command_line()}",
            f"evidence: {Path(self.command.runs) / name}",
        ]
        write_preset(file, self.tuned, facts)
        self.console.print(f"preset: {file}", soft_wrap=True)
        if self._place:
            return
        own = " ".join([*extra, f"toggles={file.stem}"])
        use = f"use it: {shell_line('run', f'workload={workload}')} {own}"
        self.console.print(use, soft_wrap=True, markup=False)

    def _explained(self, best: Point, effects: Sequence[VerifiedEffect]) -> list[str]:
        """Why each level is in the tuned arm, and why the others are not."""
        changed = [(f, n) for f, n in zip(self.factors, best, strict=True) if n != f.start]
        lines = []
        for factor, n in changed:
            # Without its only level the winner is the baseline, which it is compared with anyway.
            only = next((effect for effect in effects if effect.toggle == TUNED), None)
            effect = _effect_of(effects, factor) if len(changed) > 1 else only
            measured = effect.text if effect and effect.ratio is not None else ""
            worth = measured or self._guess(factor, factor.start, invert=True)
            lines.append(f"kept {factor.name}={factor.values[n]}: {worth}")
        return [*lines, *self._dropped([factor.name for factor, _ in changed])]

    def _dropped(self, kept: Sequence[str]) -> list[str]:
        """Why each toggle that the tuned arm does not have is not in it."""
        lines = []
        for factor in self.factors:
            if factor.name in kept:
                continue
            high = self.result.best_levels.get(
                factor.name, next(n for n in range(len(factor.values)) if n != factor.start)
            )
            if why := self.result.dropped.get(factor.name):
                lines.append(f"dropped {factor.name}: {why}")
            elif why := self.useless.get(factor.name):
                lines.append(f"dropped {factor.name}: {why} with the others")
            elif factor.sizes:
                lines.append(f"left {factor.name}={factor.values[factor.start]}: no other size is faster")
            else:
                lines.append(f"dropped {factor.name}={factor.values[high]}: {self._guess(factor, high)}")
        return lines

    def _guess(self, factor: Factor, number: int, invert: bool = False) -> str:
        """What a change of the best arm would cost, by all that the search measured."""
        expected = self.result.expected.get((factor.name, number))
        if expected is None:
            return "not legal with the others"
        cost, error = (-expected[0], expected[1]) if invert else expected
        how = "by the search"
        own = tuple(number if one is factor else one.start for one in self.factors)
        alone = self.driver.observations.get(own)
        if not invert and alone and alone.value is not None and alone.variance < (GUESSED * error) ** 2:
            cost, error, how = alone.value, math.sqrt(alone.variance), "by itself"  # it was tried no further
        sure = "" if abs(cost) > SURELY * error else ", which is within the noise"
        return f"{speed(math.exp(cost))} (+-{2 * error:.1%}) {how}{sure}"


def _effects(folder: SweepFolder) -> list[VerifiedEffect]:
    names = [field.name for field in dataclasses.fields(VerifiedEffect)]
    return [
        VerifiedEffect(*values)
        for values in pl.read_parquet(folder.tables_dir / "effects.parquet").select(names).iter_rows()
    ]


def _effect_of(effects: Sequence[VerifiedEffect], factor: Factor) -> VerifiedEffect | None:
    """What a level of the tuned arm buys with the others: against the arm without it."""
    for effect in effects:
        if effect.design == "leave_one_out" and effect.toggle == factor.name:
            return effect
        if effect.toggle == TUNED and effect.level.startswith(f"vs {factor.name} at "):
            return effect
    return None


def _useless(effects: Sequence[VerifiedEffect], factor: Factor) -> str:
    """Why a level of the winner is better left out; empty where it is not."""
    effect = _effect_of(effects, factor)
    if effect is not None and effect.outcome == Outcome.INERT.value:
        return "does nothing"
    return "costs time" if effect is not None and effect.verdict == Verdict.SLOWER.value else ""


def preset_place(name: str, runs: Path) -> tuple[Path, list[str]]:
    """Choose where a preset goes: a checkout's ``conf``, else ``perfsweep.yaml``'s folder or the sweeps'.

    With the file comes what a command needs in addition to its name to find it there.
    """
    conf, extra = Path("conf"), list[str]()
    if not (conf.is_dir() and conf.resolve() == Path(str(files("perfsweep.conf"))).resolve()):
        own = overrides.conf_folder()
        conf = runs / "conf" if own is None else own
        extra = [shlex.quote(overrides.search_path(conf))] if own is None else []
    return conf / "toggles" / f"{name}.yaml", extra


def preset_name(workload: str, device: Device) -> str:
    """Name a preset ``tuned-<workload>-<device>``: of a GPU its model, as they differ in what pays."""
    model = device.name if device.type == "cuda" and device.name else device.type
    return f"tuned-{workload}-{re.sub(r'[^a-z0-9]+', '-', model.lower()).strip('-')}"


def write_preset(file: Path, levels: Levels, facts: Sequence[str]) -> None:
    """Write the levels off their baseline, with what is known of them as comments.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    lines = [f"# {line}" for fact in facts for line in fact.splitlines()]
    text = "\n".join(lines) + "\n" + yaml.safe_dump(dict(levels), default_flow_style=False, sort_keys=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode())
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written ({error.strerror}); what was measured stays: the same command"
            " writes it again"
        ) from error
