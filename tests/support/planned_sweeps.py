"""Plans of sweeps that no workload was loaded for: what reads a plan needs no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import (
    Arm,
    Effect,
    Kind,
    Manifest,
    Outcome,
    Pack,
    Sweep,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    write_record,
    write_spec,
)
from perfsweep.pipelines.store.schema import Declared

NAIVE, FAST = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def arm(id: str, label: str = "", **own: Any) -> Arm:
    return Arm(id=id, label=label or id[:1], levels=own.pop("levels", {"amp": "off"}), **own)


def effect(*pairs: tuple[str, str], design: str = "one_at_a_time", **own: Any) -> Effect:
    return Effect(id=design, design=design, toggle="amp", level="bf16", pairs=pairs, **own)


def pack(*arms: str, id: str = "p000", rounds: int = 1) -> Pack:
    return Pack(id=id, orders=(arms,) * rounds, start="fork")


def sweep(measure: dict[str, Any] | None = None, **own: Any) -> Sweep:
    given = {"name": "toy", "workload": "toys", "config": {}, "code": "c", "references": {"naive": NAIVE}}
    given |= {"declared": Declared(unit="rows", shape="steps", checks=(), levels={})}
    return Sweep(**{**given, "measure": MeasureConfig(**(measure or {})), **own})


def manifest(*arms: Arm, **own: Any) -> Manifest:
    """Of two arms in one pack, unless said otherwise; fields of the sweep are given as `sweep`."""
    every = arms or (arm(NAIVE, "naive"), arm(FAST, "amp=bf16"))
    given = {"packs": (pack(*(one.id for one in every)),), "effects": (effect((FAST, NAIVE)),)}
    shared = own.pop("sweep", {})
    return Manifest(sweep=sweep(**shared), arms=every, **{**given, **own})


def record(arm: str, kind: Kind = Kind.TIMING, **own: Any) -> TrialRecord:
    given = {"pack": "p000", "round": None, "attempt": 0, "outcome": Outcome.OK}
    return TrialRecord(arm=arm, kind=kind, **{**given, **own})


def spec(kind: Kind = Kind.TIMING, **own: Any) -> TrialSpec:
    """Of one trial; `measure` may be a table."""
    given = {"sweep": "s", "workload": "w", "config": {}, "pack": "p000", "round": None, "attempt": 0}
    given |= {"arm": Arm(id="a" * 16, label="arm", levels={}), "code": "", "cache_dir": ""}
    measure = own.pop("measure", {})
    measure = MeasureConfig(**measure) if isinstance(measure, dict) else measure
    return TrialSpec(kind=kind, measure=measure, **{**given, **own})


def progress(*records: TrialRecord) -> Progress:
    found = Progress()
    for one in records:
        found.add(StoredTrial(Path(), one))
    return found


def begun(folder: SweepFolder, plan: Manifest, arm: str, **own: Any) -> Path:
    """The folder of a trial that has a specification; with an outcome it has a record too."""
    outcome = own.pop("outcome", None)
    given = {"kind": Kind.TIMING, "pack": "p000", "cache_dir": folder.cache_dir, **own}
    spec = plan.sweep.trial_spec(plan.arm(arm), **given)
    place = folder.trial_dir(spec)
    write_spec(place, spec)
    if outcome is not None:
        write_record(place, TrialRecord.of(spec, 1.0, outcome=outcome))
    return place
