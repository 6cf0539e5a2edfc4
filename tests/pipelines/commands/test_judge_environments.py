"""`perfsweep judge --environment`: environments that have torch, numpy and nothing else of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from environments import answering, bare

from perfsweep.pipelines.cli import main
from perfsweep.pipelines.exits import MISTAKE, SOME_FAILED

TRAIN = """
import torch
import pace
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(step))
    loss = (model(x).squeeze() - x.sum(1)).pow(2).mean() * pace.SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

SMALL = (
    "workload=script",
    "workload.path=train.py",
    *("measure.iterations=10", "measure.warmup_max=10", "measure.evidence_iterations=4"),
    *("measure.budget_s=1", "measure.servers=1", "measure.repeats=0", "measure.timed_parity=false"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def judge(folder: Path, capsys: pytest.CaptureFixture[str]):
    def judge(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["judge", "--environment", *words, "--", *SMALL, f"runs={folder / 'runs'}"])
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return judge


@pytest.mark.slow
def test_a_library_that_changes_results_is_caught_and_both_environments_are_named(
    folder: Path, judge
) -> None:
    bare(folder / "env-a", pace=("1.0", "SCALE = 1.0"))
    bare(folder / "env-b", pace=("2.0", "SCALE = 1.001"))
    status, said, heard = judge("env-a", "env-b", "--json")
    found = json.loads(said)
    assert found["compares"] == "environment" and found["head"] == {"name": "env-b", "commit": None}
    assert (status, found["verdict"], found["results"]) == (SOME_FAILED, "different results", "different")
    assert found["rounds"] >= 6
    report = (Path(found["sweep"]) / "report.md").read_text()
    for text in (heard, report):
        assert "environment=env-a: Python" in text and "environment=env-b: Python" in text
        assert "packages that differ between environments: pace 1.0 / 2.0" in text


@pytest.mark.slow
def test_a_torch_that_cannot_be_imported_is_named_with_its_reason(folder: Path, judge) -> None:
    bare(folder / "env-a")
    (torch,) = bare(folder / "broken").glob("lib/python*/site-packages/torch")
    torch.unlink()
    torch.mkdir()
    (torch / "version.py").write_text("__version__, cuda = '2.14.1', None")
    (torch / "__init__.py").write_text("raise OSError('libgomp.so.1: cannot open shared object file')")
    status, said, heard = judge("env-a", "broken")
    assert (status, said) == (MISTAKE, "")
    assert "environment=broken: torch cannot be imported: OSError: libgomp.so.1: cannot open" in heard
    assert heard.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("env-a",), "judge --environment compares two: name both, such as perfsweep judge --environment"),
        (("env-a", "env-a"), "env-a is named twice"),
        (("env-a", "nowhere"), "axes.environment: env-a has Python 3.10.1, and what measures needs 3.11"),
        (("nowhere", "env-a"), "axes.environment: nowhere does not exist; name an interpreter"),
    ],
)
def test_a_mistake_is_one_sentence(folder: Path, judge, words: tuple[str, ...], sentence: str) -> None:
    answering(folder / "env-a/bin/python", version=[3, 10, 1], prefix="/", missing=[])
    status, said, complaint = judge(*words)
    assert (status, said) == (MISTAKE, "")
    assert sentence in complaint and complaint.count("\n") == 1
