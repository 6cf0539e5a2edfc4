"""The options of `perfsweep.sweep` as types: they are those of the command, and the module is up to date."""

from __future__ import annotations

import typing
from dataclasses import fields
from pathlib import Path

from perfsweep.pipelines.config import sweep_options, typed_options, types
from perfsweep.pipelines.config.overrides import as_overrides
from perfsweep.pipelines.config.sweep_options import SweepOptions
from perfsweep.pipelines.store.options import MeasureConfig


def test_the_module_is_what_the_declarations_say() -> None:
    written = Path(sweep_options.__file__).read_text()
    assert written == typed_options.module(), (
        "run python -m perfsweep.pipelines.config.typed_options > pipelines/config/sweep_options.py"
    )


def test_every_option_of_a_sweep_is_typed_and_no_other() -> None:
    known = {*types.parts("sweep"), *(one.name for one in fields(MeasureConfig))}
    assert SweepOptions.__annotations__.keys() == known
    assert SweepOptions.__required_keys__ == frozenset()


def test_a_part_is_a_name_or_a_mapping_of_its_fields() -> None:
    hints = typing.get_type_hints(SweepOptions)
    assert hints["measure"] == str | sweep_options.MeasurePart
    assert sweep_options.MeasurePart.__annotations__.keys() == {one.name for one in fields(MeasureConfig)}
    given: SweepOptions = {"workload": "digits", "tracking": "disabled", "measure": {"seed": 3}, "rounds": 6}
    assert as_overrides("sweep", given) == [
        "workload=digits",
        "tracking=disabled",
        "measure.seed=3",
        "measure.rounds=6",
    ]
