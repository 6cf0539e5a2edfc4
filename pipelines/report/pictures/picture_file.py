"""Pictures as files of their own, for a page, a talk or a paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.report.pictures import answer_page, effects_chart, svg
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.workloads.errors import ConfigError

PICTURES = (".svg", ".png", ".pdf")
"""Kinds of pictures, by the ends of their names."""


def refuse_other_kinds(option: str, file: Path, kinds: tuple[str, ...] = PICTURES) -> None:
    """Refuse a file whose name ends in none of some kinds.

    Raises
    ------
    ConfigError
        It does.
    """
    if file.suffix.lower() not in kinds:
        known = ", ".join(kinds[:-1]) + " or " * (len(kinds) > 1) + kinds[-1]
        raise ConfigError(
            f"{option} {file}: cannot write this kind of file. Give a name that ends in {known}."
        )


def write_picture(option: str, file: Path, chart: Callable[[int], Figure], label: str) -> None:
    """Draw a chart into a file of the kind that its name says; `label` is for people who cannot see it.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    kind = file.suffix.lower().removeprefix(".")
    content = svg.alone(chart, label).encode() if kind == "svg" else svg.exported(chart, kind)
    write_file(option, file, content)


def write_file(option: str, file: Path, content: bytes) -> None:
    """Write a file that an option names, and the folder that it is in.

    Raises
    ------
    ConfigError
        It cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(f"{option} {file}: {problem}. Give a path that you may write to.") from None


def write_effects(option: str, file: Path, comparison: Comparison) -> None:
    """Draw the effects of a comparison into a file.

    Raises
    ------
    ConfigError
        No effect has an interval yet, or the file cannot be written.
    """
    chart = partial(effects_chart.chart, _rows(option, file, comparison), comparison.margin)
    write_picture(option, file, chart, f"Effects of {comparison.name}: speeds with 95 % intervals")


def write_page(option: str, file: Path, comparison: Comparison) -> None:
    """Write the answer of a comparison as one page.

    Raises
    ------
    ConfigError
        No effect has an interval yet, or the file cannot be written.
    """
    chart = partial(answer_page.chart, _rows(option, file, comparison), comparison)
    write_file(option, file, svg.exported(chart, "pdf", answer_page.WIDTH))


def _rows(option: str, file: Path, comparison: Comparison) -> list[effects_chart.Row]:
    if rows := effects_chart.effect_rows(comparison):
        return rows
    raise ConfigError(f"{option} {file}: no effect has an interval yet. Measure two rounds or more first.")
