"""What storms, faults and soaks print: Markdown, to be pasted as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storm.driver import Outcome
from storm.soak import Growth
from storm.stage import Played


def of_storm(outcome: Outcome, command: str) -> Iterator[str]:
    """One line for the storm, and one for each fault of it."""
    counts = ", ".join(f"{name} {count}" for name, count in sorted(outcome.sweeps.items()))
    ends = ", ".join(f"{status}: {count}" for status, count in sorted(outcome.statuses.items()))
    yield "| seed | minutes | faults | sweeps | commands by status | trials | rows in W&B | violations |"
    yield "|---|---|---|---|---|---|---|---|"
    figures = (f"{outcome.seed}", f"{outcome.seconds / 60:.1f}", f"{outcome.faults}", counts, ends)
    more = (f"{outcome.trials}", f"{outcome.rows}", f"{len(outcome.violations)}")
    yield f"| {' | '.join((*figures, *more))} |"
    yield ""
    yield "| fault | struck | found nobody |"
    yield "|---|---|---|"
    for name in sorted(outcome.struck | outcome.missed):
        yield f"| {name} | {outcome.struck[name]} | {outcome.missed[name]} |"
    if outcome.violations:
        yield ""
        yield from (f"VIOLATION {one}" for one in outcome.violations)
        yield f"replay: {command}"


CASE_HEAD = "| # | fault | outcome | records found of wanted | s |\n|---|---|---|---|---|"


def of_case(played: Played) -> str:
    """One line of the table of faults."""
    wrong = "; ".join(played.problems)
    outcome = f"**WRONG**: {wrong}" if wrong else played.outcome
    case = played.case
    return f"| {case.id} | {case.fault} | {_cell(outcome)} | {played.tally} | {played.seconds:.0f} |"


def of_soak(growths: Sequence[Growth]) -> Iterator[str]:
    """One line for each figure."""
    yield "| figure | second quarter | last quarter | growth |"
    yield "|---|---|---|---|"
    for one in growths:
        unit = f" {one.unit}" if one.unit else ""
        yield f"| {one.what} | {one.second:.1f}{unit} | {one.last:.1f}{unit} | {one.share:+.1%} |"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
