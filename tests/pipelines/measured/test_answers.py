"""The answer of a sweep as values: a short table of its effects, the best arm, and the recommended one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perfsweep.pipelines.analysis.combinations import Together
from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.measured import COLUMNS, best, brief_effects, recommended
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Arm, Effect, Manifest, Sweep
from perfsweep.workloads.api import Parity


def effect(
    toggle: str, level: str, verdict: Verdict | None, ratio: float | None, **fields: Any
) -> EffectResult:
    made = Effect(id=toggle, design="one_at_a_time", toggle=toggle, level=level, pairs=((toggle, "base"),))
    results = ParityVerdict.DIFFERENT if verdict is Verdict.DIFFERENT else ParityVerdict.IDENTICAL
    spread = (None, None) if ratio is None else (ratio * 0.9, ratio * 1.1)
    parity = ParityResult(results, Parity.EXACT)
    label = fields.pop("label", f"{toggle}={level}")
    return EffectResult(made, label, "baseline", verdict, ratio, *spread, parity=parity, rounds=6, **fields)


GC = effect("gc", "frozen", Verdict.FASTER, 0.625, memory_bytes=2e6)
SLAB = effect("slab_size", "8", Verdict.FASTER, 0.8, compile_s=3.0)
SLOW = effect("amp", "bf16", Verdict.SLOWER, 1.25)
OTHER = effect("cast", "on", Verdict.DIFFERENT, 0.1)
LOST = effect("pin_memory", "on", None, None, outcome="unsupported")
NOT_HERE = Comparison(
    "demo", "pair", 0.01, Reference("naive", 100.0, 6), (SLOW, LOST), (), (), workload="digits"
)
FASTER = replace(NOT_HERE, effects=(SLOW, OTHER, LOST, SLAB, GC), fastest=GC, winners=(GC, SLAB))
WHOLE = effect("all", "", Verdict.FASTER, 0.5, label="gc=frozen,slab_size=8")
TOGETHER = replace(FASTER, together=Together("x", WHOLE, (GC, SLAB)))
ARMS = [
    Arm(id=name, label=name, levels={"gc": gc, "slab_size": size})
    for name, gc, size in (("base", "each_eval", 1), ("gc", "frozen", 1), ("slab_size", "each_eval", 8))
]
MANIFEST = Manifest.model_construct(arms=ARMS, sweep=Sweep.model_construct(references={"naive": "base"}))


def test_effects_have_ten_columns_and_what_to_turn_on_comes_first() -> None:
    table = brief_effects(FASTER)
    assert table.columns == list(COLUMNS) and len(COLUMNS) == 10
    assert table["name"].to_list() == ["gc=frozen", "slab_size=8", "amp=bf16", "cast=on", "pin_memory=on"]
    assert brief_effects(replace(FASTER, effects=())).columns == table.columns
    assert table.sort("speed", descending=True, nulls_last=True)["name"][0] == "gc=frozen", "not cast=on"
    assert table["todo"].to_list() == [
        "turn on",
        "turn on",
        "leave off",
        "changes results",
        "cannot act here",
    ]
    first = table.to_dicts()[0]
    assert (first["speed"], first["results"], first["memory_mb"], first["rounds"]) == (
        1.6,
        "identical",
        2.0,
        6,
    )
    assert first["speed_low"] == pytest.approx(1 / 0.6875) and first["speed_high"] == pytest.approx(
        1 / 0.5625
    )


def test_all_winners_together_are_recommended_where_they_are_measured_and_faster() -> None:
    assert repr(recommended(FASTER, MANIFEST)) == repr(GC)
    found = recommended(TOGETHER, MANIFEST)
    assert found is not None and found.levels == {"gc": "frozen", "slab_size": 8}, "levels keep their types"
    assert found.command == "perfsweep run workload=digits toggles.gc=frozen toggles.slab_size=8"
    assert repr(found) == "gc=frozen, slab_size=8: 2.00x faster [1.82 .. 2.22], identical"
    worse = replace(TOGETHER, together=Together("x", replace(WHOLE, verdict=Verdict.UNDECIDED), ()))
    assert repr(recommended(worse, MANIFEST)) == repr(GC)


def test_a_last_step_that_adds_nothing_is_not_recommended() -> None:
    idle = replace(SLAB, verdict=Verdict.NO_DIFFERENCE, ratio=1.0, low=0.995, high=1.005)
    found = replace(FASTER, together=Together("x", WHOLE, (GC, idle), (GC, WHOLE)))
    assert repr(recommended(found, MANIFEST)) == repr(GC)


def test_a_sweep_without_winners_has_its_fastest_arm_if_any_is_faster() -> None:
    assert best(NOT_HERE, MANIFEST) is None and recommended(NOT_HERE, MANIFEST) is None
    listed = replace(NOT_HERE, fastest=WHOLE)
    assert repr(best(listed, MANIFEST)) == repr(recommended(listed, MANIFEST))
    assert repr(best(listed, MANIFEST)) == "gc=frozen, slab_size=8: 2.00x faster [1.82 .. 2.22], identical"
