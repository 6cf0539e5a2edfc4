"""Effects -> Markdown: the same answer as text that can be committed, with what it takes to reproduce it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from perfsweep.pipelines.analysis.columns import Column, Style, T, Where
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.report.profile_links import PROFILE_HEADINGS, LinkedProfile, linked_profiles
from perfsweep.pipelines.report.sentences import answer, footnotes, opening
from perfsweep.pipelines.report.tables import Table, answer_tables, arms_table
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import SweepFolder


def write_markdown(folder: SweepFolder, comparison: Comparison, provenance: Provenance) -> None:
    """Write report.md."""
    tables = [*answer_tables(comparison, Where.MARKDOWN), arms_table(comparison, Where.MARKDOWN)]
    parts = [f"# {comparison.name}", opening(comparison), _list(answer(comparison))]
    for table in tables:
        parts += [f"## {table.title}", markdown_table(table)]
    if profiles := linked_profiles(folder):
        parts += ["## Profiles", grid(PROFILE_HEADINGS, map(_profile_cells, profiles))]
    if notes := footnotes(comparison):
        parts += ["## Notes", _list(notes)]
    parts += ["## Where this comes from", _list(_provenance_lines(provenance))]
    write_atomically(folder.markdown_file, ("\n\n".join(parts) + "\n").encode())


def _profile_cells(profile: LinkedProfile) -> tuple[str, ...]:
    files = ", ".join(f"[{name}]({quote(address)})" for name, address in profile.files)
    return (profile.arm, profile.what, profile.most, profile.cost, files)


def _provenance_lines(provenance: Provenance) -> list[str]:
    return [
        f"command: `{provenance.command}`",
        f"commit: {provenance.commit}",
        f"versions: {provenance.versions}",
        f"machine: {provenance.machine}",
        *(f"not the same in all trials: {line}" for line in provenance.differing),
    ]


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_as_text(line)}" for line in lines)


def markdown_table(table: Table) -> str:
    """Write a table's rows under its headings."""
    rows = [[_cell(column, row) for column in table.columns] for row in table.rows]
    return grid([column.heading for column in table.columns], rows)


def _cell(column: Column[T], row: T) -> str:
    text = column.cell(row)
    return f"**{text}**" if text and column.style(row) is Style.ALARM else text


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write cells under headings."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    lines += [f"| {' | '.join(_escape(text) for text in row)} |" for row in rows]
    return "\n".join(lines)


def _escape(text: str) -> str:
    return _as_text(text.replace("|", "\\|").replace("\n", "; ").replace("\u00a0", " "))


def _as_text(line: str) -> str:
    return _TAG.sub(r"\\<", line)


_TAG = re.compile(r"(?<!`)<(?=[A-Za-z/!?])")  # a reader of Markdown would drop `<class 'int'>` from a message
