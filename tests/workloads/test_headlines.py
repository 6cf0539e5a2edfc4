"""Headline sweeps are measured against upstream's default, and tell the processor apart."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from documented import ROOT

SWEEPS = ROOT / "conf" / "sweep"
WIDE = {"mkl_vectors": "all"}


def sweep(name: str) -> dict[str, Any]:
    return yaml.safe_load((SWEEPS / f"{name}.yaml").read_text())["sweep"]


@pytest.mark.parametrize(
    "name",
    [
        *("spd/headline", "spd/headline_overhead", "spd/headline_pgd20", "spd/headline_layerwise"),
        *("spd/headline_vocabulary", "latentwire/goals", "latentwire/batch32"),
    ],
)
def test_where_products_decide_the_processor_is_told_apart_from_the_method(name: str) -> None:
    found = sweep(name)
    assert found["parts"] == {"processor": ["naive", "naive_wide"]}
    assert found["references"]["naive_wide"] == {**found["references"]["naive"], **WIDE}


@pytest.mark.parametrize(
    ("name", "first", "upstream", "others"),
    [
        ("spd/headline", "naive_bf16", {"amp": "bf16"}, "naive"),
        ("latentwire/goals", "naive", {"lm_dtype": "bf16"}, "naive"),
        ("latentwire/batch32", "naive", {"lm_dtype": "bf16"}, "naive"),
        ("latentwire/full", "naive_batch32", {"lm_dtype": "bf16"}, "naive_batch32"),
        ("latentwire/full8b", "naive_batch32", {"lm_dtype": "bf16"}, "naive_batch32"),
    ],
)
def test_upstreams_default_type_is_a_baseline(
    name: str, first: str, upstream: dict[str, str], others: str
) -> None:
    references = sweep(name)["references"]
    assert next(iter(references)) == first
    assert references[f"{others}_bf16"] == {**references[others], **upstream}
