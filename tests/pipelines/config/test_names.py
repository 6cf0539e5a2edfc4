"""Names that a configuration may choose from, read from folders and files alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfsweep.pipelines.config import names
from perfsweep.workloads import registry

OWN = '"""Module."""\nclass Own:\n    """Sort a list.\n\n    More.\n    """\n    def step(self, clock): ...\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # before the folders that other tests have left there
    for module in ("mine", "alone", "half"):  # as another test may have imported them
        monkeypatch.delitem(sys.modules, module, raising=False)
    files = {
        "mine.py": OWN + "class Other:\n    def act(self): ...\nclass Built:\n    def build(self): ...\n",
        "mine.yaml": "# rank my pages\nsweeps:\n  quick: {toggles: [amp]}\n",
        "alone.py": OWN,
        "half.py": "class Half(\n",
        "half.yaml": "",
        "train.yaml": "path: train.py  # the script\nbatch: 3\n",
        "words.yaml": "width: 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_workloads_here_lie_beside_a_yaml_or_in_one_that_gives_what_is_needed(folder: Path) -> None:
    assert names.workloads_here() == ["mine:Own", "mine:Built", "script:train.yaml"]
    assert names.workloads() == [*registry.names(), *names.workloads_here()]


@pytest.mark.parametrize(
    ("workload", "purpose"),
    [
        ("digits", "train a small classifier on scikit-learn's digits"),
        ("mine:Own", "rank my pages"),
        ("alone:Own", "Sort a list."),
        ("script:train.yaml", ""),
    ],
)
def test_a_purpose_is_a_comment_or_the_first_line_of_a_docstring(
    folder: Path, workload: str, purpose: str
) -> None:
    assert names.purpose(workload) == purpose
