"""What is printed for programs: every field as docs/json.md has it, and nothing that JSON does not know."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import json_page
import pytest
from object_page import PAGE, differences

from perfsweep.pipelines.analysis.arm_results import ArmResult, OracleDeviation, Quality
from perfsweep.pipelines.analysis.combinations import Gain, Part
from perfsweep.pipelines.analysis.compare import Comparison, Elsewhere, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult, QuantityResult, RuledClaim
from perfsweep.pipelines.analysis.failed_trials import FailedTrials
from perfsweep.pipelines.analysis.quantity import ENERGY
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.comparison_object import ComparisonObject, comparison_object
from perfsweep.pipelines.report.tables import print_json
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.records import Effect, Outcome
from perfsweep.workloads.api import Claim, Parity

EFFECT = Effect(id="e", design="one_at_a_time", toggle="amp", level='bf16, "x"', pairs=(("a", "b"),))
CLAIM = Claim("twice as fast", "A report", "2.1", ({"amp": "bf16"},), low=2.0)
FOUND = EffectResult(
    EFFECT,
    "amp=bf16",
    "baseline",
    Verdict.UNDECIDED,
    ratio=0.98,
    low=0.9,
    high=math.inf,
    p=math.nan,
    rounds=6,
    code=ReasonCode.HOLDS_ZERO,
    parity=ParityResult(ParityVerdict.UNCHECKED, Parity.EXACT),
    rounds_needed=40,
)
NOTHING = EffectResult(EFFECT, "amp=bf16", "baseline", None, outcome="unsupported")
WHOLE = Comparison(
    "demo",
    "pair",
    0.01,
    Reference("naive", 1500.0, 6),
    (FOUND, NOTHING),
    (ArmResult("baseline", 6, 1500.0, None, {"ok": 6}, name="naive"), ArmResult("amp=bf16", 0, None, 7, {})),
    ("a note",),
    quality=(Quality("naive", (OracleDeviation("excess", math.nan, 1e-5),)),),
    rulings=(RuledClaim(CLAIM, "amp=bf16", "one_at_a_time", Ruling.REFUTED, "", "speed", math.inf),),
    failures=(FailedTrials("amp=bf16", "2 timing", Outcome.OOM, "", "", Path("log.txt"), True),),
    elsewhere=(Elsewhere("another GPU", (FOUND,)),),
    missing=("rounds are missing: 2 of 6 in p000",),
    parts=(Part("processor", "naive", "wide", NOTHING, (Gain("tuned", FOUND, NOTHING),)),),
)
EMPTY = Comparison("demo", "pair", 0.01, None, (), (), ())


def answered(comparison: Comparison, **more: Any) -> ComparisonObject:
    values = {
        "workload": "toy",
        "folder": "runs/demo",
        "report": Path("r.html"),
        "status": 1,
        "baseline": None,
    }
    return comparison_object(comparison, **{**values, "against": (), **more})


def printed(value: object, capsys: pytest.CaptureFixture[str]) -> str:
    print_json(value)
    return capsys.readouterr().out


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == json_page.page(), "PYTHONPATH=tests/support python -m json_page > docs/json.md"


@pytest.mark.parametrize("comparison", [WHOLE, EMPTY], ids=["whole", "empty"])
def test_a_comparison_is_as_the_page_says(comparison: Comparison, capsys) -> None:
    assert differences("compare --json", printed(answered(comparison), capsys)) == []


def test_what_was_chosen_beside_time_is_said_of_effects_and_of_arms(capsys) -> None:
    effect = replace(FOUND, quantities={ENERGY.key: QuantityResult(ratio=0.5, rounds=6)})
    comparison = replace(
        WHOLE,
        quantities=(ENERGY,),
        effects=(effect,),
        elsewhere=(Elsewhere("another GPU", (effect,)),),
        arms=(replace(WHOLE.arms[0], quantities={ENERGY.key: 2.5}, bounds={ENERGY.key: (2.0, 3.0)}),),
    )
    found = json.loads(printed(answered(comparison), capsys))
    for (one,) in (found["effects"], found["elsewhere"][0]["effects"]):
        assert (one["energy_ratio"], one["energy_rounds"]) == (0.5, 6)
    (arm,) = found["arms"]
    assert (arm["energy"], arm["energy_low"], arm["energy_high"]) == (2.5, 2.0, 3.0)
