"""The transformer of importances against one that is written out position by position, and in all its uses.

`plain` follows the published description by sums over heads, positions and features; it imports nothing from
what it checks.
"""

# Drives `importance` and `decomposition` of perfsweep.workloads.spd.maths.
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gradients_apart import worst

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import decompose, upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.maths.sites import unstack
from perfsweep.workloads.spd.training.targets import Given

MODULES = ["embed", "out", "body.*"]
KIND = "global_shared_transformer"
HEADS, BASE = 2, 100.0
SIZES = {"width": 8, "blocks": 2, "heads": HEADS, "context": 6, "base": BASE}
OWN: dict[str, Any] = {
    "target": "tests:Network",
    "tokens_path": "given",
    "counts": {"out": 4, "embed": 3, "body.*": 5},
    "importance": KIND,
    "hidden": [7, 6],
    "transformer": SIZES,
    "seq_len": 5,
    "eval_every": 0,
    "save_every": 0,
    "dtype": "float64",
}


def unit(x: np.ndarray) -> np.ndarray:
    return x / math.sqrt(np.mean(x**2) + np.finfo(x.dtype).eps)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * one * (1 + math.erf(one / math.sqrt(2))) for one in x])


def turned(x: np.ndarray, position: int) -> np.ndarray:
    """One head's vector with each pair (i, i + D/2) rotated by its angle."""
    half, found = len(x) // 2, np.empty_like(x)
    for i in range(half):
        angle = position * float(np.float32(1 / BASE ** (np.float32(2 * i) / len(x))))
        found[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        found[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
    return found


def attention(rows: list[np.ndarray], w: dict[str, np.ndarray], prefix: str) -> list[np.ndarray]:
    q, k, v, out = (w[f"{prefix}.attn.{name}_proj.weight"] for name in ("q", "k", "v", "out"))
    size = len(q) // HEADS
    found = []
    for s, x in enumerate(rows):
        mixed = []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            query = turned((q @ x)[part], s)
            scores = [query @ turned((k @ y)[part], t) / math.sqrt(size) for t, y in enumerate(rows)]
            shares = np.exp(np.array(scores) - max(scores))
            mixed.append(
                sum(share * (v @ y)[part] for share, y in zip(shares / shares.sum(), rows, strict=True))
            )
        found.append(out @ np.concatenate(mixed))
    return found


def plain(read: dict[str, np.ndarray], w: dict[str, np.ndarray], blocks: int) -> list[np.ndarray]:
    """g of all modules in the order of their names, at each position of one row."""
    positions = len(next(iter(read.values())))
    joined = [np.concatenate([unit(read[name][s]) for name in sorted(read)]) for s in range(positions)]
    stream = [x @ w["_input_projector.W"] + w["_input_projector.b"] for x in joined]
    for block in range(blocks):
        prefix = f"_blocks.{block}"
        moved = attention([unit(x) for x in stream], w, prefix)
        stream = [x + y for x, y in zip(stream, moved, strict=True)]
        for s, x in enumerate(stream):
            h = unit(x)
            for layer in (0, 2, 4):
                h = h @ w[f"{prefix}.mlp.{layer}.W"] + w[f"{prefix}.mlp.{layer}.b"]
                h = h if layer == 4 else gelu(h)
            stream[s] = x + h
    return [x @ w["_output_head.W"] + w["_output_head.b"] for x in stream]


def exported(workload: Any) -> dict[str, torch.Tensor]:
    decomposition = workload.arm.decomposition
    target = workload.arm.target
    return upstream.exported(decomposition.state(), target, workload.arm.sites, decomposition.frequencies)


@pytest.mark.parametrize("levels", [{}, {"patching": "wrapper", "stack_modules": "stacked"}], ids=len)
def test_importances_are_those_of_the_published_transformer(start, run, network, tokens, levels) -> None:
    workload = start(config=OWN, given=Given(network, tokens), **levels)
    run(workload, 1)
    with torch.no_grad():
        for parameter in workload.arm.decomposition.importance_parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    theirs = exported(workload)
    w = {n.removeprefix("ci_fn._global_ci_fn."): t.numpy() for n, t in theirs.items() if "_global_ci_fn" in n}
    assert w["_blocks.1.attn.rope.inv_freq"].shape == (2,)
    batch = workload.arm.first_batch()
    objective = workload.arm
    moment = objective.moment(batch, objective.decomposition.operands(), NullClock())
    names, V = sorted(moment.inputs), theirs["_components.embed.V"]
    read = {name: (V[batch] if name == "embed" else x).numpy() for name, x in moment.inputs.items()}
    counts = np.cumsum([{"out": 4, "embed": 3}.get(name, 5) for name in names])[:-1]
    lower = {name: value.detach().numpy() for name, value in unstack(moment.lower).items()}
    for row in range(2):
        g = np.array(plain({name: x[row] for name, x in read.items()}, w, blocks=2))
        for name, expected in zip(names, np.split(g, counts, -1), strict=True):
            np.testing.assert_allclose(lower[name][row], expected.clip(0, 1), atol=1e-6)
    assert {round(float(value), 3) for value in lower["out"].flat} > {0.0}


def test_exact_forms_agree_and_every_weight_learns(gradients_of, network, tokens) -> None:
    fast = {"patching": "wrapper", "delta": "folded", "stack_modules": "stacked", "routed_rows": "gathered"}
    naive, other = (gradients_of(config=OWN, given=Given(network, tokens), **levels) for levels in ({}, fast))
    assert worst(other, naive) <= 1e-11
    assert all(value.norm() > 0 for value in naive.values())


def test_it_goes_to_upstreams_names_and_comes_back(start, run, network, tokens) -> None:
    first = start(config=OWN, given=Given(network, tokens))
    run(first, 1)
    values, theirs = first.arm.decomposition.state(), exported(first)
    assert theirs["ci_fn._global_ci_fn._blocks.1.mlp.4.W"].shape == (6, 8)
    second = start(config=OWN, given=Given(network, tokens, theirs))
    found = second.arm.decomposition.state()
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name], value) for name, value in values.items())


