"""Memory, processes, levels and headlines: each passes what is right and fails what is planted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.gpu_check import trial_stages, workload_stages
from perfsweep.pipelines.gpu_check.answer import Here, Line, Verdict, cases, measured
from perfsweep.pipelines.statistics.verdicts import Verdict as Called
from perfsweep.pipelines.store.records import PLACEBO, Outcome
from perfsweep.pipelines.trial.failures import ON_OOM
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Device


def good(line: Line) -> bool:
    assert line.verdict is not Verdict.NEEDS_GPU
    return line.verdict is Verdict.PASS


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(environment.device_facts(), tmp_path)


def trial(folder: Path, outcome: Outcome = Outcome.OK, peak_bytes: int = 0) -> Any:
    record = SimpleNamespace(outcome=outcome, peak_bytes=peak_bytes, failure=None)
    return SimpleNamespace(record=record, folder=folder)


def test_an_arm_over_its_budget_must_end_as_oom_and_leave_a_picture(tmp_path: Path) -> None:
    over = trial(tmp_path, Outcome.OOM)
    assert good(trial_stages.budget_line(over, snapshot=False))
    assert not good(trial_stages.budget_line(over, snapshot=True))
    (tmp_path / ON_OOM).touch()
    assert good(trial_stages.budget_line(over, snapshot=True))
    assert not good(trial_stages.budget_line(trial(tmp_path), snapshot=False))


@pytest.mark.parametrize(("graph", "passes"), [(91, True), (89, False)])
def test_what_a_graph_keeps_must_be_counted(tmp_path: Path, graph: int, passes: bool) -> None:
    line = trial_stages.graph_line(trial(tmp_path, peak_bytes=100), trial(tmp_path, peak_bytes=graph))
    assert good(line) is passes
    assert not good(trial_stages.graph_line(trial(tmp_path), trial(tmp_path, Outcome.FAILED, 100)))


@pytest.mark.slow
def test_the_budget_is_asked_of_a_real_trial(here: Here) -> None:
    lines = list(trial_stages.examine_memory(here))
    assert [line.verdict for line in lines] == [Verdict.PASS, Verdict.NEEDS_GPU]


def test_one_gpu_is_too_few_for_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = Line(name="", verdict=Verdict.PASS, text="")
    monkeypatch.setattr(trial_stages, "fork_line", lambda here: fine)
    monkeypatch.setattr(trial_stages, "turns_line", lambda here, overrides: fine)
    *_, ranks = trial_stages.examine_processes(Here(Device("cuda", 1), tmp_path))
    assert (ranks.verdict, ranks.text) == (Verdict.NEEDS_GPU, "two of them")


TOY = "toys.only_here:OnlyHere"
NAMELESS = Device()


@pytest.mark.workloads
@pytest.mark.parametrize(
    ("config", "words"), [({}, "1 of 1 levels take effect"), ({"wrong": True}, "way=at_once: declared exact")]
)
def test_a_level_must_act_and_compute_what_its_base_does(here: Here, config: dict, words: str) -> None:
    line = workload_stages.witness_line(here, {"name": TOY, **config}, NAMELESS)
    assert words in line.text
    assert good(line) is not bool(config)


def as_checked(*findings: str, left_out: str = "", counters: dict | None = None, compared: int = 1) -> Any:
    """What checking a level found, each finding as `subject: text`."""
    parts = [finding.partition(": ") for finding in findings]
    return lambda *_: SimpleNamespace(
        of_levels=lambda: [SimpleNamespace(subject=subject, text=text) for subject, _, text in parts],
        left_out={"way=at_once": left_out} if left_out else {},
        counters_of=lambda toggle, value: counters or {},
        compared=compared,
    )


@pytest.mark.parametrize(
    ("checked", "passes", "text", "figures"),
    [
        (as_checked(counters={"steps": 3}), True, "acts, results as without it, steps 3", {"steps": 3}),
        (as_checked(counters={"steps": None}), False, "steps is 0", {"steps": 0}),
        (
            as_checked("way: idle", "way: wrong", left_out="out of memory", counters={"steps": 3}),
            False,
            "way: idle; way: wrong; way=at_once: out of memory",
            {"steps": 3},
        ),
    ],
)
def test_the_line_of_a_kernel_says_that_it_acts_or_all_that_is_wrong(
    checked: Any, passes: bool, text: str, figures: dict, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_stages, "_checked", checked)
    line = workload_stages.kernel_line(here, {"name": TOY}, {}, {"way": ["at_once"]}, ["steps"])
    assert (line.name, good(line), line.text) == (f"{TOY} way=at_once", passes, text)
    assert line.figures == figures


@pytest.mark.parametrize(
    ("checked", "passes", "text"),
    [
        (as_checked(), True, "1 of 1 levels take effect and keep their parity class"),
        (as_checked(compared=0), False, "only 0 of 1 levels could be planned"),
        (as_checked(left_out="it failed", compared=0), False, "way=at_once: it failed"),
    ],
)
def test_the_line_of_a_workload_counts_the_levels_that_could_be_asked(
    checked: Any, passes: bool, text: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_stages, "_checked", checked)
    line = workload_stages.witness_line(here, {"name": TOY}, NAMELESS)
    assert (good(line), line.text, line.figures) == (passes, text, {"levels": 1})


def test_levels_that_act_everywhere_are_not_asked(here: Here) -> None:
    assert good(workload_stages.witness_line(here, {"name": TOY}, here.device))


def test_without_a_gpu_levels_for_one_are_planned_for_one(tmp_path: Path) -> None:
    line = workload_stages.planned_levels({"name": "digits"}, Device(compiler=True))
    assert line.verdict is Verdict.NEEDS_GPU
    assert line.text == "for 5 levels, planned for an H100 in 7 arms"


@pytest.mark.parametrize(
    ("toy", "words"),
    [
        ("Nameless", "way=at_once names no witness"),
        ("Contradicting", "cannot be planned for an H100: no legal arm has way=at_once"),
    ],
)
def test_a_level_that_could_not_be_judged_there_fails_before_there_is_a_gpu(toy: str, words: str) -> None:
    line = workload_stages.planned_levels({"name": f"toys.only_here:{toy}"}, NAMELESS)
    assert not good(line)
    assert words in line.text


def test_a_sweep_that_a_gpu_could_not_run_fails_before_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ["workload=digits", "sweep=gpu"]
    assert workload_stages.planned_sweep("digits", gpu).verdict is Verdict.NEEDS_GPU
    misspelt = workload_stages.planned_sweep("digits", [*gpu, "axes.amp=[bf61]"])
    assert not good(misspelt)
    assert "it cannot be planned for an H100" in misspelt.text
    monkeypatch.setitem(cases(), "quick", ["measure.rounds=2", "measure.placebo=2"])
    few = workload_stages.planned_sweep("digits", gpu)
    assert not good(few)
    assert "measure.rounds=2: too few to decide" in few.text


def test_without_a_gpu_the_last_stages_run_what_acts_anywhere(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_stages, "_checked", as_checked())
    lines = list(workload_stages.examine_witnesses(here))
    ran = [line.name for line in lines if line.verdict is not Verdict.NEEDS_GPU]
    assert ran == ["digits zero_grad=none", "latentwire teacher=slice"]
    found = SimpleNamespace(comparison=SimpleNamespace(effects=[FAIR], failed=False))
    monkeypatch.setattr(workload_stages, "measured", lambda *about: found)
    small, *planned = workload_stages.examine_headlines(here)
    assert (small.name, small.verdict) == ("workload=selftest axes.delay=[10]", Verdict.PASS)
    assert {line.verdict for line in planned} == {Verdict.NEEDS_GPU}


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
        ([effect(Called.FASTER, 0.9, PLACEBO), FAIR], False, False, "1 of 2 placebos were called"),
        (
            [effect(Called.FASTER, 0.5), effect(Called.NO_DIFFERENCE, None, PLACEBO)],
            False,
            False,
            "no placebo",
        ),
        ([effect(Called.FASTER, 0.5)], False, False, "no placebo was measured"),
        ([FAIR, effect(Called.SLOWER, None)], True, False, "amp=bf16: oom"),
        ([FAIR, effect(Called.SLOWER, None)], False, True, "0 of 1 effects are faster"),
    ],
)
def test_a_headline_fails_where_a_placebo_is_called_or_an_arm_failed(
    effects: list[Any], failed: bool, good: bool, text: str
) -> None:
    line = workload_stages.headline("amp", SimpleNamespace(effects=effects, failed=failed))  # type: ignore[arg-type]
    assert (line.verdict is Verdict.PASS) == good
    assert line.text.startswith(text)
    others = [one for one in effects if one.effect.design != PLACEBO]
    assert line.figures["effects"] == len(others)
    assert line.figures.get("speed_ratio") == (2.0 if any(one.ratio == 0.5 for one in others) else None)


def test_small_sweeps_stay_in_the_checks_folder_and_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("perfsweep.pipelines.api.sweep", lambda *words: asked.extend(words))
    measured(Here(Device(), tmp_path), "small", ["axes.work=[single]"])
    assert asked == [
        *("axes.work=[single]", "name=small", f"runs={tmp_path}", "cluster=local", "tracking=disabled")
    ]


@pytest.mark.parametrize(
    ("workload", "level", "verdict", "text"),
    [
        ("spinner:Spinner", {"device_only": ["on"]}, Verdict.NEEDS_GPU, ""),
        ("devices:Devices", {"parallel": ["split"]}, Verdict.FAIL, "cannot act here: "),
    ],
)
def test_a_level_that_cannot_act_here_waits_for_a_gpu_or_could_not_act_on_one_either(
    tmp_path: Path, workload: str, level: dict, verdict: Verdict, text: str
) -> None:
    ((toggle, (value,)),) = level.items()
    line = workload_stages.kernel_line(Here(Device(), tmp_path), {"name": f"toys.{workload}"}, {}, level, ())
    assert (line.name, line.verdict) == (f"toys.{workload} {toggle}={value}", verdict)
    assert line.text.startswith(text) and bool(line.text) == bool(text)


@pytest.mark.parametrize(
    ("outcomes", "passes", "text"),
    [
        (["ok"] * 8, True, "8 trials of 2 arms in turns ended well, 0 did not"),
        (["ok"] * 7, False, "7 trials of 2 arms in turns ended well, 0 did not"),
        (["ok"] * 8 + ["oom"], False, "8 trials of 2 arms in turns ended well, 1 did not"),
    ],
)
def test_every_trial_of_two_arms_that_take_turns_must_end_well(
    here: Here, monkeypatch: pytest.MonkeyPatch, outcomes: list[str], passes: bool, text: str
) -> None:
    asked: list[str] = []

    def measured(place: Here, name: str, overrides: list[str]) -> Any:
        asked.extend([name, *overrides])
        arms = {number: trial(here.folder, Outcome(outcome)) for number, outcome in enumerate(outcomes)}
        progress = SimpleNamespace(timing={"p000": {0: arms}})
        return SimpleNamespace(progress=progress, manifest=SimpleNamespace(arms=("a", "b")))

    monkeypatch.setattr(trial_stages, "measured", measured)
    line = trial_stages.turns_line(here, ["workload=selftest"])
    assert (good(line), line.text, line.figures["trials"]) == (passes, text, float(outcomes.count("ok")))
    assert asked[:3] == ["turns", "workload=selftest", "measure.rounds=4"]


MET = '{"sum": 3.0, "agreed": true}'
"""What a rank says that has met the other."""


@pytest.mark.parametrize(
    ("program", "limit_s", "passes", "text"),
    [
        (f"echo warming up; echo '{MET}'", 60.0, True, "two ranks met by Gloo, on CPU"),
        (
            f"""echo no word >&2; [ "$4" = 1 ] || echo '{MET}'""",
            60.0,
            False,
            "two ranks said [{'sum': 3.0, 'agreed': True}, None]: no word",
        ),
        ("exec sleep 60", 0.1, False, "two ranks did not meet within 0.1 s"),
    ],
)
def test_two_ranks_must_say_the_same_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, limit_s: float, passes: bool, text: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr(trial_stages, "LIMIT_S", limit_s)
    line = trial_stages.ranks_line(Here(Device(), tmp_path))
    assert (good(line), line.text) == (passes, text)


@pytest.mark.parametrize(
    ("total", "ended", "passes", "text"),
    [
        (1000.0, None, True, "a forked child added 1000 of 1000 ones"),
        (999.0, None, False, "a forked child added 999 of 1000 ones"),
        (None, None, False, "a forked child cannot compute on the device: ['CUDA error']"),
        (1000.0, "killed", False, "a forked child cannot compute on the device: ['CUDA error']"),
    ],
)
def test_a_forked_child_must_add_all_ones_and_end_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    total: float | None,
    ended: str | None,
    passes: bool,
    text: str,
) -> None:
    class Server:
        def __init__(self, modules: Any) -> None: ...

        def call(self, function: Any, answer: str, device: str) -> None:
            assert function is trial_stages.compute and device == "cpu"
            Path(answer).with_suffix(".txt").write_text("Traceback\nCUDA error\n")
            if total is not None:
                Path(answer).write_text(str(total))

    (tmp_path / "forked.json").write_text("1000.0")  # of an earlier check
    monkeypatch.setattr(trial_stages, "ForkServer", Server)
    monkeypatch.setattr(trial_stages, "wait", lambda children, limit_s: ended)
    line = trial_stages.fork_line(Here(Device(), tmp_path))
    assert (good(line), line.text) == (passes, text)
