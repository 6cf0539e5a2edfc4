"""Stages 4 to 6: the workloads on this device.

Do kernels, and levels for CUDA alone, act here and compute what their bases compute? What do the sweeps for a
GPU show at quick size? Whatever that is, no placebo may be called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfsweep.pipelines.api import Comparison
from perfsweep.pipelines.check.checked import Checked, plan_check
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import RunCommand, SweepCommand
from perfsweep.pipelines.gpu_check.answer import ASSUMED, Here, Line, cases, judged, measured, needs_gpu
from perfsweep.pipelines.plan import power
from perfsweep.pipelines.plan.plan import load_workload, make_plan
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.workloads.api import Declaration, Device, Level
from perfsweep.workloads.errors import ConfigError

Levels = Mapping[str, Sequence[Any]]


def examine_kernels(here: Here) -> Iterator[Line]:
    """Ask the hand-written kernels and what the compiler generates."""
    for number, case in enumerate(cases()["kernels"]):
        base = case.get("toggles", {})
        where = replace(here, folder=here.folder / f"{number}")
        yield kernel_line(where, case["workload"], base, case["levels"], case.get("counted", ()))


def kernel_line(
    here: Here, workload: Mapping[str, Any], base: Levels, levels: Levels, counted: Sequence[str]
) -> Line:
    """Hold one level against its base; `counted` are counters that must not be zero under it."""
    (toggle, (value,)) = next(iter(levels.items()))
    name = f"{workload['name']} {toggle}={value}"
    cls, _ = load_workload(dict(workload))
    level = cls.levels_of({toggle: value})[toggle]
    if reason := level.unsupported(here.device):
        acts_on_gpu = level.unsupported(ASSUMED) is None
        return needs_gpu(name)[0] if acts_on_gpu else judged(name, False, f"cannot act here: {reason}")
    checked = _checked(here, workload, base, levels)
    problems = [f"{finding.subject}: {finding.text}" for finding in checked.of_levels()]
    problems += [f"{label}: {why}" for label, why in checked.left_out.items()]
    arm = checked.counters_of(toggle, value)
    counts = {counter: arm.get(counter) or 0.0 for counter in counted}
    problems += [f"{counter} is 0" for counter, count in counts.items() if not count]
    told = "".join(f", {counter} {count:g}" for counter, count in counts.items())
    return judged(name, not problems, "; ".join(problems) or f"acts, results as without it{told}", **counts)


def examine_witnesses(here: Here) -> Iterator[Line]:
    """Ask every level that acts on CUDA devices only, and before them some that act on any.

    Without a GPU the first run all the same, and the rest are planned for one.
    """
    for number, case in enumerate(cases()["anywhere"]):
        where = replace(here, folder=here.folder / f"anywhere{number}")
        yield kernel_line(where, case["workload"], case.get("toggles", {}), case["levels"], ())
    for number, workload in enumerate(cases()["witnesses"]):
        if here.on_gpu:
            yield witness_line(replace(here, folder=here.folder / f"{number}"), workload)
        else:
            yield planned_levels(workload, here.device)


def planned_levels(workload: Mapping[str, Any], here: Device) -> Line:
    """Plan each level for CUDA alone on an assumed GPU: base, requirements, witness; the rest needs one.

    A level that is a variable of the process needs no witness.
    """
    cls, _ = load_workload(dict(workload))
    levels = only_on(cls, ASSUMED, here)
    name, due = str(workload["name"]), sum(map(len, levels.values()))
    try:
        manifest = plan_check(RunCommand(workload=dict(workload)), ASSUMED, levels=levels)
    except ConfigError as error:
        return judged(name, False, f"it cannot be planned for an H100: {error}", levels=due)
    problems = [f"{one.toggle}={one.level} cannot be planned: {one.reason}" for one in manifest.refused]
    chosen = [(name, cls.levels_of({name: one})[name]) for name, values in levels.items() for one in values]
    problems += [
        f"{name}={level.value} names no witness"
        for name, level in chosen
        if level.witness is None and not level.env
    ]
    if problems:
        return judged(name, False, "; ".join(problems), levels=due)
    return needs_gpu(name, text=f"for {due} levels, planned for an H100 in {len(manifest.arms)} arms")[0]


def witness_line(here: Here, workload: Mapping[str, Any], elsewhere: Device | None = None) -> Line:
    """Hold each level of a workload that acts here and not `elsewhere` against its base."""
    name = str(workload["name"])
    cls, _ = load_workload(dict(workload))
    levels = only_on(cls, here.device, elsewhere or replace(Device(), compiler=True))
    if not levels:
        return judged(name, True, "no level acts on this device alone")
    checked = _checked(here, workload, {}, levels)
    problems = [f"{finding.subject}: {finding.text}" for finding in checked.of_levels()]
    problems += [
        f"{label}: {why}" for label, why in checked.left_out.items() if not why.startswith("draws at random")
    ]
    due = sum(map(len, levels.values()))
    if checked.compared < due and not problems:
        problems = [f"only {checked.compared} of {due} levels could be planned"]
    told = f"{checked.compared} of {due} levels take effect and keep their parity class"
    return judged(name, not problems, "; ".join(problems) or told, levels=due)


def only_on(cls: type[Declaration], here: Device, elsewhere: Device) -> dict[str, list[Any]]:
    """Levels by toggle that act on one device and not on another."""

    def alone(level: Level) -> bool:
        return level.unsupported(here) is None and level.unsupported(elsewhere) is not None

    chosen = {toggle.name: [one.value for one in toggle.levels[1:] if alone(one)] for toggle in cls.toggles}
    return {name: values for name, values in chosen.items() if values}


def _checked(here: Here, workload: Mapping[str, Any], base: Levels, levels: Levels) -> Checked:
    command = RunCommand(workload=dict(workload), toggles=dict(base))
    here.folder.mkdir(parents=True, exist_ok=True)
    return Checked(command, here.folder, here.device, plan_check(command, here.device, levels=levels))


CALLED = (Verdict.FASTER, Verdict.SLOWER)


def examine_headlines(here: Here) -> Iterator[Line]:
    """Measure each sweep; its line has what is fastest in it.

    Without a GPU they are planned for one, and a small sweep with placebos is measured in their place.
    """
    if not here.on_gpu:
        small = cases()["small"]
        yield headline(" ".join(small), measured(here, "small", [*small, *cases()["quick"]]).comparison)
    for number, overrides in enumerate(cases()["headlines"]):
        name = " ".join(overrides)
        if here.on_gpu:
            sweep = measured(here, f"headline{number}", [*overrides, *cases()["quick"]])
            yield headline(name, sweep.comparison)
        else:
            yield planned_sweep(name, overrides)


def planned_sweep(name: str, overrides: Sequence[str]) -> Line:
    """Plan a sweep for an assumed GPU, and refuse it where it could decide nothing; the rest needs one."""
    cfg = composition.compose("sweep", [*overrides, *cases()["quick"], "tracking=disabled"])
    try:
        manifest = make_plan(validation.typed(cfg, SweepCommand), ASSUMED)
        power.refuse_undecidable(manifest)
    except ConfigError as error:
        return judged(name, False, f"it cannot be planned for an H100: {error}")
    if refused := [f"{one.toggle}={one.level}: {one.reason}" for one in manifest.refused]:
        return judged(name, False, f"arms are refused on an H100: {'; '.join(refused)}")
    return needs_gpu(name, text=f"for {len(manifest.arms)} arms, planned for an H100")[0]


def headline(name: str, comparison: Comparison) -> Line:
    """Say what is fastest; a placebo that is called, or an arm that failed, fails."""
    placebos = [one for one in comparison.effects if one.effect.design == PLACEBO]
    others = [one for one in comparison.effects if one.effect.design != PLACEBO]
    called = [one for one in placebos if one.verdict in CALLED]
    faster = sorted((one for one in others if one.verdict is Verdict.FASTER), key=lambda one: one.ratio or 1)
    problems = [f"{len(called)} of {len(placebos)} placebos were called"] if called else []
    problems += ["no placebo was measured"] if not any(one.ratio for one in placebos) else []
    problems += [
        f"{one.arm_label}: {one.outcome}" for one in others if comparison.failed and one.ratio is None
    ]
    best = ""
    figures: dict[str, float] = {"faster": len(faster), "effects": len(others)}
    if faster and (ratio := faster[0].ratio):
        best = f", {faster[0].effect.toggle}={faster[0].effect.level} {1 / ratio:.2f}x as fast"
        figures["speed_ratio"] = 1 / ratio
    text = f"{len(faster)} of {len(others)} effects are faster{best}; placebos: none called"
    return judged(name, not problems, "; ".join(problems) or text, **figures)
