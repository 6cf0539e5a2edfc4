"""Stage 6: the sweeps for a GPU at quick size; whatever they show, no placebo may be called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfsweep.pipelines.api import Comparison
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.gpu_check.answer import ASSUMED, Here, Line, cases, judged, measured, needs_gpu
from perfsweep.pipelines.plan import power
from perfsweep.pipelines.plan.plan import make_plan
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.workloads.errors import ConfigError

CALLED = (Verdict.FASTER, Verdict.SLOWER)


def examine(here: Here) -> Iterator[Line]:
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
            yield planned_line(name, overrides)


def planned_line(name: str, overrides: Sequence[str]) -> Line:
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
