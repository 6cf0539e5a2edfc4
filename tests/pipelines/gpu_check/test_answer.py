"""The words of a GPU check's lines, where each passes and where it fails, and the file that keeps them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.gpu_check import cases, clock_stage, facts, headlines, stages
from perfsweep.pipelines.gpu_check.answer import (
    FILE,
    VERSION,
    Answer,
    Here,
    Line,
    Verdict,
    judged,
    needs_gpu,
    read,
    write,
)
from perfsweep.pipelines.gpu_check.headlines import headline
from perfsweep.pipelines.gpu_check.stages import Stage
from perfsweep.pipelines.statistics.verdicts import Verdict as Called
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.machine.installed import TorchBuild
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import RecordError
from perfsweep.workloads.peaks import peak

GPU = Gpu(
    *("NVIDIA H100 80GB HBM3", "GPU-1a", 80 * 2**30, (9, 0)),
    sm_clock_max_mhz=1980,
    power_limit_w=700.0,
    ecc=True,
    persistence=False,
    compute_mode="shared",
)


def test_a_line_passes_or_fails_and_what_nobody_can_answer_needs_a_gpu() -> None:
    assert judged("a", True, "fine", rate=2.0) == Line(
        name="a", verdict=Verdict.PASS, text="fine", figures={"rate": 2.0}
    )
    assert judged("a", False, "bad").verdict is Verdict.FAIL
    assert needs_gpu("a", "b", text="two") == [
        Line(name=name, verdict=Verdict.NEEDS_GPU, text="two") for name in "ab"
    ]


def answer(*lines: Line, **changes: Any) -> Answer:
    own = {"device": {"type": "cpu"}, "driver": None, "versions": {}, "started": 1.0, "seconds": 2.0}
    return Answer(**{**own, "lines": lines, **changes})


@pytest.mark.parametrize(
    ("lines", "passed"),
    [
        ([judged("a", True, "")], True),
        ([judged("a", True, ""), *needs_gpu("b")], True),
        ([*needs_gpu("b"), judged("a", False, "")], False),
    ],
)
def test_a_check_has_passed_where_nothing_failed(lines: list[Line], passed: bool) -> None:
    assert answer(*lines).passed is passed


def test_an_answer_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    one = answer(judged("a", True, "fine", rate=float("inf")))
    assert read(write(tmp_path, one)) == one
    assert one.version == VERSION == 1
    assert (tmp_path / FILE).name == "gpu-check.json"
    (tmp_path / FILE).write_text("no JSON")
    with pytest.raises(RecordError, match=r"gpu-check\.json: file: "):
        read(tmp_path / FILE)


@pytest.mark.parametrize(("kind", "on_gpu"), [("cuda", True), ("cpu", False)])
def test_only_a_gpu_can_answer_for_one(kind: str, on_gpu: bool, tmp_path: Path) -> None:
    assert Here(Device(kind), tmp_path).on_gpu is on_gpu  # type: ignore[arg-type]


WHEEL = TorchBuild("2.13.0+cu128", "12.8")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            facts.driver_line(WHEEL, "570.1", (12, 8)),
            "driver 570.1 knows CUDA 12.8, and torch was built with 12.8",
        ),
        (
            facts.settings_line([GPU, GPU]),
            "2 x NVIDIA H100 80GB HBM3, power limit 700 W, SM clock at most 1980 MHz, ECC on, persistence"
            " off, compute mode shared",
        ),
        (
            facts.settings_line([replace(GPU, power_limit_w=None, ecc=None)]),
            "1 x NVIDIA H100 80GB HBM3, power limit unknown, SM clock at most 1980 MHz, ECC unknown,"
            " persistence off, compute mode shared",
        ),
        (facts.neighbours_line([GPU, GPU]), "0 processes of others on our GPUs"),
        (facts.order_line(["MIG-1a", "GPU-2b"], ["1a", "2b"]), "NVML and torch number the GPUs alike"),
        (
            facts.architecture_line((9, 0), ["sm_80", "sm_90a"]),
            "sm_90; the wheel was compiled for sm_80, sm_90a",
        ),
        (
            facts.architecture_line((8, 9), ["sm_80", "sm_90"]),
            "sm_89; the wheel was compiled for sm_80, sm_90",
        ),
    ],
)
def test_what_is_as_it_should_be_passes_with_what_was_found(line: Line, text: str) -> None:
    assert (line.verdict, line.text) == (Verdict.PASS, text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            facts.settings_line([GPU, replace(GPU, compute_mode="prohibited")]),
            "compute mode shared: the mode 'prohibited' keeps a second arm out; ask for Default",
        ),
        (
            facts.neighbours_line([replace(GPU, foreign=1), replace(GPU, foreign=2)]),
            "3 processes of others on our GPUs",
        ),
        (facts.order_line(["GPU-1a"], ["1a", "2b"]), "NVML tells of GPU-1a and torch of 1a, 2b"),
        (facts.architecture_line((8, 0), ["sm_86"]), "sm_80; the wheel was compiled for sm_86: install one"),
        (facts.architecture_line((9, 0), ["sm_80"]), "install one that has sm_90"),
        (facts.architecture_line((8, 9), ["compute_90", "strange"]), "install one that has sm_89"),
    ],
)
def test_what_keeps_a_gpu_from_being_measured_on_fails(line: Line, text: str) -> None:
    assert line.verdict is Verdict.FAIL and text in line.text


def test_figures_of_a_gpu_are_kept_beside_the_words() -> None:
    assert facts.settings_line([GPU, GPU]).figures == {"gpus": 2.0, "power_limit_w": 700.0}
    assert facts.settings_line([replace(GPU, power_limit_w=None)]).figures["power_limit_w"] == 0.0
    assert facts.neighbours_line([replace(GPU, foreign=2)]).figures == {"foreign": 2.0}


NAME = "NVIDIA H100 80GB HBM3"


def rated(share: float = 0.7, **changes: float) -> dict[str, Line]:
    best = peak(NAME)
    assert best is not None and best.bytes_per_s
    found = {kind: share * (best.flops_per_s(kind) or 0.0) for kind in clock_stage.PRODUCTS}
    found |= {"device": share * best.bytes_per_s, "pinned": 5e10, "pageable": 1e10, **changes}
    return {line.name: line for line in clock_stage.rate_lines(NAME, found)}


@pytest.mark.parametrize(
    ("share", "good", "why"),
    [
        (0.25, True, "25% of the peak"),
        (0.24, False, "24% of the peak: is the GPU shared, split or held down?"),
        (1.029, True, "103% of the peak"),
        (1.04, False, "104% of the peak: more than it can, so the clock or the table of peaks is wrong"),
    ],
)
def test_rates_are_held_against_the_peak(share: float, good: bool, why: str) -> None:
    lines = rated(share)
    for words in (*clock_stage.PRODUCTS.values(), clock_stage.COPIES["device"]):
        assert (lines[words].verdict is Verdict.PASS) == good
        assert lines[words].text.endswith(why)


def test_rates_are_told_in_units_of_their_size() -> None:
    lines = rated(device=2.5e12, half=4.2e14)
    assert lines["bf16 products"].text.startswith("420 TFLOP/s, ")
    assert lines["device copies"].text.startswith("2.50 TB/s, ")
    pinned = lines["pinned copies to the device"]
    assert pinned.text == "50.0 GB/s, pageable ones 10.0 GB/s"
    assert pinned.figures == {"pinned": 5e10, "pageable": 1e10}
    assert lines["bf16 products"].figures == {"rate": 4.2e14}


@pytest.mark.parametrize(("pinned", "good"), [(1e10, True), (0.9e10, True), (0.89e10, False)])
def test_pinned_memory_is_no_slower(pinned: float, good: bool) -> None:
    line = rated(pinned=pinned)["pinned copies to the device"]
    assert (line.verdict is Verdict.PASS) == good


def test_without_a_known_peak_any_rate_will_do() -> None:
    found = dict.fromkeys([*clock_stage.PRODUCTS, "device", "pinned", "pageable"], 1e9)
    first, *_ = clock_stage.rate_lines("Unheard-of 9000", {**found, "half": 0.0})
    second = list(clock_stage.rate_lines("Unheard-of 9000", found))[1]
    assert (first.verdict, second.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert second.text == "0 TFLOP/s; no peak is known for this device"


def effect(verdict: Called, ratio: float | None = 1.0, design: str = "one_at_a_time", **own: Any) -> Any:
    named = SimpleNamespace(design=design, toggle="amp", level="bf16")
    return SimpleNamespace(
        effect=named, verdict=verdict, ratio=ratio, arm_label="amp=bf16", outcome="oom", **own
    )


FAIR = effect(Called.NO_DIFFERENCE, 1.0, PLACEBO)


@pytest.mark.parametrize(
    ("effects", "failed", "good", "text"),
    [
        (
            [FAIR, effect(Called.FASTER, 0.5), effect(Called.FASTER, 0.8), effect(Called.SLOWER, 2.0)],
            False,
            True,
            "2 of 3 effects are faster, amp=bf16 2.00x as fast; placebos: none called",
        ),
        ([FAIR, effect(Called.SLOWER, 2.0)], False, True, "0 of 1 effects are faster; placebos: none called"),
        ([effect(Called.FASTER, 0.9, PLACEBO), FAIR], False, False, "1 of 2 placebos were called"),
        ([effect(Called.SLOWER, 1.1, PLACEBO)], False, False, "1 of 1 placebos were called"),
        ([effect(Called.FASTER, 0.5)], False, False, "no placebo was measured"),
        ([FAIR, effect(Called.SLOWER, None)], True, False, "amp=bf16: oom"),
        ([FAIR, effect(Called.SLOWER, None)], False, True, "0 of 1 effects are faster"),
    ],
)
def test_a_headline_fails_where_a_placebo_is_called_or_an_arm_failed(
    effects: list[Any], failed: bool, good: bool, text: str
) -> None:
    line = headline("amp", SimpleNamespace(effects=effects, failed=failed))  # type: ignore[arg-type]
    assert (line.verdict is Verdict.PASS) == good
    assert line.text.startswith(text)
    others = [one for one in effects if one.effect.design != PLACEBO]
    assert line.figures["effects"] == len(others)


def test_a_headline_keeps_how_many_times_as_fast_the_best_is() -> None:
    line = headline(
        "amp",
        SimpleNamespace(effects=[FAIR, effect(Called.FASTER, 0.8), effect(Called.FASTER, 0.5)], failed=False),  # type: ignore[arg-type]
    )
    assert line.figures == {"faster": 2.0, "effects": 2.0, "speed_ratio": 2.0}
    assert headlines.CALLED == (Called.FASTER, Called.SLOWER)


def test_small_sweeps_stay_in_the_checks_folder_and_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cases.api, "sweep", lambda *words: asked.extend(words))
    cases.measured(Here(Device(), tmp_path), "small", ["axes.work=[single]"])
    assert asked == [
        *("axes.work=[single]", "name=small", f"runs={tmp_path}", "cluster=local", "tracking=disabled")
    ]


def test_lines_of_all_stages_are_heard_in_order_and_kept_with_their_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    line = judged("q", True, "a").model_dump_json()
    program.write_text(f"#!/bin/sh\necho $2 $4 >> {tmp_path}/asked\necho '{line}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(stages.sys, "executable", str(program))
    heard: list[Line] = []
    planned = {"0 a": Stage("m:f", 60), "1 b": Stage("m:g", 60)}
    found = stages.check(tmp_path, Device(), heard.append, planned)
    assert [line.stage for line in heard] == ["0 a", "1 b"]
    assert found.lines == tuple(heard) and found.passed
    asked = (tmp_path / "asked").read_text()
    assert asked == "perfsweep.pipelines.gpu_check m:f\nperfsweep.pipelines.gpu_check m:g\n"
    assert found.device["type"] == "cpu" and found.versions["torch"]
    assert read(tmp_path / FILE) == found
