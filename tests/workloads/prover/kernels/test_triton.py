"""The CUDA kernels without a GPU: results in Triton's interpreter, and code for three kinds of GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from triton_targets import build, interpreted

from perfsweep.workloads.prover.data.knowledge import ATOMS
from perfsweep.workloads.prover.kernels.triton_expand import PLACES, SLOTS, _expand
from perfsweep.workloads.prover.kernels.triton_trunk import _activate
from perfsweep.workloads.prover.maths.packing import CAP

MATHS = Path(__file__).parents[1] / "maths"

EXPANSION = """
import json
import test_resolution as resolution
from perfsweep.workloads.prover.data.generator import generate

wrong, walked = [], 0
for name, size in (("kinship", 2), ("countries", 30)):
    kb = resolution.KnowledgeBase.build(generate(name, size, 0, 0.2, 0))
    resolver = resolution.resolver_of(kb)
    cases = resolution.walks(resolver, [tuple(fact) for fact in kb.facts.tolist()], 2, seed=1)[:8]
    for path in ({}, {"policy_rows": "ragged", "index_dtype": "int32"}):
        wrong += resolution.against_oracle(kb, cases, {"expand_kernel": "triton", **path}, resolver)
        walked += len(cases)
print(json.dumps([list(map(str, wrong)), walked]))
"""


@pytest.mark.workloads
def test_interpreted_expansion_makes_the_oracles_lists() -> None:
    wrong, walked = interpreted(EXPANSION, MATHS)
    assert (wrong, walked) == ([], 22)


@pytest.mark.slow
@pytest.mark.parametrize(("products", "architecture"), [("fp32", 80), ("bf16", 90), ("bf16", 100)])
def test_a_layer_compiles_without_spilling(
    products: str, architecture: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    arguments = {
        **dict.fromkeys(("product_ptr", "next_ptr"), f"*{products}"),
        **dict.fromkeys(("bias_ptr", "scale_ptr", "shift_ptr", "x_ptr"), "*fp32"),
        "width": "i32",
        "eps": "fp32",
    }
    built = build(_activate, arguments, {"RESIDUAL": True, "W": 256}, architecture)
    assert (built.spilled, built.shared <= 48 * 1024) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize(("index", "architecture"), [("i64", 80), ("i32", 90), ("i32", 100)])
def test_expansion_compiles_and_spills_two_values_at_most(
    index: str, architecture: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = {"A": ATOMS, "PLACE_COUNT": CAP, "S": SLOTS, "P": PLACES}
    others = {
        **dict.fromkeys(("current_ptr", "excluded_ptr", "states_ptr"), f"*{index}"),
        **dict.fromkeys(("mask_ptr", "proof_ptr", "overflow_ptr"), "*i8"),
        "done_ptr": "*i1",
        "multiplier": "i64",
    }
    arguments = {
        name: others.get(name, "*i64" if name.endswith("_ptr") else "i32")
        for name in _expand.arg_names
        if name not in constants
    }
    built = build(_expand, arguments, constants, architecture)
    assert built.spilled <= 16
    assert built.shared <= 48 * 1024
