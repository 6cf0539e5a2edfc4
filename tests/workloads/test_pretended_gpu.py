"""Code for CUDA devices runs on a GPU that is only pretended, and its values are checked.

What a driver, a kernel or a second stream does is not: see `tests/support/pretend_cuda`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SUPPORT = TESTS / "support"
BACKEND = SUPPORT / "pretend_cuda" / "backend.cpp"
ONLY_FACTS = "[[f._doctor('facts', '0', 300, kept)]]; sys.exit(f.main([sys.argv[1], 'right']))"

pytestmark = [
    pytest.mark.workloads,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torch's CPU build lacks, compiled."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    torch, file = Path(spec.origin).parent, tmp_path_factory.mktemp("pretended") / "backend.so"
    libraries = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch / 'lib'}"]
    flags = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch / 'include'}"]
    subprocess.run(["g++", *flags, str(BACKEND), "-o", str(file), *libraries], check=True)
    return file


def with_gpu(library: Path, *paths: Path) -> dict[str, str]:
    """Variables of a process that has the GPU."""
    every = [*map(str, paths), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(every), "PRETEND_CUDA_LIBRARY": str(library)}


def test_code_for_cuda_runs_on_a_pretended_gpu(library: Path) -> None:
    environment = with_gpu(library, TESTS.parent, SUPPORT)
    options = ["-n0", "-p", "pretend_cuda", "-p", "no:cacheprovider", "-rA", "--assert=plain", "--tb=native"]
    files = sorted((TESTS / "pretended").glob("check_*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, files)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert "SKIPPED" not in done.stdout
    for file in files:
        assert f"PASSED {file.relative_to(TESTS.parent)}::" in done.stdout


@pytest.mark.slow
def test_the_first_minutes_find_all_right_on_a_node_whose_every_process_has_that_gpu(
    library: Path, tmp_path: Path
) -> None:
    """Only parts that ask what such a GPU can tell; its clocks and kernels are the host's."""
    asked = ("-c", "import sys, first_minutes as f; f.HALVES['right'] = lambda kept: " + ONLY_FACTS, "OUT")
    environment = with_gpu(library, SUPPORT / "pretend_node", SUPPORT, TESTS / "gpu_day")
    done = subprocess.run(
        [sys.executable, *asked],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NVIDIA H100 80GB HBM3: 6 passed" in done.stdout and "ended badly: none" in done.stdout
    assert (tmp_path / "OUT" / "kept.tar.gz").is_file()
