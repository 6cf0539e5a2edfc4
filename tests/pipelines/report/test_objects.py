"""What is printed for programs: every field as docs/json.md has it, and nothing that JSON does not know."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from object_page import PAGE, described, differences, table

from perfsweep.pipelines.analysis.arm_results import ArmResult, OracleDeviation, Quality
from perfsweep.pipelines.analysis.combinations import Gain, Part
from perfsweep.pipelines.analysis.compare import Comparison, Elsewhere, Reference
from perfsweep.pipelines.analysis.effect_columns import EFFECTS
from perfsweep.pipelines.analysis.effect_result import EffectResult, QuantityResult, RuledClaim
from perfsweep.pipelines.analysis.failed_trials import FailedTrials
from perfsweep.pipelines.analysis.quantities.cost import ENERGY
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report import object_reference
from perfsweep.pipelines.report.comparison_object import ComparisonObject, comparison_object
from perfsweep.pipelines.report.objects import Rows, print_csv, print_json
from perfsweep.pipelines.report.sweep_status import PackStatus, SweepStatus
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
    assert PAGE.read_text() == object_reference.page(), (
        "python -m perfsweep.pipelines.report.object_reference > docs/json.md"
    )


@pytest.mark.parametrize("comparison", [WHOLE, EMPTY], ids=["whole", "empty"])
def test_a_comparison_is_as_the_page_says(comparison: Comparison, capsys) -> None:
    assert differences("compare --json", printed(answered(comparison), capsys)) == []


def test_what_is_said_is_what_was_found_and_no_number_is_none_or_infinite(capsys) -> None:
    found = json.loads(printed(answered(WHOLE), capsys))
    assert (found["schema"], found["exit"], found["reference"]["ns_per_unit"]) == (
        "perfsweep.compare/2",
        1,
        1500.0,
    )
    first, second = found["effects"]
    assert (first["ratio"], first["low"], first["high"], first["p"]) == (0.98, 0.9, None, None)
    assert (first["verdict"], first["reason"], first["rounds_needed"]) == ("undecided", "holds_zero", 40)
    assert first["level"] == 'bf16, "x"'
    assert (second["ratio"], second["verdict"], second["outcome"]) == (None, None, "unsupported")
    assert found["oracles"] == [
        {"arm": "naive", "check": "excess", "value": None, "bound": 1e-5, "holds": False}
    ]
    assert found["elsewhere"][0]["effects"] == [first]
    assert (found["claims"][0]["ruling"], found["claims"][0]["ratio"]) == ("refuted", None)
    assert found["failures"][0]["retired"] is True
    assert found["missing"] == ["rounds are missing: 2 of 6 in p000"] and "a note" in found["notes"]
    assert not set(found["missing"]) & set(found["notes"]), "what is missing is said once"


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


@pytest.mark.parametrize("job", [None, "pending"])
def test_a_status_is_as_the_page_says(job: str | None, capsys) -> None:
    pack = PackStatus(pack="p000", arms=2, rounds=1, rounds_planned=2, trials=5, not_ok=0, job=job, note=job)
    status = SweepStatus(
        sweep="demo", workload="toy", folder="runs/demo", exit=1, packs=(pack,), skipped=("x is damaged",)
    )
    assert differences("status --json", printed(status, capsys)) == []


def test_csv_has_the_fields_of_the_page_under_its_schema_and_leaves_cells_empty(capsys) -> None:
    print_csv("perfsweep.compare.csv/2", Rows(EFFECTS, (FOUND, NOTHING)))
    first, second = table(capsys.readouterr().out)
    assert list(first) == ["schema", *described("compare --json")["effects[]"]]
    assert first["schema"] == second["schema"] == "perfsweep.compare.csv/2"
    assert (first["ratio"], first["high"], first["p"], first["level"]) == ("0.98", "", "", 'bf16, "x"')
    assert (second["ratio"], second["outcome"]) == ("", "unsupported")