def test_a_transformer_with_other_rotary_positions_is_refused(start, network, tokens) -> None:
    theirs = exported(start(config=OWN, given=Given(network, tokens)))
    config = {**OWN, "transformer": {**SIZES, "base": 10 * BASE}}
    with pytest.raises(ConfigError, match=r"workload\.transformer: the rotary frequencies of the checkpoint"):
        start(config=config, given=Given(network, tokens, theirs))


def test_vectors_are_rows_of_one_position() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    vectors = np.random.default_rng(0).random((60, 5), dtype=np.float32)
    own: dict[str, Any] = {"importance": KIND, "hidden": [6], "transformer": SIZES, "batch_size": 8}
    with decompose(network, vectors, {"*": 6}, steps=2, **own) as found:
        together = found.importances(vectors[:8])["2"]
        alone = found.importances(vectors[:1])["2"]
    torch.testing.assert_close(together[:1], alone)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"transformer": None}, r"\{width: 64, blocks: 2, heads: 4\}"),
        ({"importance": "shared_mlp"}, r"left out without importance=global_shared_transformer"),
        ({"transformer": {"width": 8, "blocks": 1}}, r"width, blocks and heads, and where wanted"),
        ({"transformer": {**SIZES, "blocks": 0}}, r"of whole numbers from 1"),
        ({"transformer": {**SIZES, "heads": 8}}, r"of heads of an even width"),
        ({"transformer": {**SIZES, "context": 4}}, r"of a context from workload\.seq_len=5"),
    ],
)
def test_sizes_that_make_no_transformer_are_refused(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"^workload\.transformer=.* cannot be used: it must be {rule}"):
        SpdConfig(**{**OWN, **changed})
