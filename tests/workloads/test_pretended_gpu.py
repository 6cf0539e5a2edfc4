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
BACKEND = TESTS / "support" / "pretend_cuda" / "backend.cpp"

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


def test_code_for_cuda_runs_on_a_pretended_gpu(library: Path) -> None:
    paths = [str(TESTS.parent), str(TESTS / "support"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PRETEND_CUDA_LIBRARY": str(library)}
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
