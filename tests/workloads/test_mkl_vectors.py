"""The toggle `mkl_vectors`, which any workload has in sweeps that name it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from perfsweep.workloads import native
from perfsweep.workloads.api import Device, Workload
from perfsweep.workloads.preloads import INTEL, MKL_VECTORS, mkl_asked

ALL = MKL_VECTORS.level("all")
AMD = Device(vendor="AuthenticAMD", compiler=True)

ASKS = """
import ctypes
from perfsweep.workloads.preloads import mkl_asked
print(mkl_asked(), ctypes.CDLL(None).mkl_serv_intel_cpu_true(), mkl_asked())
"""
"""What MKL does, in the place of MKL: of a processor of Intel's it would get the same answer anyway."""


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (AMD, None),
        (dataclasses.replace(AMD, vendor=INTEL), "MKL takes the widest vectors of this processor by itself"),
        (dataclasses.replace(AMD, vendor=""), "PyTorch multiplies without MKL on this processor"),
        (dataclasses.replace(AMD, compiler=False), "needs a C++ compiler, and none is on PATH"),
        (dataclasses.replace(AMD, type="cuda"), "MKL multiplies on CPUs, and this is cuda"),
    ],
)
def test_all_vectors_are_a_choice_only_where_the_maker_decides(device: Device, reason: str | None) -> None:
    assert ALL.unsupported(device) == reason
    assert MKL_VECTORS.levels[0].unsupported(device) is None


def test_any_workload_has_it_where_a_sweep_names_it() -> None:
    assert MKL_VECTORS in Workload.on_request
    assert ALL.witness == mkl_asked.__name__
    assert mkl_asked() == 0


@pytest.mark.slow
def test_a_process_that_starts_with_its_variables_answers_for_the_maker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.CACHE_VARIABLE, str(tmp_path))
    env = {name: native.filled(name, text) for name, text in ALL.env.items()}
    assert Path(env["LD_PRELOAD"]).parent == tmp_path
    done = subprocess.run([sys.executable, "-c", ASKS], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0.0", "1", "1.0"] and not done.stderr


def test_where_nothing_can_be_built_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert native.filled("LD_PRELOAD", ALL.env["LD_PRELOAD"]) == ""
    assert native.filled("OTHER", "as it is") == "as it is"
