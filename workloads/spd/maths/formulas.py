"""A toy's iteration by formulas: every term and every gradient written down, without a graph.

With x the batch and H = x W1^T, a masked module is z = (w * a) U + mu y, where a = x V, y = x W^T and w = m -
mu. There are three passes: both modules replaced, the second alone, the first alone. Both draws of a module
go through one product, and so do the importance functions of both modules.

Dimensions: P draws (for both, for one alone), K modules, B rows, C subcomponents, h hidden features, f
features, d bottleneck.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.spd.maths.importance import StackedImportanceFn
from perfsweep.workloads.spd.maths.sites import Operands


class ImportanceFormulas:
    """Importance functions of both modules, one number in, one out, as a batch of K*C networks.

    Parameters
    ----------
    function : of all modules, kind mlp, with one hidden layer
    """

    def __init__(self, function: StackedImportanceFn) -> None:
        weights, biases = list(function.weights), list(function.biases)
        self.parameters = [*weights, *biases]
        networks = weights[0].shape[0] * weights[0].shape[1]
        # The same memory as the parameters, so that updates show here.
        self._first, self._second = (
            weights[0].detach().view(networks, 1, -1),
            weights[1].detach().view(networks, -1, 1),
        )
        self._biases = [bias.detach().view(networks, 1, -1) for bias in biases]

    def forward(self, a: Tensor) -> Tensor:
        """g [K, B, C] of activations [K, B, C]."""
        alone = a.transpose(1, 2).reshape(-1, a.shape[1], 1)
        # A column of ones next to the activation: the bias comes with the product, not spread before it.
        self._read = torch.cat([torch.ones_like(alone), alone], -1)
        self._z = torch.bmm(self._read, torch.cat([self._biases[0], self._first], 1))
        self._hidden = F.gelu(self._z)
        g = torch.bmm(self._hidden, self._second).add_(self._biases[1])
        return g.view(a.shape[0], a.shape[2], a.shape[1]).transpose(1, 2).contiguous()

    def backward(self, gradient: Tensor) -> tuple[Tensor, list[Tensor]]:
        """From the gradient towards g [K, B, C]: towards the activations [K, B, C], and of the parameters."""
        modules, rows, count = gradient.shape
        out = gradient.transpose(1, 2).reshape(-1, rows, 1)
        inner = torch.ops.aten.gelu_backward(torch.bmm(out, self._second.transpose(1, 2)), self._z)
        # The column of ones turns into the gradient of the bias.
        bias, first = torch.bmm(self._read.transpose(1, 2), inner).unbind(1)
        found = [first, torch.bmm(self._hidden.transpose(1, 2), out), bias, out.sum(1)]
        towards = torch.bmm(inner, self._first.transpose(1, 2)).view(modules, count, rows).transpose(1, 2)
        # Fused AdamW reads gradients as if laid out like parameters; a strided one hits wrong entries.
        return towards, [
            value.contiguous().view_as(own) for own, value in zip(self.parameters, found, strict=True)
        ]


class PassFormulas:
    """The three masked passes of a batch.

    Parameters
    ----------
    weights : W1 [d, f] and W2 [f, d] of the frozen target
    bias : added after the second module [f]
    pairs : V and U of both modules
    """

    def __init__(
        self, weights: tuple[Tensor, Tensor], bias: Tensor, pairs: tuple[Operands, Operands]
    ) -> None:
        self._down, self._up = weights
        self._bias = bias
        self._first, self._second = pairs

    def target(self, batch: Tensor) -> Tensor:
        """The target's own pass; activations of both modules [K, B, C]."""
        self._batch, self._hidden = batch, batch @ self._down.T
        self._output = torch.addmm(self._bias, self._hidden, self._up.T).clamp_(min=0.0)
        self._a = torch.stack([batch @ self._first.V, self._hidden @ self._second.V])
        return self._a

    def forward(self, weights: Tensor, deltas: Tensor) -> Tensor:
        """What the passes are off by [3, B, f]: both modules replaced, the second alone, the first alone.

        Parameters
        ----------
        weights, deltas : m - mu [P, K, B, C] and mu [P, K, B, 1]
        """
        self._weights, self._deltas = weights, deltas
        self._inner = weights[:, 0] * self._a[0]
        after = torch.addcmul(self._inner @ self._first.U, deltas[:, 0], self._hidden)
        # The pass that replaces the second module alone reads what the target's first one gives.
        self._read = torch.stack([after[0], self._hidden])
        self._middle = self._read @ self._second.V
        self._outer = weights[:, 1] * self._middle
        replaced = torch.addcmul(self._outer @ self._second.U, deltas[:, 1], self._read @ self._up.T)
        # The pass that replaces only the first module: the second module keeps its own weights.
        kept = after[1] @ self._up.T
        self._before = torch.cat([replaced, kept.unsqueeze(0)]).add_(self._bias)
        return self._before.clamp(min=0.0).sub_(self._output)

    def backward(self, gradient: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
        """From the gradient towards the outputs [3, B, f].

        Returns those towards the weights m - mu [P, K, B, C], the first module's activations [B, C], both U
        and the second V. The first V waits for what importances add to its activations.
        """
        # Through the ReLU at the end of the toy.
        raw = gradient * (self._before > 0)
        towards_outer = raw[:2] @ self._second.U.T
        towards_middle = towards_outer * self._weights[:, 1]
        both = torch.addmm((self._deltas[0, 1] * raw[0]) @ self._up, towards_middle[0], self._second.V.T)
        after = torch.stack([both, raw[2] @ self._up])
        towards_inner = after @ self._first.U.T
        towards = torch.stack([towards_inner * self._a[0], towards_outer * self._middle], 1)
        # Both draws read the same activations, so their gradients add up.
        activations = (towards_inner * self._weights[:, 0]).sum(0)
        found = (
            _product(self._inner, after),
            _product(self._outer, raw[:2]),
            _product(self._read, towards_middle),
        )
        return towards, activations, found

    def of_activations(self, towards: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of both V [in, C] from those of the target's activations [K, B, C]."""
        return self._batch.T @ towards[0], self._hidden.T @ towards[1]


def _product(rows: Tensor, gradients: Tensor) -> Tensor:
    """Sum over draws and rows of outer products, [P, B, i] and [P, B, o] to [i, o]."""
    return rows.flatten(0, 1).T @ gradients.flatten(0, 1)
