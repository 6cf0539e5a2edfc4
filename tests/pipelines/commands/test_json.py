"""`compare` and `status` for programs: one object on stdout, as docs/json.md has it, and the plain status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from measured import change, cost, simulated, with_everything
from object_page import described, differences, table

from perfsweep.pipelines.cli import main
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.exits import DONE, MISTAKE, SOME_FAILED
from perfsweep.pipelines.store.records import SweepFolder

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
