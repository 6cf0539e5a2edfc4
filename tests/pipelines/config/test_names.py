"""Names that a configuration may choose from, read from folders and files alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perfsweep.pipelines.config import names
from perfsweep.workloads import registry
from perfsweep.workloads.errors import ConfigError

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


def test_what_a_workload_needs_is_what_its_file_leaves_open() -> None:
    assert names.needed("script") == {"path"}
    assert names.needed("digits") == names.needed("nobody") == set()


@pytest.mark.parametrize(
    ("workload", "purpose"),
    [
        ("digits", "train a small classifier on scikit-learn's digits"),
        ("mine:Own", "rank my pages"),
        ("alone:Own", "Sort a list."),
        ("alone:Nobody", ""),
        ("nowhere:Own", ""),
        ("script:train.yaml", ""),
    ],
)
def test_a_purpose_is_a_comment_or_the_first_line_of_a_docstring(
    folder: Path, workload: str, purpose: str
) -> None:
    assert names.purpose(workload) == purpose


@pytest.mark.parametrize(
    ("overrides", "workload"),
    [
        ([], "digits"),
        (["name=x"], "digits"),
        (["workload=a", "workload=b"], "b"),
        (["workload.x=1"], "digits"),
    ],
)
def test_of_several_workloads_the_last_is_meant(overrides: list[str], workload: str) -> None:
    assert names.workload_of(overrides) == workload


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("digits", True),
        ("latentwire_full", True),
        ("my.module:Own", True),
        ("script:a/b.yaml", True),
        ("digitz", False),
        ("runs/x", False),
        ("a:b:c", False),
        ("a b:c", False),
    ],
)
def test_a_word_names_a_workload(word: str, is_one: bool) -> None:
    assert names.is_workload(word) is is_one


def test_a_workload_is_named_by_what_was_typed_or_by_the_folder(folder: Path) -> None:
    assert not names.names_workload("sweep", ["name=x", "workload.width=3"])
    assert names.names_workload("sweep", ["workload=digits"])
    (folder / "perfsweep.yaml").write_text("overrides: [workload=probe1d]")
    assert names.names_workload("sweep", [])


def test_sweeps_of_a_workloads_own_come_first_and_each_once(folder: Path) -> None:
    own, every = names.sweeps("mine:Own"), names.sweeps("digits")
    assert own[0] == "quick" and "demo" not in own
    assert every[0] == "demo" and {"ablation", "placebo"} <= set(every)
    assert len(every) == len(set(every))
    assert names.choices("sweep", "mine:Own") == own
    assert names.choices("measure", "digits") == ["default", "precise", "quick"]
    assert names.choices("workload", "digits").count("digits") == 1


def test_configurations_of_the_folder_are_choices_too(folder: Path) -> None:
    for name in ("site.yaml", "notes.txt"):
        (folder / "configs/cluster").mkdir(parents=True, exist_ok=True)
        (folder / "configs/cluster" / name).touch()
    (folder / "perfsweep.yaml").write_text("conf: configs\n")
    assert "site" in names.choices("cluster", "digits") and "notes" not in names.choices("cluster", "digits")
    names.refuse_unknown("sweep", ["cluster=site"])


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["workload=probe1d", "sweep=chain"],
        ["sweep=probe1d/chain"],
        ["measure=quick"],
        ["measure=[quick,precise]"],
        ["name=whatever"],
        ["workload=mine:Own", "sweep=quick"],
    ],
    ids=str,
)
def test_names_that_exist_are_fine(folder: Path, overrides: list[str]) -> None:
    assert names.refuse_unknown("sweep", overrides) is None


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["measure=quik"], r"measure=quik is unknown; did you mean quick\? choose from: default, precise"),
        (
            ["workload=probe1d", "sweep=probe1d/chian"],
            r"sweep=probe1d/chian is unknown; did you mean chain\?",
        ),
        (["sweep=chain"], "sweep=chain is unknown; "),
        (["workload=mine"], r"workload=mine is unknown; did you mean mine:Own\? it lies in this folder"),
        (["workload=digitz"], r"workload=digitz is unknown; did you mean digits\?"),
    ],
    ids=str,
)
def test_names_that_do_not_exist_are_refused_with_those_that_do(
    folder: Path, overrides: list[str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        names.refuse_unknown("sweep", overrides)


def test_a_command_without_workloads_looks_for_none(folder: Path) -> None:
    names.refuse_unknown("doctor", ["workload=digitz"])
    with pytest.raises(ConfigError, match="workload=digitz is unknown"):
        names.refuse_unknown("run", ["workload=digitz"])
