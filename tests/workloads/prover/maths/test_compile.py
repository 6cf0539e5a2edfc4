"""The step as one graph: same choices, no compilation after an exact warm-up, one more graph per size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from perfsweep.workloads.prover.data.hashing import hash_states

pytestmark = pytest.mark.slow

SMALL = {"queries": 3, "corruptions": 5, "modes": "head,tail"}
STATIC = {
    "fact_index": "csr",
    "pack_width": "tight",
    "rule_pairs": "exact",
    "index_dtype": "int32",
    "policy_rows": "row_budget",
    "obs_reuse": "on",
    "const_states": "on",
    "forced_skip": "on",
    "fold": "on",
    "compaction": "scan",
}
SLAB = {"compile": "default", "slab_size": 8, "warmup": "exact"}


@pytest.fixture(autouse=True)
def uncompiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def naive_choices(solve):
    """What the path chooses from which nothing was left out."""
    return solve({}, **SMALL).evidence()


def same(one, other):
    return all(
        np.array_equal(one.tensors[name], other.tensors[name])
        for name in ("success", "depth", "actions", "rank")
    )


def test_without_padding_the_last_slab_compiles_again(solve, no_generated_code):
    workload = solve({**SLAB, "slab_size": 7}, **SMALL)
    assert workload.counters()["compiled_steps"] > 0
    assert workload.counters()["recompiles_after_warmup"] >= 1


LEFT_OUT = {**STATIC, **SLAB, "slab_size": 32, "pad_to_slab": "done_row"}


def leaves_finished_rows_out(workload, choices) -> bool:
    """Without a new shape, and without another rank."""
    return workload.counters()["recompiles_after_warmup"] == 0 and same(workload.evidence(), choices)


def test_generated_code_of_the_static_step_is_refilled_and_changes_no_rank(solve, naive_choices):
    assert leaves_finished_rows_out(solve({**LEFT_OUT, "refill": "queue"}, **SMALL), naive_choices)


def test_buckets_of_compiled_steps_need_no_new_shape_and_change_no_rank(
    solve, naive_choices, no_generated_code
):
    assert leaves_finished_rows_out(solve({**LEFT_OUT, "skip_done": "compact"}, **SMALL), naive_choices)


def test_compiled_hashes_of_narrow_states_are_the_eager_ones():
    """Signed overflow wraps in eager kernels but is undefined in C++; narrow strided states showed it."""
    states = torch.randint(
        1, 200, (64, 26, 6, 3), dtype=torch.int32, generator=torch.Generator().manual_seed(1)
    )
    states[..., 3:, :] = 0
    hashed = torch.compile(lambda states: hash_states(states, 211), dynamic=False, fullgraph=True)
    assert torch.equal(hashed(states), hash_states(states, 211))
