"""Facts of a GPU that keep it from being measured on are failed, one sentence each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfsweep.pipelines.gpu_check import facts
from perfsweep.pipelines.gpu_check.answer import Here, Line, Verdict
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.machine.installed import TorchBuild
from perfsweep.workloads.api import Device

H100 = Gpu(
    *("NVIDIA H100 80GB HBM3", "GPU-1a", 80 * 2**30, (9, 0)),
    sm_clock_max_mhz=1980,
    power_limit_w=700.0,
    ecc=True,
    persistence=True,
    compute_mode="shared",
)
WHEEL = TorchBuild("2.13.0+cu128", "12.8")
ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "compute_120"]


def good(line: Line) -> bool:
    return line.verdict is Verdict.PASS


def test_a_gpu_of_our_own_passes() -> None:
    assert good(facts.settings_line([H100]))
    assert "power limit 700 W" in facts.settings_line([H100]).text
    assert good(facts.neighbours_line([H100]))
    assert good(facts.order_line(["GPU-1a", "GPU-2b"], ["1a", "2b"]))
    assert good(facts.driver_line(WHEEL, "535.161.08", (12, 2)))


@pytest.mark.parametrize("mode", ["prohibited", "one process"])
def test_a_mode_that_keeps_processes_out_fails(mode: str) -> None:
    line = facts.settings_line([H100, replace(H100, compute_mode=mode)])
    assert not good(line)
    assert "nvidia-smi -c 0" in line.text


def test_somebody_else_on_our_gpu_fails() -> None:
    assert not good(facts.neighbours_line([H100, replace(H100, foreign=1)]))


def test_another_order_fails_and_names_the_remedy() -> None:
    line = facts.order_line(["GPU-1a", "GPU-2b"], ["2b", "1a"])
    assert not good(line)
    assert "CUDA_VISIBLE_DEVICES=GPU-" in line.text


def test_a_server_of_mps_is_named_and_no_fault() -> None:
    line = facts.settings_line([H100, replace(H100, mps=True)])
    assert good(line) and "shared by MPS" in line.text
    assert "MPS" not in facts.settings_line([H100]).text


def test_a_driver_older_than_the_wheel_fails_with_what_to_do() -> None:
    line = facts.driver_line(WHEEL, "470.223.02", (11, 4))
    assert not good(line)
    assert line.text == (
        "NVIDIA driver 470.223.02 knows CUDA 11.4, and torch 2.13.0+cu128 was built with CUDA 12.8: have the"
        " driver updated (driver 525.60.13 or newer), or install a torch built with CUDA 11"
    )


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (9, 0), (10, 0), (12, 0), (12, 1)])
def test_a_gpu_that_the_wheel_has_code_for_passes(capability: tuple[int, int]) -> None:
    assert good(facts.architecture_line(capability, ARCHITECTURES))


@pytest.mark.parametrize("capability", [(7, 0), (11, 0)])
def test_a_gpu_that_the_wheel_was_not_compiled_for_fails(capability: tuple[int, int]) -> None:
    line = facts.architecture_line(capability, ARCHITECTURES)
    assert not good(line)
    assert f"install one that has sm_{capability[0]}{capability[1]}" in line.text


def test_without_a_gpu_the_software_is_told_and_the_rest_needs_one(tmp_path: Path) -> None:
    first, *rest = facts.examine(Here(Device(), tmp_path))
    assert good(first) and first.text.startswith("torch ")
    assert [(line.name, line.verdict) for line in rest] == [(name, Verdict.NEEDS_GPU) for name in facts.NAMES]
