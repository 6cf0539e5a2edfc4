"""Which answer perfsweep compare and history give, to people and to programs, and with which status."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from measured import change, cost, simulated, with_everything
from object_page import described, differences, table

from perfsweep.pipelines.cli import main
from perfsweep.pipelines.commands import comparison as module
from perfsweep.pipelines.commands.comparison import compare, history, refuse_several
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.exits import DONE, MISTAKE, SOME_FAILED
from perfsweep.pipelines.report.notebook import Report
from perfsweep.pipelines.store.records import SweepFolder
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


class Read:
    """What lies in folders: stored baselines, sweeps, and sweeps whose arms are commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slower: bool) -> None:
        self.followed: tuple[Any, ...] = ()
        self.printed = list[Any]()
        self.slower = slower
        self.console: Any = SimpleNamespace(print=lambda text, **how: self.printed.append(text))
        self.aside: Any = SimpleNamespace(print=lambda text, **how: self.printed.append(f"aside: {text}"))
        monkeypatch.setattr(module, "stored_baseline", lambda path: path if path.endswith(".json") else None)
        monkeypatch.setattr(module.api, "open_sweep", self.open)
        monkeypatch.setattr(module, "declared_by", lambda manifest, records: SimpleNamespace(unit="rows"))
        monkeypatch.setattr(module, "commit_versions", self.commits)
        monkeypatch.setattr(module, "follow", self.follow)
        monkeypatch.setattr(module, "console_here", lambda: self.console)
        monkeypatch.setattr(module, "error_console", lambda: self.aside)
        monkeypatch.setattr(module, "print_json", lambda found: self.printed.append(("json", found)))
        monkeypatch.setattr(module, "print_csv", lambda schema, rows: self.printed.append(("csv", rows)))
        monkeypatch.setattr(module.reporting, "show", lambda console, found: self.printed.append("table"))
        monkeypatch.setattr(module.reporting, "csv_rows", lambda found: "rows")
        monkeypatch.setattr(module.reporting, "history_object", lambda found, *rest: rest)
        monkeypatch.setattr(
            module.history_picture,
            "write_history",
            lambda option, file, found: self.printed.append(f"drawn {file}"),
        )

    def open(self, path: str) -> Any:
        progress = SimpleNamespace(every=())
        return SimpleNamespace(
            manifest=path, trials="trials", baseline=f"baseline of {path}", progress=progress
        )

    def commits(self, path: str, unit: str, trials: str) -> Any:
        assert (unit, trials) == ("rows", "trials")
        return SimpleNamespace(baselines=["c1", "c2"]) if path.endswith("commits") else None

    def follow(self, *given: Any) -> Any:
        self.followed = given
        return SimpleNamespace(arms=[SimpleNamespace(slower=False), SimpleNamespace(slower=self.slower)])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda slower=False: Read(monkeypatch, slower)


@pytest.mark.parametrize(
    ("paths", "baselines", "paired"),
    [
        (["a.json", "b"], ["a.json", "baseline of b"], False),
        (["commits"], ["c1", "c2"], True),
        (["commits", "b"], ["c1", "c2", "baseline of b"], False),
        (["b", "commits"], ["baseline of b", "c1", "c2"], False),
    ],
)
def test_versions_are_those_of_each_folder_in_their_order(
    read: Any, paths: list, baselines: list, paired: bool
) -> None:
    found = read()
    assert history(paths, arm=["amp=on"], margin=0.2) == 0
    assert found.followed[:3] == (baselines, ["amp=on"], 0.2)
    assert (found.followed[3] is not None) is paired


@pytest.mark.parametrize(("slower", "status"), [(True, 1), (False, 0)])
def test_an_arm_that_became_slower_is_status_1(read: Any, slower: bool, status: int) -> None:
    found = read(slower)
    assert history(["a.json"]) == status
    assert found.printed == ["table"] and found.followed[2] == 0.05
    assert history(["a.json"], as_json=True) == status
    assert history(["a.json"], as_csv=True) == status
    assert found.printed[1:] == [("json", (status, None)), ("csv", "rows")]


@pytest.mark.parametrize(
    ("asked", "answer", "told"),
    [
        ({}, "table", "picture: arms.svg"),
        ({"as_json": True}, ("json", (0, "arms.svg")), "aside: picture: arms.svg"),
        ({"as_csv": True}, ("csv", "rows"), "aside: picture: arms.svg"),
    ],
    ids=["a person", "JSON", "CSV"],
)
def test_a_picture_is_drawn_and_told_where_no_program_reads(
    read: Any, asked: dict[str, bool], answer: Any, told: str
) -> None:
    found = read()
    history(["a.json"], picture="arms.svg", **asked)
    assert found.printed == ["drawn arms.svg", answer, told]


