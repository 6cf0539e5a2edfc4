"""Dataclasses from and to JSON with the standard library: as OmegaConf and pydantic make them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from perfsweep.pipelines.config import validation
from perfsweep.pipelines.store.planned import typed_config
from perfsweep.pipelines.store.typed_json import Misfit, build, plain
from perfsweep.workloads import registry


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Inner:
    rate: float = 0.1
    names: list[str] = field(default_factory=list)


@dataclass
class Own:
    """What a user's configuration may declare."""

    count: int = 1
    rate: float = 0.5
    name: str = ""
    on: bool = False
    maybe: Optional[float] = None  # noqa: UP045 - as older code writes it
    colour: Colour = Colour.RED
    place: Path = Path()
    sizes: tuple[int, ...] = ()
    table: dict[str, float] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    anything: Any = None


VALUES: dict[str, Any] = {
    "count": 3,
    "rate": 2,
    "name": 7,
    "on": 1,
    "maybe": 1,
    "colour": "BLUE",
    "place": "/data",
    "sizes": [1, 2],
    "table": {"a": 1},
    "inner": {"rate": 3, "names": ["x"]},
    "anything": {"deep": [1, None, "two"]},
}
TEXTS = {"count": "4", "rate": "1e-3", "on": "yes", "maybe": None, "sizes": [3]}


@pytest.mark.parametrize("values", [VALUES, TEXTS])
def test_a_configuration_becomes_what_omegaconf_makes_of_it(values: dict[str, Any]) -> None:
    theirs = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Own), values))
    ours = build(Own, json.loads(json.dumps(values)), tuples=False)
    assert ours == theirs
    assert repr(ours) == repr(theirs), "of the same types too"


@pytest.mark.workloads
@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_every_workloads_configuration_is_the_plans(name: str) -> None:
    cls = registry.find(name)
    planned = validation.workload_config(cls, {})
    assert typed_config(cls, plain(planned)) == planned


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"counts": 1}, "counts=1 is no field of Own"),
        ({"count": "many"}, "count='many' is no int"),
        ({"count": True}, "count=True is no int"),
        ({"on": 2}, "on=2 is no bool"),
        ({"maybe": "no number"}, "maybe='no number' is no float or NoneType"),
        ({"colour": [1]}, r"colour=\[1\] is no Colour"),
        ({"sizes": 3}, "sizes=3 is no list"),
        ({"sizes": [1, "x"]}, r"sizes\[1\]='x' is no int"),
        ({"inner": {"rat": 1}}, "inner.rat=1 is no field of Inner"),
    ],
)
def test_what_does_not_fit_names_the_field(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Misfit, match=f"^{sentence}$"):
        build(Own, values)


def test_numbers_of_libraries_are_written_as_numbers() -> None:
    holder = dataclasses.make_dataclass("Holder", [("values", dict)])
    odd = {"numpy": np.int64(3), "float32": np.float32(0.5), "torch": torch.tensor(2.0), "nan": float("nan")}
    assert str(plain(holder(odd))) == "{'values': {'numpy': 3, 'float32': 0.5, 'torch': 2.0, 'nan': nan}}"
