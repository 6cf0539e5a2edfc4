"""The proof policy: a tie-free embedding, a residual trunk, and logits as products of values.

Names of dimensions: N states, A atoms, E embedding, D width, L residual layers.

``e(s) = sum_k decay^k (P[p_k] + U[a0_k] + V[a1_k])`` over real slots k. Its decay is 1/2, for powers of two
have distinct subset sums, so that distinct states differ; that of upstream's networks is 1.
``v = out(relu(hidden(trunk(e))))``, and ``logit = <v(current), v(successor)> / sqrt(E)``.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.prover.data.knowledge import ATOMS, Vocabulary

EPS = 1e-5
CHUNK = 512
"""States of one pass through the network on a CPU: more fall out of its second-level cache."""
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class PolicyShape:
    """Sizes of the network, E, D and L, and how much a slot counts of the one before it."""

    embedding: int = 250
    width: int = 256
    layers: int = 8
    decay: float = 0.5


def make_weights(shape: PolicyShape, vocabulary: Vocabulary, seed: int, gain: float = 1.0) -> Weights:
    """Random weights by name, float32 on the CPU: tables N(0, 1), zero for padding; layers as PyTorch's.

    The last layer is scaled by `gain`, and logits with its square.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = _tables(shape, vocabulary)
        for layer in range(shape.layers + 1):
            weights |= _linear(f"trunk.{layer}", shape.embedding if layer == 0 else shape.width, shape.width)
            weights[f"trunk.{layer}.scale"] = torch.ones(shape.width)
            weights[f"trunk.{layer}.shift"] = torch.zeros(shape.width)
        for name, columns in (("hidden", shape.width), ("out", shape.embedding)):
            weights |= _linear(name, shape.width, columns)
    for part in ("weight", "bias"):
        weights[f"out.{part}"] = weights[f"out.{part}"] * gain
    return weights


def _tables(shape: PolicyShape, vocabulary: Vocabulary) -> Weights:
    tables = {"P": torch.randn(vocabulary.true + 3, shape.embedding)}
    terms = ["U", "V", *(f"V{place}" for place in range(2, vocabulary.arity))][: vocabulary.arity]
    for name in terms:
        tables[name] = torch.randn(vocabulary.base, shape.embedding)
    for table in tables.values():
        table[0] = 0  # padding adds nothing to a sum
    return tables


def _linear(name: str, inputs: int, outputs: int) -> Weights:
    linear = torch.nn.Linear(inputs, outputs)
    return {f"{name}.weight": linear.weight.data, f"{name}.bias": linear.bias.data}


def weights_digest(weights: Weights) -> str:
    """SHA-256 over all weights."""
    sha = hashlib.sha256()
    for name in sorted(weights):
        sha.update(name.encode() + weights[name].detach().cpu().numpy().tobytes())
    return sha.hexdigest()[:16]


def macs(shape: PolicyShape, folded: bool) -> int:
    """Multiply-adds of one state: the folded form leaves out the first and the last product."""
    inner = (shape.layers + 1) * shape.width**2
    return inner if folded else inner + 2 * shape.embedding * shape.width


def embed(weights: Weights, states: Tensor, decay: float) -> Tensor:
    """Tables summed over slots, gathered slot by slot: [N, A, 1+r] to [N, E]."""
    states = states.long()
    slots = weights["P"][states[..., 0]]
    for place, name in enumerate(term_tables(weights), 1):
        slots = slots + weights[name][states[..., place]]
    return (slots * slot_scale(states.shape[1], decay, slots)[:, None]).sum(1)


def term_tables(weights: Weights) -> list[str]:
    """Names of the term tables in the order of arguments."""
    return [name for name in ("U", "V", *(f"V{place}" for place in range(2, 8))) if name in weights]


def slot_scale(slots: int, decay: float, like: Tensor) -> Tensor:
    """decay^k of each slot k."""
    return like.new_full((slots,), decay).cumprod(0) / decay  # exact for powers of two, as torch.pow is not


def layer_normed(x: Tensor, weights: Weights, layer: int) -> Tensor:
    """LN(ReLU(x)) of one trunk layer, in float32 whatever the products are."""
    x = F.relu(x).float()
    return F.layer_norm(
        x, x.shape[-1:], weights[f"trunk.{layer}.scale"], weights[f"trunk.{layer}.shift"], EPS
    )