def test_mistakes_are_told_before_anything_is_read(read: Any) -> None:
    found = read()
    with pytest.raises(ConfigError, match="--json and --csv are different answers"):
        history(["a.json"], as_json=True, as_csv=True)
    with pytest.raises(ConfigError, match=r"arms\.jpeg"):
        history(["a.json"], picture=str(Path("arms.jpeg")))
    assert found.followed == ()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def small(command) -> SweepFolder:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    return simulated(command(design, measure={"rounds": 4}), cost)[0]


@pytest.mark.parametrize(("left", "status"), [(4, DONE), (3, SOME_FAILED)])
def test_the_status_of_a_sweep_is_as_the_page_says(
    left: int, status: int, small: SweepFolder, run: Run
) -> None:
    for record in list(small.path.glob("trials/*/p000-r003-a0/record.json"))[: 4 - left]:
        record.write_text("{")
    plain, _, _ = run("status", str(small.path))
    ended, said, errors = run("status", str(small.path), "--json")
    found = json.loads(said)
    assert (plain, ended, found["exit"], errors) == (status, status, status, "")
    assert differences("status --json", said) == []
    (pack,) = found["packs"]
    assert (pack["rounds"], pack["rounds_planned"], pack["arms"], pack["job"]) == (left, 4, 2, None)
    assert len(found["skipped"]) == 4 - left


@pytest.mark.slow
def test_a_comparison_with_everything_is_as_the_page_says(tmp_path: Path, run: Run) -> None:
    folder = str(with_everything(tmp_path)[0].path)
    plain, shown, _ = run("compare", folder)
    status, said, errors = run("compare", folder, "--json")
    found = json.loads(said)
    assert differences("compare --json", said) == []
    assert plain == status == found["exit"]
    assert found["sweep"] in shown and f"report: {found['report']}" in errors
    outcomes = {one["outcome"] for one in found["effects"]}
    assert {"", "oom"} <= outcomes and found["failures"][0]["outcome"] == "oom"
    ended, rows, _ = run("compare", folder, "--csv")
    written = table(rows)
    assert ended == plain and len(written) == len(found["effects"])
    assert list(written[0]) == ["schema", *described("compare --json")["effects[]"]]
    assert "nan" not in rows.lower().replace("baseline", "") and "inf" not in rows.lower()


@pytest.mark.slow
def test_what_became_slower_is_in_the_object_and_in_the_status(
    small: SweepFolder, tmp_path: Path, run: Run
) -> None:
    kept = str(tmp_path / "kept.json")
    status, said, errors = run("compare", str(small.path), "--store", kept, "--json")
    assert status == DONE and json.loads(said)["baseline"] == kept and f"baseline: {kept}" in errors
    for record in small.path.glob("trials/*/p000-r*/record.json"):
        change(record, region_ns=2 * json.loads(record.read_text())["region_ns"])
    words = ("compare", str(small.path), "--against", kept)
    # The machine wanders by 30 % from round to round: only twice the time ten times over would be certain.
    plain, _, _ = run(*words)
    status, said, _ = run(*words, "--json")
    (against,) = json.loads(said)["against"]
    assert differences("compare --json", said) == [] and plain == status
    assert status == (SOME_FAILED if against["slower"] else DONE)
    assert [one["ratio"] for one in against["changes"]] == pytest.approx([2.0, 2.0])
    _, rows, _ = run(*words, "--csv")
    assert [(one["schema"], one["then"]) for one in table(rows)] == [
        ("perfsweep.compare.against.csv/1", "spinner-toy")
    ] * 2
    assert list(table(rows)[0]) == list(described("compare --against --csv")[""])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--json", "--csv"), "--json and --csv are different answers"),
        (("--json", "--explain", "1"), "--json and --explain are different answers"),
        (("--json", "--against", "nowhere.json"), "nowhere.json: No such file or directory"),
    ],
)
def test_a_mistake_leaves_stdout_empty(
    words: tuple[str, ...], sentence: str, small: SweepFolder, run: Run
) -> None:
    status, said, errors = run("compare", str(small.path), *words)
    assert (status, said) == (MISTAKE, "")
    assert sentence in errors and errors.count("\n") == 1
