"""Comparison of sweeps whose times are known: effects, references, mixtures and gaps, without running anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelines import collect, compare, plan
from pipelines.compare import Comparison
from pipelines.config import DesignConfig, SweepCommand
from pipelines.measure.verdicts import Verdict
from pipelines.records import Kind, Manifest, Outcome, SweepFolder, TrialRecord, TrialSpec, write_evidence, write_record
from workloads.api import Device, Evidence, Levels
from workloads.errors import RecordError

TimeOf = Callable[[Levels], float]


def spec_of(manifest: Manifest, arm: str, pack: str, number: int | None, kind: Kind) -> TrialSpec:
    sweep = manifest.sweep
    return TrialSpec(
        sweep=sweep.name,
        workload=sweep.workload,
        config=sweep.config,
        arm=manifest.arm(arm),
        kind=kind,
        pack=pack,
        round=number,
        attempt=0,
        measure=sweep.measure,
        code=sweep.code,
        cache_dir="",
    )


def write(folder: SweepFolder, spec: TrialSpec, **fields: object) -> None:
    trial = folder.trial_dir(spec)
    trial.mkdir(parents=True, exist_ok=True)
    values = {"outcome": Outcome.OK, "units": 100.0, "iterations": 10, "keys": {"device": "fake"}, "peak_bytes": 1000, **fields}
    record = TrialRecord(
        arm=spec.arm.id,
        kind=spec.kind,
        pack=spec.pack,
        round=spec.round,
        attempt=0,
        code=spec.code,
        method=spec.measure.method,
        **values,
    )  # type: ignore[arg-type]
    write_record(trial, record)


def simulated(
    command: SweepCommand, time_of: TimeOf, *, drift: float = 0.3, noise: float = 0.004
) -> tuple[SweepFolder, Manifest]:
    """A measured sweep on a machine whose speed wanders by `drift` from round to round."""
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    folder.write_manifest(manifest)
    rng = np.random.default_rng(7)
    for arm in manifest.arms:
        evidence = spec_of(manifest, arm.id, "p000", None, Kind.EVIDENCE)
        write(folder, evidence)
        write_evidence(folder.trial_dir(evidence), Evidence({"trace": np.ones(4)}, {"count": 4.0}))
    for pack in manifest.packs:
        for number, order in enumerate(pack.orders):
            speed = math.exp(drift * rng.standard_normal())
            for arm in order:
                seconds = time_of(manifest.arm(arm).levels) * speed * math.exp(noise * rng.standard_normal())
                write(folder, spec_of(manifest, arm, pack.id, number, Kind.TIMING), region_ns=round(seconds * 1e9))
    return folder, manifest


def compared(folder: SweepFolder, manifest: Manifest) -> Comparison:
    return compare.compare(folder, manifest, collect.collect(folder, manifest))


def cost(levels: Levels) -> float:
    """Twice the work takes twice as long; wrong signs cost 10 %, and 20 % more beside double work."""
    seconds = 2.0 if levels["work"] == "double" else 1.0
    if levels["sign"] == "wrong":
        seconds *= 1.1 * (1.2 if levels["work"] == "double" else 1.0)
    return seconds


ROUNDS = {"rounds": 10}


def test_pairing_finds_effects_far_below_the_drift_of_the_machine(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": [2]}), measure=ROUNDS)
    folder, manifest = simulated(sweep, lambda levels: cost(levels) * (0.97 if levels["slab"] == 2 else 1.0))
    single, slab = compared(folder, manifest).effects
    assert single.verdict is slab.verdict is Verdict.FASTER
    assert single.ratio == pytest.approx(0.5, rel=0.01)
    assert slab.ratio == pytest.approx(0.97, abs=0.005)


def test_a_factorial_main_effect_is_the_mean_over_the_other_toggle(command) -> None:
    sweep = command(DesignConfig("factorial", levels={"work": ["double", "single"], "sign": ["right", "wrong"]}), measure=ROUNDS)
    work, sign = compared(*simulated(sweep, cost)).effects
    assert work.ratio == pytest.approx(math.sqrt(0.5 * 0.5 / 1.2), rel=0.01)
    assert sign.ratio == pytest.approx(math.sqrt(1.1 * 1.1 * 1.2), rel=0.01)


def test_a_chain_multiplies_up_to_its_last_step(command) -> None:
    steps = [{"work": "single"}, {"sign": "wrong"}, {"slab": 4}]
    effects = compared(*simulated(command(DesignConfig("chain", steps=steps), measure=ROUNDS), cost)).effects
    ratios = [effect.ratio for effect in effects]
    assert None not in ratios
    assert math.prod(ratios[:-1]) == pytest.approx(ratios[-1], rel=0.01)


def test_every_reference_has_a_row_of_its_own(command) -> None:
    references = {"naive": {}, "single": {"work": "single"}}
    sweep = command(DesignConfig("arms", arms={"fast": {"work": "single", "slab": 8}}), references=references, measure=ROUNDS)
    found = compared(*simulated(sweep, cost))
    assert [(effect.effect.level, round(effect.ratio or 0, 2)) for effect in found.effects] == [
        ("vs naive", 0.5),
        ("vs single", 1.0),
    ]
    assert found.reference is not None and found.reference.name == "naive"


def test_equal_arms_are_no_difference_or_undecided_never_faster(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"slab": list(range(2, 12))}), measure=ROUNDS)
    verdicts = {effect.verdict for effect in compared(*simulated(sweep, lambda levels: 1.0)).effects}
    assert verdicts <= {Verdict.NO_DIFFERENCE, Verdict.UNDECIDED}


def test_one_round_shows_a_ratio_and_no_interval(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 1})
    (effect,) = compared(*simulated(sweep, cost)).effects
    assert effect.ratio is not None and effect.low is None
    assert effect.verdict is Verdict.UNDECIDED
    assert "one round has no interval" in effect.note


def test_a_reference_without_rounds_leaves_the_report_standing(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
    manifest = plan.make_plan(sweep, Device())
    folder = SweepFolder(Path(sweep.runs) / manifest.sweep.name)
    folder.write_manifest(manifest)
    found = compared(folder, manifest)
    assert found.reference is None
    assert [effect.word for effect in found.effects] == ["no rounds yet"]


def test_a_region_that_took_no_time_is_refused_by_name(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
    folder, manifest = simulated(sweep, lambda levels: 0.0)
    with pytest.raises(RecordError, match=r"ns_per_unit of arm \w+ in round \d of pack p000 is 0"):
        compared(folder, manifest)


def test_peak_memory_is_the_difference_of_the_medians(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
    folder, manifest = simulated(sweep, cost)
    (effect,) = manifest.effects
    for file in folder.path.glob(f"trials/{effect.pairs[0][0]}/*-r*/record.json"):
        file.write_text(file.read_text().replace('"peak_bytes": 1000', '"peak_bytes": 4000'))
    assert compared(folder, manifest).effects[0].memory_bytes == 3000
