"""Which answer `perfsweep compare` gives, and with which exit status."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.commands import comparison as module
from perfsweep.pipelines.commands.comparison import compare, refuse_several
from perfsweep.pipelines.report.notebook import Report
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"--json": True, "--csv": True, "--explain": False}, "^--json and --csv are different answers"),
        ({"--json": True, "--csv": True, "--explain": True}, "^--json and --csv and --explain are"),
    ],
)
def test_one_answer_at_a_time(options: dict[str, bool], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        refuse_several(options)
    refuse_several({name: name == "--csv" for name in options})


def test_others_are_named_after_against() -> None:
    with pytest.raises(ConfigError, match="runs/b: write --against before the sweeps to compare with"):
        compare("runs/a", ["runs/b"])


class Opened:
    """A sweep that was measured, and what was asked of it."""

    def __init__(self, failed: bool = False) -> None:
        self.comparison: Any = SimpleNamespace(failed=failed, effects=["an effect"])
        self.manifest = SimpleNamespace(sweep=SimpleNamespace(workload="toys"))
        self.baseline = SimpleNamespace(sweep="now")
        self.asked = dict[str, Any]()

    def report(self) -> Any:
        return Report(Path("runs/a/report.html"), self.comparison)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Compares a sweep with others of which some became slower: status, stdout, stderr, what was asked."""

    def ask(*others: bool, failed: bool = False, **options: Any) -> tuple[int, str, str, dict[str, Any]]:
        sweep = Opened(failed)
        slower = dict(zip([f"runs/{number}" for number in range(len(others))], others, strict=True))

        def open_sweep(path: str, columns: Any = None, output: str | None = None) -> Opened:
            sweep.asked |= {"columns": columns}
            return sweep

        def changes(now: Any, then: list[str]) -> tuple[Any, ...]:
            def regressions(name: str, margin: float) -> list[int]:
                sweep.asked["margin"] = margin
                return [1] * slower[name]

            return tuple(SimpleNamespace(regressions=partial(regressions, name), name=name) for name in then)

        def note(name: str) -> Any:
            return lambda *given, **own: print(name) or sweep.asked.update({name: given})

        monkeypatch.setattr(module.api, "open_sweep", open_sweep)
        monkeypatch.setattr(module, "baseline_at", str)
        monkeypatch.setattr(module, "compare_with", lambda now, then: changes(now, then))
        monkeypatch.setattr(module, "show_comparison", lambda console, one: print("tables") or int(failed))
        monkeypatch.setattr(module.explanation, "show", note("explained"))
        monkeypatch.setattr(module.changes, "show", note("changes"))
        monkeypatch.setattr(module.changes, "judged", lambda one, margin: [(one.name, margin)])
        monkeypatch.setattr(module.changes, "against", lambda one, margin: (one.name, margin))
        monkeypatch.setattr(module, "comparison_object", lambda *given: given)
        monkeypatch.setattr(module, "print_json", note("json"))
        monkeypatch.setattr(module, "print_csv", note("csv"))
        monkeypatch.setattr(module, "effect_rows", lambda comparison, effects: effects)
        monkeypatch.setattr(module.baselines, "store", lambda baseline, file: file.write_text(baseline.sweep))
        status = compare("runs/a", against=[*slower], **options)
        out = capsys.readouterr()
        return status, out.out, out.err, sweep.asked

    return ask


@pytest.mark.parametrize(
    ("others", "failed", "status"),
    [((), False, 0), ((), True, 1), ((False,), False, 0), ((False, True), False, 1), ((False,), True, 1)],
    ids=["alone", "an arm failed", "none slower", "slower than one", "an arm failed, and none is slower"],
)
@pytest.mark.parametrize("options", [{}, {"as_json": True}, {"as_csv": True}], ids=["tables", "json", "csv"])
def test_the_status_says_whether_an_arm_failed_or_became_slower(
    said: Any, others: tuple, failed: bool, status: int, options: dict
) -> None:
    assert said(*others, failed=failed, **options)[0] == status


def test_people_see_tables_and_then_what_changed(said: Any) -> None:
    _, out, err, asked = said(True, margin=0.2)
    assert out.split() == ["tables", "changes"] and not err
    assert asked["margin"] == 0.2 and asked["columns"] is None


def test_an_explanation_is_all_that_is_shown(said: Any) -> None:
    status, out, _, asked = said(True, explain="amp=bf16")
    assert (status, out) == (0, "explained\n")
    assert asked["explained"][-1] == "amp=bf16"


def test_a_program_gets_an_object_and_a_person_the_path_of_the_report(said: Any) -> None:
    _, out, err, asked = said(True, as_json=True, margin=0.2)
    assert out == "json\n" and err == "report: runs/a/report.html\n"
    comparison = asked["json"][0]
    assert comparison[1:] == ("toys", "runs/a", Path("runs/a/report.html"), 1, None, [("runs/0", 0.2)])


def test_rows_are_effects_or_what_has_changed(said: Any) -> None:
    assert said(as_csv=True)[3]["csv"] == (module.CSV_SCHEMA, ["an effect"])
    schema, rows = said(True, False, as_csv=True)[3]["csv"]
    assert schema == module.changes.CSV_SCHEMA
    assert rows.rows == [("runs/0", 0.05), ("runs/1", 0.05)]


def test_a_baseline_is_stored_where_that_was_said(said: Any, tmp_path: Path) -> None:
    _, out, _, asked = said(store=str(tmp_path / "then.json"), columns="peak, , mfu")
    assert (tmp_path / "then.json").read_text() == "now"
    assert f"baseline: {tmp_path / 'then.json'}" in out
    assert asked["columns"] == ["peak", "mfu"]


def test_a_figure_and_tables_are_written_where_that_was_said_and_told_after_the_answer(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, str]] = []
    note = lambda option, file, what: written.append((option, str(file)))  # noqa: E731
    monkeypatch.setattr(module.picture_file, "write_effects", note)
    monkeypatch.setattr(module.picture_file, "write_file", note)
    monkeypatch.setattr(module.picture_file, "write_page", note)
    monkeypatch.setattr(module, "effects_latex", lambda comparison: "tables")
    _, out, _, _ = said(figure="a.pdf", latex="a.tex", page="p.pdf")
    assert out.split("\n")[:4] == ["tables", "figure: a.pdf", "LaTeX: a.tex", "page: p.pdf"]
    assert written == [("--figure", "a.pdf"), ("--latex", "a.tex"), ("--page", "p.pdf")]
    _, out, err, _ = said(figure="a.pdf", as_json=True)
    assert out == "json\n" and "figure: a.pdf" in err, "programs read stdout"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"figure": "a.jpeg"}, "^--figure a.jpeg: "),
        ({"latex": "a.pdf"}, "^--latex a.pdf: "),
        ({"page": "a.png"}, "^--page a.png: "),
        ({"page": "a.pdf", "explain": "1"}, "^--explain and --page are different answers"),
        ({"latex": "a.tex", "explain": "1"}, "^--explain and --latex are different answers"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is_read(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compare("nowhere", **options)
