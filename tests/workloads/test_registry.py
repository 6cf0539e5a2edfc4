"""Workloads by name: what is found, what decides on its results, and what a wrong name is told."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from workload_text import own_workload

from perfsweep.workloads import registry
from perfsweep.workloads.digits.workload import Digits
from perfsweep.workloads.errors import ConfigError, ContractError
from perfsweep.workloads.registry import digest, find, from_outside, import_root, module_of, origin, sources

ROOT = Path(__file__).parents[2]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Write modules into the folder that one works in; they are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def written(name: str, text: str) -> Path:
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    yield written
    for name in set(sys.modules) - before:
        if name.startswith("rgm_"):
            del sys.modules[name]


def test_a_workload_of_ones_own_is_identified_by_its_files_and_where_it_stands(write, tmp_path) -> None:
    helper, unused = write("rgm_helper", "X = 1"), write("rgm_unused", "Y = 1")
    file = write("rgm_mine", own_workload("from rgm_helper import *"))
    cls = find("rgm_mine:Own")
    assert set(from_outside(cls)) == {file, helper} and unused not in sources(cls)
    assert Path(registry.api.__file__) in sources(cls) and Path(registry.toggles.__file__) in sources(cls)
    assert import_root(cls) == tmp_path and origin(cls) == f"{file}:Own"


def test_the_modules_of_a_package_belong_together(write, tmp_path) -> None:
    init, beside = write("rgm_package/__init__", ""), write("rgm_package/beside", "")
    kernel = tmp_path / "rgm_package" / "fast.cpp"
    kernel.write_text("")
    (tmp_path / "rgm_package" / "notes.txt").write_text("")
    file = write("rgm_package/mine", own_workload())
    cls = find("rgm_package.mine:Own")
    assert set(from_outside(cls)) == {init, beside, kernel, file}
    assert {path.name for path in sources(cls) if path.suffix == ".h"} >= {"lanes.h"}
    assert import_root(cls) == tmp_path


def test_ours_are_identified_by_module_wherever_they_are_installed() -> None:
    assert find("digits") is Digits and module_of("digits") == "perfsweep.workloads.digits.workload"
    assert origin(Digits) == "perfsweep.workloads.digits.workload:Digits"
    assert import_root(Digits) is None and from_outside(Digits) == []
    own = {path.name for path in sources(Digits) if path.parent.name == "digits"}
    modules = ("__init__", "config", "data", "declaration", "workload")
    assert own == {f"{name}.py" for name in modules}


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_what_a_workload_declares_apart_has_the_identity_of_what_runs(name: str) -> None:
    apart, runs = registry.declared(name), find(name)
    assert issubclass(runs, apart) and origin(apart) == origin(runs)
    assert set(sources(apart)) == set(sources(runs))
    shared = ("Config", "toggles", "on_request", "claims", "checks", "shape", "unit", "paths")
    assert all(getattr(apart, one) == getattr(runs, one) for one in shared)


def test_a_digest_is_of_names_and_contents_wherever_files_lie(tmp_path: Path) -> None:
    files = {}
    for name, text in {
        "a/x.py": "1",
        "a/y.py": "2",
        "b/x.py": "1",
        "b/y.py": "2",
        "c/x.py": "2",
        "c/z.py": "1",
    }.items():
        files[name] = tmp_path / name
        files[name].parent.mkdir(exist_ok=True)
        files[name].write_text(text)
    found = digest([files["a/x.py"], files["a/y.py"]])
    assert found == digest([files["b/y.py"], files["b/x.py"], files["a/x.py"]]) and len(found) == 64
    assert len({found, digest([files["c/x.py"]]), digest([files["a/x.py"]]), digest([files["c/z.py"]])}) == 4


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("dgits", "", ConfigError, r"=dgits is unknown; did you mean digits\? choose from: command, digits"),
        ("rgm_mine:Owm", None, ConfigError, "has no Owm; did you mean Own.? its workloads are: "),
        (
            "rgm_mine:X",
            "X = 1",
            ContractError,
            "rgm_mine:X is no subclass of perfsweep.workloads.api.Workload",
        ),
        ("rgm_mine:X", "", ConfigError, "module rgm_mine has no X; its workloads are: none$"),
        (
            "rgm_mine:X",
            "1 / 0",
            ConfigError,
            r"rgm_mine fails when imported: ZeroDivisionError: division by zero \(.*rgm_mine\.py:1: 1 / 0\)",
        ),
        (
            "rgm_mine:X",
            "import rgm_gone.inner",
            ConfigError,
            "needs the package rgm_gone, which is not installed: pip install rgm_gone",
        ),
        (
            "rgm_none.inner:X",
            "",
            ConfigError,
            r"module rgm_none.inner cannot be imported \(No module named 'rgm_none'\); run in the folder",
        ),
        (
            "rgm_mine:X",
            "from os import gone",
            ConfigError,
            r"cannot be imported: ImportError: cannot import name 'gone' .*\(.*rgm_mine\.py:1: from os",
        ),
        (
            "rgm_mine:X",
            "def f(:",
            ConfigError,
            r"fails when imported: SyntaxError: .*rgm_mine\.py, line 1\)$",
        ),
    ],
)
def test_a_name_that_leads_to_no_workload_is_told_why(
    write, name: str, text: str | None, error: type[Exception], said: str
) -> None:
    write("rgm_mine", own_workload() if text is None else text)
    with pytest.raises(error, match=said):
        find(name)


def test_a_folder_with_the_name_of_perfsweep_is_told_apart(write, tmp_path: Path) -> None:
    write("perfsweep/mine", own_workload())
    said = f"{tmp_path / 'perfsweep'} has the name of perfsweep, which is imported in its place; rename"
    with pytest.raises(ConfigError, match=re.escape(said)):
        find("perfsweep.mine:Own")


@pytest.mark.parametrize("name", ["conf", "workloads"])
def test_who_imports_as_version_0_1_had_it_is_told_the_new_name(
    write, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a checkout has folders of these names
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(ROOT))])
    write("rgm_old", f"from {name}.api import Workload")
    with pytest.raises(ConfigError, match=rf"imports {name}: since version 0.2 that is perfsweep\.{name}"):
        find("rgm_old:X")
