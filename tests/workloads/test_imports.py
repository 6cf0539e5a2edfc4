"""What a workload's code consists of: an edit to any file it imports voids what was measured before."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from workload_text import own_workload

from perfsweep.workloads import registry
from perfsweep.workloads.imports import folder_of, followed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def names_of(target: str) -> set[str]:
    return {path.name for path in registry.sources(registry.find(target))}


def test_a_lone_module_owns_the_neighbours_it_imports_and_no_others(folder: Path) -> None:
    (folder / "lone_layers.py").write_text("import lone_deeper\nx = 1\n")
    (folder / "lone_deeper.py").write_text("y = 1\n")
    (folder / "lone_stranger.py").write_text("")
    (folder / "lone.py").write_text(own_workload("import lone_layers"))
    names = names_of("lone:Own")
    assert {"lone.py", "lone_layers.py", "lone_deeper.py", "api.py", "toggles.py"} <= names
    assert "lone_stranger.py" not in names


def test_workloads_with_kernels_own_the_headers_that_kernels_share() -> None:
    assert {"native.cpp", "trunk.cpp", "tiles.h", "exponential.h"} <= names_of("prover")
    assert not {name for name in names_of("digits") if name.endswith(".h")}


@pytest.mark.parametrize(
    "line",
    [
        "from ..parts import layers",
        "from parted.parts import layers",
        "from parted.parts import (\n    layers,\n)",
    ],
)
def test_relative_absolute_and_wrapped_imports_of_a_package_are_followed(folder: Path, line: str) -> None:
    for name in ("parted", "parted/own", "parted/parts"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    (folder / "parted/parts/layers.py").write_text("x = 1\n")
    (folder / "parted/own/work.py").write_text(own_workload(line))
    importlib.invalidate_caches()
    try:
        assert "layers.py" in names_of("parted.own.work:Own")
    finally:
        for name in [name for name in sys.modules if name.startswith("parted")]:
            del sys.modules[name]


def test_what_is_installed_elsewhere_is_not_followed(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("import torch\nimport os.path\nfrom numpy import linalg\n")
    assert followed([file], {}, tmp_path) == [file.resolve()]


def test_what_pip_has_put_into_a_folder_of_ones_own_is_installed(folder: Path) -> None:
    for name in ("packed", "packed_module.py", "worked_on.py"):
        (folder / name).write_text("") if name.endswith(".py") else (folder / name).mkdir()
    (folder / "packed/__init__.py").write_text("")
    record = folder / "packed-1.0.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("packed/__init__.py,sha256=,0\npacked_module.py,sha256=,0\n")
    importlib.invalidate_caches()
    assert folder_of("packed") is None and folder_of("packed_module") is None
    assert folder_of("worked_on") == folder.resolve()


def test_what_somebody_works_on_is_neither_installed_nor_pythons_nor_ours(folder: Path) -> None:
    (folder / "own_folder").mkdir()
    (folder / "own_folder/__init__.py").write_text("")
    (folder / "own_module.py").write_text("")
    importlib.invalidate_caches()
    assert folder_of("own_folder") == folder_of("own_module") == folder.resolve()
    for name in ("json", "torch", "perfsweep", "nowhere_at_all"):
        assert folder_of(name) is None, name


def test_two_modules_that_import_each_other_end(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.py").write_text(f"import {other}\n")
    assert [path.name for path in followed([tmp_path / "a.py"], {}, tmp_path)] == ["a.py", "b.py"]


@pytest.mark.slow
def test_importing_workloads_runs_no_torch_operator_and_starts_no_thread() -> None:
    # A fork server imports workloads and must stay free of threads and device state.
    modules = ", ".join(f"perfsweep.workloads.{name}.workload" for name in registry.BUILT_IN)
    code = f"""
import threading
import torch
from torch.utils._python_dispatch import TorchDispatchMode
class Refuse(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(func)
with Refuse():
    import {modules}
assert threading.active_count() == 1
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
