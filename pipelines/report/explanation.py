"""How a row of a comparison came about: from the pairs of its rounds to its verdict, one step a line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from perfsweep.pipelines.analysis.arm_records import outcome_text
from perfsweep.pipelines.analysis.columns import Column
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import Derivation, EffectResult, effect_name
from perfsweep.pipelines.report.tables import Table, design_title, effects_by_design
from perfsweep.pipelines.report.terminal_table import print_lines, print_table
from perfsweep.pipelines.statistics.estimates import Estimate, Interval
from perfsweep.pipelines.statistics.log_ratios import Pair
from perfsweep.pipelines.statistics.verdicts import ReasonCode
from perfsweep.pipelines.units import bounds_text, speed
from perfsweep.workloads.errors import ConfigError

CODES = {
    ReasonCode.CALLED_FASTER: "the corrected interval lies wholly below the margin",
    ReasonCode.CALLED_SLOWER: "the corrected interval lies wholly above the margin",
    ReasonCode.INSIDE_MARGIN: "the 95 % interval lies within the margin",
    ReasonCode.HOLDS_ZERO: "the 95 % interval holds both no change and one beyond the margin",
    ReasonCode.HOLM_NOT_REJECTED: "by itself it would be called, among so many comparisons it is not",
    ReasonCode.REACHES_INTO_MARGIN: "there is a change, and it may be smaller than the margin",
    ReasonCode.BELOW_PLACEBO_FLOOR: "there is a change, no larger than what placebos show",
    ReasonCode.TOO_FEW_ROUNDS: "so few rounds decide nothing",
    ReasonCode.ALL_DISTURBED: "every trial of its arms was disturbed",
    ReasonCode.ONLY_A_LOOK: "measure.look asked for figures and no verdict",
    ReasonCode.UNLIKE_BEATS: "the regions of its arms held unlike numbers of heavy iterations",
    ReasonCode.RESULTS_DIFFER: "the arm computes something else, so its time does not count",
    ReasonCode.FEWER_UNITS: "the arm did less work than its base, so its time does not count",
    ReasonCode.NO_TIME: "there is no time to compare",
    ReasonCode.NO_RECORDS: "no round has measured both the arm and its base yet",
}
"""Each reason in words."""


def show(console: Console, comparison: Comparison, row: str) -> None:
    """Print how a row came about.

    Raises
    ------
    ConfigError
        There is no such row, or several have that name.
    """
    result = row_of(comparison, row)
    title, *steps = explanation(comparison, result)
    console.print(f"\n{title}", highlight=False, markup=False)
    if (table := pair_table(result)).rows:
        print_table(console, table)
    print_lines(console, steps)


def row_of(comparison: Comparison, row: str) -> EffectResult:
    """Look up a row of the tables of effects by its number, counted from 1 through all of them, or its name.

    Raises
    ------
    ConfigError
        There is no such row, or several have that name.
    """
    rows = [result for _, results in effects_by_design(comparison.effects) for result in results]
    names = [f"{number} {_full_name(result)}" for number, result in enumerate(rows, 1)]
    named = [r for number, r in enumerate(rows, 1) if row in (str(number), _full_name(r), effect_name(r))]
    if len(named) == 1:
        return named[0]
    problem = f"several rows are called {row}" if named else f"there is no row {row}"
    raise ConfigError(f"{problem}; choose from: {', '.join(names)}")


def explanation(comparison: Comparison, result: EffectResult) -> list[str]:
    """Derive the verdict of a row; the first line is its title."""
    derivation = result.derivation
    return [
        f"{_full_name(result)}: {result.word} [{result.code.value}]",
        f"arm {result.arm_label} against its base {result.base_label}; trials: {outcome_text(result.trials)}",
        f"results: {result.parity_text or 'not compared'}",
        *(_steps(comparison, derivation) if derivation else ()),
        f"so: {CODES[result.code]}{f' ({result.note})' if result.note and not result.held_back else ''}",
        *(f"claim: {one.claim.text}: {one.text}" for one in result.rulings),
    ]


PAIRS: tuple[Column[Pair], ...] = (
    Column("pack", "pack", text=lambda pair: pair.pack),
    Column("server", "server", text=lambda pair: "" if pair.server is None else str(pair.server), kind=int),
    Column("round", "round", text=lambda pair: str(pair.number), kind=int),
    Column("time", "time", text=lambda pair: speed(math.exp(pair.log_ratio)), kind=float),
)
"""Of one round each row: the arm's time against its base's."""


def pair_table(result: EffectResult) -> Table[Pair]:
    """Tabulate the pairs that an effect rests on."""
    pairs = result.derivation.pairs if result.derivation else ()
    # Servers are named by their seeds: numbers in order of appearance read better.
    servers = [server for server in dict.fromkeys(pair.server for pair in pairs) if server is not None]
    places = {server: place for place, server in enumerate(servers, 1)}
    rows = (replace(one, server=None if one.server is None else places[one.server]) for one in pairs)
    return Table("Pairs", PAIRS, tuple(rows))


def _full_name(result: EffectResult) -> str:
    return f"{effect_name(result)} ({design_title(result.effect.design)})"


def _steps(comparison: Comparison, derivation: Derivation) -> Iterator[str]:
    """Say what the pairs amount to, and which bars that is held to."""
    estimate, judgement = derivation.estimate, derivation.judgement
    servers = {(pair.pack, pair.server) for pair in derivation.pairs if pair.server is not None}
    of = f" of {len(servers)} servers" if servers else ""
    yield (
        f"estimate: {speed(math.exp(estimate.log_ratio))} from {len(derivation.pairs)} pairs{of},"
        f" {estimate.n} values that intervals may count ({estimate.method.value})"
    )
    if estimate.interval is None:
        yield f"no interval: {estimate.reason}"
        return
    known = f" with {estimate.degrees:.3g} degrees of freedom"
    error = "" if estimate.error is None else f"; standard error {estimate.error:.2%}{known}"
    yield f"95 % interval: {_bounds(estimate, estimate.interval)}{error}"
    if judgement.holm is None:
        yield "correction: none, it is not among the comparisons"
        return
    corrected = estimate.at(judgement.holm.level)
    bounds = f": {_bounds(estimate, corrected)}" if corrected else ", which so few pairs cannot reach"
    decided = "rejects" if judgement.holm.rejected else "keeps"
    yield (
        f"correction: p {estimate.p:.2g}; among {derivation.comparisons} comparisons Holm reads it at"
        f" {judgement.holm.level:.2%}{bounds}, and {decided} no effect"
    )
    yield f"margin: {comparison.margin * 100:.1f} % either way makes no difference"
    if derivation.floor:
        yield f"floor: placebos, which equal the baseline, show up to {math.expm1(derivation.floor):.2%}"


def _bounds(estimate: Estimate, interval: Interval) -> str:
    return bounds_text(math.exp(estimate.log_ratio), *interval.ratios)
