"""Sixteen-bit products: how far they move results, and what stays in full precision."""

from __future__ import annotations

import pytest

from perfsweep.workloads.spd.variants.precision import BFLOAT16, HALF_IN_MAIN_PASS

QUIET = {
    "modules": ["layers.*.attn.q", "layers.*.mlp.fc"],
    "components": 12,
    "log_every": 1000,
    "eval_every": 1000,
    "save_every": 1000,
}


@pytest.fixture
def evidence_of(start, run):
    def compute(**levels):
        workload = start(config=QUIET, kind="evidence", **levels)
        run(workload, 2)
        return workload.evidence()

    return compute


def cosine_loss(a, b) -> float:
    a, b = a.double().flatten(), b.double().flatten()
    return 1 - (a @ b / (a.norm() * b.norm())).item()


@pytest.mark.parametrize(
    ("level", "bounds"),
    [("bf16", BFLOAT16), pytest.param("fp16", HALF_IN_MAIN_PASS, marks=pytest.mark.workloads)],
)
def test_sixteen_bit_products_stay_within_their_bounds_and_round(evidence_of, level, bounds) -> None:
    base, arm = evidence_of(pgd_inner="detached"), evidence_of(amp=level, pgd_inner="detached")
    losses = (arm.tensors["losses"] - base.tensors["losses"]).norm() / base.tensors["losses"].norm()
    assert losses <= bounds["losses"]
    # Faithfulness stays in full precision and outweighs the rest of the total: rounding shows in these.
    assert (arm.tensors["divergence"] - base.tensors["divergence"]).abs().max() > 0
    assert (
        cosine_loss(arm.tensors["importance_mean"], base.tensors["importance_mean"])
        <= bounds["importance_mean"]
    )
    rows = zip(arm.tensors["importance_worst"], base.tensors["importance_worst"], strict=True)
    assert max(cosine_loss(a, b) for a, b in rows) <= bounds["importance_worst"]


@pytest.mark.parametrize("level", ["off", "bf16"])
def test_an_exact_factorisation_stays_faithful_under_any_precision(evidence_of, level) -> None:
    assert evidence_of(amp=level).numbers["exact_faithfulness"] < 1e-12
