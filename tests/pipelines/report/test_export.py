"""The effects as files: a picture for a talk, and tables for a paper."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.markdown import effects_latex, latex_text
from perfsweep.pipelines.report.picture_file import refuse_other_kinds, write_effects, write_file, write_page
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect
from perfsweep.workloads.api import Parity
from perfsweep.workloads.errors import ConfigError


def effect(level: str, verdict: Verdict, ratio: float) -> EffectResult:
    made = Effect(id=level, design="one_at_a_time", toggle="zero_grad", level=level, pairs=((level, "base"),))
    parity = ParityResult(ParityVerdict.IDENTICAL, Parity.EXACT)
    return EffectResult(made, level, "base", verdict, ratio, ratio * 0.9, ratio * 1.1, parity=parity)


EFFECTS = (effect("none", Verdict.FASTER, 0.5), effect("a&b_{50%}", Verdict.SLOWER, 1.5))
DEMO = Comparison("de_mo", "pair", 0.01, Reference("naive", 100.0, 6), EFFECTS, (), ())

BEGINNINGS = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_the_name_of_a_file_says_what_the_effects_are_drawn_as(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "new" / f"effects.{kind}"
    write_effects("--figure", file, DEMO)
    assert file.read_bytes().startswith(BEGINNINGS[kind])
    if kind == "pdf":
        write_effects("--figure", tmp_path / "again.pdf", DEMO)
        assert file.read_bytes() == (tmp_path / "again.pdf").read_bytes(), "equal to the byte"


@pytest.mark.parametrize("name", ["effects", "effects.svgz"])
def test_other_kinds_are_refused_with_those_that_there_are(name: str) -> None:
    says = rf"^--figure {re.escape(name)}: cannot .*\. Give a name that ends in \.svg, \.png or \.pdf\.$"
    with pytest.raises(ConfigError, match=says):
        refuse_other_kinds("--figure", Path(name))
    for fine in ("e.svg", "E.SVG", "e.Pdf"):
        refuse_other_kinds("--figure", Path(fine))
    with pytest.raises(ConfigError, match=r"Give a name that ends in .tex.$"):
        refuse_other_kinds("--latex", Path("effects.svg"), (".tex",))


def test_a_path_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"^--latex .*/file/e\.tex: .*\. Give a path that you may write to\.$"
    ) as told:
        write_file("--latex", tmp_path / "file" / "e.tex", b"")
    assert told.value.__cause__ is None and told.value.__suppress_context__


def test_a_page_has_the_answer_once_and_fits_whatever_is_open(tmp_path: Path) -> None:
    full = tmp_path / "full.pdf"
    many = tuple(replace(effect(f"l{n}", Verdict.UNDECIDED, 0.99), note=f"why {n}") for n in range(90))
    write_page("--page", full, replace(DEMO, effects=(*EFFECTS, *many)))
    assert full.read_bytes().startswith(b"%PDF") and full.read_bytes().count(b"/Type /Page\n") <= 1
    with pytest.raises(ConfigError, match=r"^--page .*: no effect has an interval yet"):
        write_page("--page", tmp_path / "e.pdf", Comparison("demo", "pair", 0.01, None, (), (), ()))


def test_latex_has_the_groups_and_cells_of_the_table_with_names_escaped() -> None:
    text = effects_latex(DEMO)
    lines = text.splitlines()
    assert lines[0] == "% de_mo: 6 rounds; baseline naive: 100 ns per pair"
    (start,) = [line for line in lines if line.startswith(r"\begin")]
    columns = len(start.removeprefix(r"\begin{tabular}{").removesuffix("}"))
    assert rf"\multicolumn{{{columns}}}{{l}}{{\textbf{{TURN ON}}}} \\" in lines
    (row,) = [line for line in lines if line.startswith("zero") and "none" in line]
    assert row.startswith(r"zero\_grad=none & 2.00x faster & 1.82 .. 2.22 & identical") and row.endswith(
        r" \\"
    )
    assert r"zero\_grad=a\&b\_\{50\%\} & 1.50x slower" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a_b", r"a\_b"),
        ("a\\b", r"a\textbackslash{}b"),
        ("x^2 ~ {y}", r"x\textasciicircum{}2 \textasciitilde{} \{y\}"),
        ("1 ok\n2 oom", "1 ok, 2 oom"),
    ],
)
def test_every_character_that_means_something_to_latex_is_escaped(text: str, written: str) -> None:
    assert latex_text(text) == written
