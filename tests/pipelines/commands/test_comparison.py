"""Which answer perfsweep compare and history give, to people and to programs, and with which status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from measured import change, cost, simulated, with_everything
from object_page import described, differences, table
from typed import ended

from perfsweep.pipelines.commands import comparison as module
from perfsweep.pipelines.commands import sweep
from perfsweep.pipelines.commands.comparison import compare
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.exits import DONE, MISTAKE, SOME_FAILED
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.errors import ConfigError


def test_others_are_named_after_against() -> None:
    with pytest.raises(ConfigError, match="runs/b: write --against before the sweeps to compare with"):
        compare("runs/a", ["runs/b"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"figure": "a.jpeg"}, "^--figure a.jpeg: "),
        ({"latex": "a.pdf"}, "^--latex a.pdf: "),
        ({"page": "a.png"}, "^--page a.png: "),
        ({"latex": "a.tex", "explain": "1"}, "^--explain and --latex are different answers"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is_read(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compare("nowhere", **options)


@pytest.mark.parametrize(
    ("paths", "baselines", "paired"),
    [
        (["a.json", "b"], ["a.json", "baseline of b"], False),
        (["commits"], ["c1", "c2"], True),
        (["b", "commits"], ["baseline of b", "c1", "c2"], False),
    ],
)
def test_versions_are_those_of_each_folder_in_their_order(
    paths: list, baselines: list, paired: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b", "commits"):
        Path(name).mkdir()

    def opened(path: str) -> Any:
        about = {"manifest": path, "trials": None, "progress": SimpleNamespace(every=())}
        return SimpleNamespace(baseline=f"baseline of {path}", **about)

    commits = SimpleNamespace(baselines=["c1", "c2"])
    monkeypatch.setattr(module.baselines, "load", str)
    monkeypatch.setattr(module.api, "open_sweep", opened)
    monkeypatch.setattr(module, "declared_by", lambda *given: SimpleNamespace(unit="rows"))
    monkeypatch.setattr(module, "commit_versions", lambda path, *rest: commits if path == "commits" else None)
    monkeypatch.setattr(module, "follow", lambda *given: given)
    assert module._followed(paths, ["amp=on"], 0.2) == (
        *(baselines, ["amp=on"], 0.2),
        commits if paired else None,
    )


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> tuple[int, str, str]:
        return ended(*words), *capsys.readouterr()

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


def test_an_answer_is_tables_or_rows_or_one_derivation_and_files_are_told_after_it(
    small: SweepFolder, tmp_path: Path, run: Run
) -> None:
    folder, kept, tables = str(small.path), str(tmp_path / "then.json"), str(tmp_path / "effects.tex")
    status, said, errors = run(
        "compare", folder, "--store", kept, "--latex", tables, "--columns", "p50, ,energy"
    )
    assert (status, errors) == (DONE, "") and "work=single" in said
    assert said.splitlines()[-2:] == [f"baseline: {kept}", f"LaTeX: {tables}"]
    assert "tabular" in Path(tables).read_text()
    status, said, errors = run("compare", folder, "--csv", "--latex", tables)
    assert [one["toggle"] for one in table(said)] == ["work"], "programs read stdout"
    assert (status, f"LaTeX: {tables}" in errors) == (DONE, True)
    status, said, _ = run("compare", folder, "--explain", "work=single")
    assert status == DONE and "work=single" in said and "report: " not in said


def test_reports_are_written_before_tables_which_a_reader_may_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(*_: object) -> None:
        raise BrokenPipeError

    folder = with_everything(tmp_path, iterations=0)[0]
    monkeypatch.setattr(sweep.terminal_table, "show", left)
    with pytest.raises(BrokenPipeError):
        compare(str(folder.path))
    assert folder.report_file.exists() and folder.markdown_file.exists()


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
