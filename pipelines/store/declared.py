"""What a workload declares, as data: written with the plan, so that judging records needs no import of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from perfsweep.pipelines.store.schema import Arm, Declared, DeclaredLevel, Manifest
from perfsweep.pipelines.store.trial_schema import TrialRecord
from perfsweep.workloads.api import Declaration, Level, Parity
from perfsweep.workloads.toggles import on_gpu


class _Trial(Protocol):
    @property
    def record(self) -> TrialRecord: ...


def declare(cls: type[Declaration], config: Any, arms: Iterable[Arm]) -> Declared:
    """Write down what a workload under a configuration declares about some arms."""
    levels: dict[str, dict[str, DeclaredLevel]] = {}
    loosened: dict[str, dict[str, Parity]] = {}
    for arm in arms:
        for name, level in cls.levels_of(arm.levels).items():
            levels.setdefault(name, {})[str(level.value)] = _as_data(level)
            if (beside := level.parity_with(config, arm.levels)) is not level.parity:
                loosened.setdefault(arm.id, {})[name] = beside
    return Declared(
        unit=cls.unit,
        shape=cls.shape,
        checks=cls.checks,
        levels={name: tuple(every.values()) for name, every in levels.items()},
        loosened=loosened,
        data_phases=cls.data_phases,
        extra_phases=cls.extra_phases,
        remarks=cls.remarks,
        claims=any(claim.speaks_of(config) for claim in cls.claims),
        options=dict(_options(config)),
    )


def _options(config: Any) -> Iterator[tuple[str, Any]]:
    """Fields of a workload's configuration that are not at their default."""
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        usual = one.default_factory() if callable(one.default_factory) else one.default
        if value != usual and value is not None:
            yield one.name, value


def _as_data(level: Level) -> DeclaredLevel:
    return DeclaredLevel(
        value=level.value,
        parity=level.parity,
        bounds=dict(level.bounds),
        witness=level.witness,
        in_code=level.in_code.replace("{value}", str(level.value)),
        on_gpu=on_gpu(level),
    )


def declared_by(manifest: Manifest, trials: Iterable[_Trial] = ()) -> Declared:
    """Read what a sweep's workload declares.

    Of `trials` the first whose record names a unit says what was counted: some workloads see it as they run.
    """
    declared = manifest.sweep.declared
    seen = next((one.record.unit for one in trials if one.record.unit), declared.unit)
    return declared.model_copy(update={"unit": seen})
