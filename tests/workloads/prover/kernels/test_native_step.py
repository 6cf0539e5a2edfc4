"""Choice and move in C++: what the tensor operations come to, row by row."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.prover.data.knowledge import ATOMS, MAX_DEPTH
from perfsweep.workloads.prover.maths.episodes import Rows
from perfsweep.workloads.prover.maths.greedy_choice import TAU, RaggedScores
from perfsweep.workloads.prover.maths.packing import Lists
from perfsweep.workloads.prover.variants import TOGGLES, arm

pytestmark = pytest.mark.skipif(compiler_here() is None, reason="no C++ compiler")
B, WIDTH = 60, 8


BASE = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def stepper(
    kernel: str, lists: Lists, waits: torch.Tensor, scores: RaggedScores, reuse: bool, phase=nullcontext
) -> Any:
    """An arm that has its lists and logits already: it only chooses and moves."""
    chosen = {"policy_rows": "ragged", "select_kernel": kernel, "obs_reuse": "on" if reuse else "off"}
    made: Any = object.__new__(arm({**BASE, **chosen}))
    made.phase, made.selected = phase, 0
    made.expand, made.ragged_scores = lambda rows, tally: (lists, waits), lambda rows, lists, tally: scores
    return made


def rows_of(generator: torch.Generator, reuse: bool) -> Rows:
    """Rows at any depth up to the last step; some are done."""
    depth = torch.arange(B) % MAX_DEPTH
    return Rows(
        current=torch.randint(1, 99, (B, ATOMS, 3), generator=generator, dtype=torch.int32),
        excluded=torch.ones(B, 3, dtype=torch.int32),
        history=torch.randint(-(2**62), 2**62, (B, MAX_DEPTH + 1), generator=generator),
        stored=depth + 1,
        depth=depth.clone(),
        done=torch.rand(B, generator=generator) < 0.2,
        success=torch.zeros(B, dtype=torch.bool),
        log_prob=torch.randn(B, generator=generator),
        ambiguous=torch.rand(B, generator=generator) < 0.1,
        actions=torch.full((B, MAX_DEPTH), -1, dtype=torch.int16),
        number=torch.arange(B),
        value=torch.randn(B, WIDTH if reuse else 0, generator=generator),
    )


def lists_of(generator: torch.Generator) -> Lists:
    """Lists of 0 to 9 successors; some rows have a proof, and then no list."""
    proof = torch.rand(B, generator=generator) < 0.2
    count = torch.where(proof, 0, torch.randint(0, 10, (B,), generator=generator))
    owner = torch.arange(B).repeat_interleave(count)
    n = len(owner)
    return Lists(
        states=torch.randint(1, 99, (n, ATOMS, 3), generator=generator, dtype=torch.int32),
        hashes=torch.randint(-(2**62), 2**62, (n,), generator=generator),
        mask=torch.ones(n, dtype=torch.bool),
        owner=owner,
        sizes=count,
        proof=proof,
        overflow=torch.rand(B, generator=generator) < 0.3,
    )


def scores_of(generator: torch.Generator, lists: Lists, screened: bool) -> RaggedScores:
    """Logits with ties, gaps on both sides of tau and at it; values in another order where screened."""
    n = len(lists.owner)
    steps = torch.tensor([0.0, 0.3 * TAU, TAU, 1.5 * TAU, 1.0, 30.0])
    logits = 2 - steps[torch.randint(0, 6, (n,), generator=generator)]
    last = 2 - steps[torch.randint(0, 6, (B,), generator=generator)]
    place = torch.randperm(n, generator=generator) if screened else None
    return RaggedScores(logits, last, torch.randn(n, WIDTH, generator=generator), place)


def both(seed: int, screened: bool, reuse: bool):
    """The same step by the kernel and by tensor operations: rows and tally of each."""
    generator = torch.Generator().manual_seed(seed)
    lists = lists_of(generator)
    scores = scores_of(generator, lists, screened)
    waits = torch.rand(B, generator=generator) < 0.1
    found = []
    for native in (True, False):
        rows = rows_of(torch.Generator().manual_seed(seed + 1), reuse)
        made = stepper("native" if native else "torch", lists, waits, scores, reuse)
        found.append(made.step(rows))
    return found


def differences(first: Rows, second: Rows) -> set[str]:
    """Fields that are not equal; log-probabilities may round."""
    same = {
        name: torch.allclose(own, other, atol=1e-6) if name == "log_prob" else torch.equal(own, other)
        for name, own, other in zip(Rows._fields, first, second, strict=True)
    }
    return {name for name, equal in same.items() if not equal}


@pytest.mark.parametrize("screened", [False, True])
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_rows_come_out_as_by_tensor_operations(seed, screened, reuse):
    (native, counted), (torch_rows, expected) = both(seed, screened, reuse)
    assert differences(native, torch_rows) == set()
    assert bool((native.depth > 0).any() and native.success.any() and native.ambiguous.any())
    for name in ("useful_row_steps", "states_real", "overflow", "deferred"):
        assert counted[name] == int(expected[name]), name


def test_rows_that_are_done_before_stay_known_to_the_schedule_and_each_phase_is_timed_once():
    generator = torch.Generator().manual_seed(0)
    lists, rows = lists_of(generator), rows_of(generator, reuse=True)
    before, phases = rows.done.clone(), []

    def phase(name: str):
        phases.append(name)
        return nullcontext()

    scores, waits = scores_of(generator, lists, False), torch.zeros(B, dtype=torch.bool)
    made = stepper("native", lists, waits, scores, reuse=True, phase=phase)
    after, _ = made.step(rows)
    assert phases == ["expand", "policy", "select"]
    assert torch.equal(rows.done, before) and bool((after.done & ~before).any())
    assert made.selected == int((~before).sum())