class Policy:
    """Values of states and logits of pairs, in one of two exact forms.

    plain: values are v [., E]. folded: the first product lies in the tables, the last is applied to the
    current state alone, so values are what goes into it, h [., D], and ``<v, W h + b> = <W^T v, h> + <v,
    b>``.

    Parameters
    ----------
    low : whether products run in bfloat16
    """

    def __init__(self, weights: Weights, shape: PolicyShape, folded: bool = False, low: bool = False) -> None:
        self.weights, self.shape, self.folded, self.low = weights, shape, folded, low
        self.macs = macs(shape, folded)
        self.products = {name: self._product_weight(name) for name in weights if name.endswith("weight")}
        self.table = self._folded_table() if folded else None
        self.key_product = self._key_product() if folded else None
        self.width = shape.width if folded else shape.embedding

    def _product_weight(self, name: str) -> Tensor:
        return self.weights[name].to(torch.bfloat16) if self.low else self.weights[name]

    def _folded_table(self) -> Tensor:
        """All tables in a row, multiplied by the first layer's weight: [rows, D]."""
        tables = torch.cat([self.weights[name] for name in ("P", *term_tables(self.weights))])
        return tables @ self.weights["trunk.0.weight"].T

    def _key_product(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The last product and its transpose as one, scaled: from h to ``W^T v`` and ``<v, b>``.

        Returns
        -------
        [D, D] and [D] for the key, [D] and [] for its offset.
        """
        own = self.weights["out.weight"].dtype
        weight, bias = self.weights["out.weight"].double(), self.weights["out.bias"].double()
        scale = 1 / math.sqrt(self.shape.embedding)
        parts = (weight.T @ weight, bias @ weight, weight.T @ bias, bias @ bias)
        key, key_bias, offset, offset_bias = ((scale * part).to(own) for part in parts)
        return key, key_bias, offset, offset_bias

    def linear(self, x: Tensor, name: str) -> Tensor:
        """One product, in the type of the weights."""
        weight = self.products[f"{name}.weight"]
        bias = self.weights[f"{name}.bias"]
        return F.linear(x.to(weight.dtype), weight, bias.to(weight.dtype))

    def first(self, states: Tensor) -> Tensor:
        """What enters the first ReLU: [N, A, 1+r] to [N, D]."""
        if self.table is None:
            return self.linear(embed(self.weights, states, self.shape.decay), "trunk.0")
        flat = self._table_rows(states)
        slots = slot_scale(states.shape[1], self.shape.decay, self.table)
        scale = slots[:, None].expand(-1, states.shape[2]).reshape(1, -1)
        found = F.embedding_bag(
            flat, self.table, per_sample_weights=scale.expand_as(flat).contiguous(), mode="sum"
        )
        return found + self.weights["trunk.0.bias"]

    def _table_rows(self, states: Tensor) -> Tensor:
        """Rows of the folded table [N, A (1+r)]; padding meets the zero rows."""
        terms = [
            self.weights["P"].shape[0],
            *(self.weights["U"].shape[0] for _ in range(states.shape[2] - 2)),
        ]
        offsets = torch.tensor([0, *terms], device=states.device).cumsum(0)
        return (states.long() + offsets).flatten(1)

    def hidden(self, states: Tensor) -> Tensor:
        """What enters the last product: [N, A, 1+r] to [N, D]."""
        x = layer_normed(self.first(states), self.weights, 0)
        for layer in range(1, self.shape.layers + 1):
            x = x + layer_normed(self.linear(x, f"trunk.{layer}"), self.weights, layer)
        return F.relu(self.linear(x, "hidden")).float()

    def values(self, states: Tensor) -> Tensor:
        """What is kept of a state: [N, A, 1+r] to [N, E] or, folded, [N, D]."""
        h = self.hidden(states)
        return h if self.folded else self.linear(h, "out").float()

    def keys(self, current: Tensor) -> tuple[Tensor, Tensor]:
        """What successors' values are multiplied with, scaled: values [B, .] to [B, .] and [B]."""
        if self.key_product is None:
            return current * (1 / math.sqrt(self.shape.embedding)), torch.zeros_like(current[:, 0])
        key, key_bias, offset, offset_bias = self.key_product
        return torch.addmm(key_bias, current, key), torch.addmv(offset_bias, current, offset)

    def dots(self, values: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
        """Logits [n] of values [n, .] with the keys [B, .] and offsets [B] of their owners [n]."""
        return (values * keys[owner]).sum(1) + offset[owner]

    def screening_values(self, states: Tensor) -> Tensor:
        """Values that go into products at once."""
        return self.values(states)

    def state_logits(self, states: Tensor, keys: Tensor, offset: Tensor, owner: Tensor) -> Tensor:
        """Logits [n] of states [n, A, 1+r] whose values are not kept; on a CPU a cacheful at a time."""
        step = max(len(states), 1) if states.is_cuda else CHUNK
        parts = [slice(start, start + step) for start in range(0, len(states), step)]
        found = [self.dots(self.screening_values(states[part]), keys, offset, owner[part]) for part in parts]
        return torch.cat(found) if found else offset[:0]


def constant_states(vocabulary: Vocabulary) -> Tensor:
    """TRUE, FALSE and END as states [3, A, 1+r]."""
    states = torch.zeros(3, ATOMS, 1 + vocabulary.arity, dtype=torch.int64)
    states[:, 0, 0] = torch.arange(3) + vocabulary.true
    return states
