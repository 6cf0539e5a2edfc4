"""Facts of a GPU that keep it from being measured on are failed, one sentence each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfsweep.pipelines.gpu_check.answer import Here, Line, Verdict
from perfsweep.pipelines.gpu_check.device_stages import (
    NAMES,
    architecture_line,
    driver_line,
    examine_facts,
    neighbours_line,
    order_line,
    settings_line,
)
from perfsweep.pipelines.trial.machine.gpus import Gpu, TorchBuild
from perfsweep.workloads.api import Device

GPU = Gpu(
    *("NVIDIA H100 80GB HBM3", "GPU-1a", 80 * 2**30, (9, 0)),
    sm_clock_max_mhz=1980,
    power_limit_w=700.0,
    ecc=True,
    persistence=False,
    compute_mode="shared",
)


WHEEL = TorchBuild("2.13.0+cu128", "12.8")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (driver_line(WHEEL, "570.1", (12, 8)), "driver 570.1 knows CUDA 12.8, and torch was built with 12.8"),
        (
            settings_line([GPU, GPU]),
            "2 x NVIDIA H100 80GB HBM3, power limit 700 W, SM clock at most 1980 MHz, ECC on, persistence"
            " off, compute mode shared",
        ),
        (
            settings_line([replace(GPU, power_limit_w=None, ecc=None), replace(GPU, mps=True)]),
            "2 x NVIDIA H100 80GB HBM3, power limit unknown, SM clock at most 1980 MHz, ECC unknown,"
            " persistence off, compute mode shared, shared by MPS, whose other clients are not seen",
        ),
        (neighbours_line([GPU, GPU]), "0 processes of others on our GPUs"),
        (order_line(["MIG-1a", "GPU-2b"], ["1a", "2b"]), "NVML and torch number the GPUs alike"),
        (architecture_line((9, 0), ["sm_80", "sm_90a"]), "sm_90; the wheel was compiled for sm_80, sm_90a"),
        (architecture_line((12, 1), ["compute_120"]), "sm_121; the wheel was compiled for compute_120"),
        (architecture_line((8, 9), ["sm_80", "sm_90"]), "sm_89; the wheel was compiled for sm_80, sm_90"),
    ],
)
def test_what_is_as_it_should_be_passes_with_what_was_found(line: Line, text: str) -> None:
    assert (line.verdict, line.text) == (Verdict.PASS, text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            settings_line([GPU, replace(GPU, compute_mode="prohibited")]),
            "the mode 'prohibited' keeps a second arm out; ask for Default (nvidia-smi -c 0)",
        ),
        (
            neighbours_line([replace(GPU, foreign=1), replace(GPU, foreign=2)]),
            "3 processes of others on our GPUs",
        ),
        (order_line(["GPU-1a"], ["1a", "2b"]), "NVML tells of GPU-1a and torch of 1a, 2b"),
        (order_line(["GPU-1a", "GPU-2b"], ["2b", "1a"]), "by their UUIDs (CUDA_VISIBLE_DEVICES=GPU-...)"),
        (architecture_line((9, 0), ["sm_80"]), "install one that has sm_90"),
        (architecture_line((8, 9), ["compute_90", "strange"]), "install one that has sm_89"),
    ],
)
def test_what_keeps_a_gpu_from_being_measured_on_fails(line: Line, text: str) -> None:
    assert line.verdict is Verdict.FAIL and text in line.text


def test_a_driver_older_than_the_wheel_fails_with_what_to_do() -> None:
    line = driver_line(WHEEL, "470.223.02", (11, 4))
    assert line.verdict is Verdict.FAIL
    assert line.text == (
        "NVIDIA driver 470.223.02 knows CUDA 11.4, and torch 2.13.0+cu128 was built with CUDA 12.8: have the"
        " driver updated (driver 525.60.13 or newer), or install a torch built with CUDA 11"
    )


def test_without_a_gpu_the_software_is_told_and_the_rest_needs_one(tmp_path: Path) -> None:
    first, *rest = examine_facts(Here(Device(), tmp_path))
    assert first.verdict is Verdict.PASS and first.text.startswith("torch ")
    assert [(line.name, line.verdict) for line in rest] == [(name, Verdict.NEEDS_GPU) for name in NAMES]
