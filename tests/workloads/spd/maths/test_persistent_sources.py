"""Persistent sources against a plain loop of PyTorch's own Adam, over whole iterations.

`Reference` knows V, U, importances and the batch of an iteration; it computes masked outputs, losses and the
moves of the sources by itself, and imports nothing from what it checks.
"""

# Drives `masked_passes` of perfsweep.workloads.spd.maths, and `masking` of perfsweep.workloads.spd.variants.
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tables.spd import FAST
from torch import Tensor, nn

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.maths.adversarial_sources import KeptSources
from perfsweep.workloads.spd.training.targets import Given
from perfsweep.workloads.spd.workload import Spd

NAMES = ["body.0", "body.2"]
OWN: dict[str, Any] = {
    "target": "tests:Network",
    "tokens_path": "given",
    "counts": {"body.*": 4},
    "importance": "shared_mlp",
    "hidden": [3],
    "coefficients": {
        "persistent_pgd": 0.5,
        "minimality": 0,
        "stochastic_subset": 0,
        "pgd_subset": 0,
        "faithfulness": 0,
    },
    "batch_size": 4,
    "seq_len": 5,
    "steps": 8,
    "lr": 0.01,
    "warmup_steps": 0,
    "eval_every": 0,
    "save_every": 0,
    "dtype": "float64",
}
SUBSET = {**OWN["coefficients"], "persistent_pgd": 0, "persistent_pgd_subset": 0.5}
SLOW = {"lr": 0.05, "schedule": "linear", "final_lr": 0.2, "lr_warmup": 0.25}
LEAD = torch.Size([4, 5])
FLAGSHIP = {"scope": "per_batch_per_position", "steps": 2, "beta1": 0.5, "eps": 1e-3, **SLOW}
FLAGSHIP_RUN = {**OWN, "adversary": FLAGSHIP}


class Reference:
    """Plain sources of every module, and how they climb."""

    def __init__(
        self, network: nn.Module, first: dict[str, Tensor], adversary: dict[str, Any], iterations: int
    ):
        self.network, self.adversary, self.iterations = network, adversary, iterations
        self.sources = {name: nn.Parameter(s.clone()) for name, s in first.items()}
        betas = adversary.get("beta1", 0.9), adversary.get("beta2", 0.99)
        self.adam = torch.optim.Adam(
            self.sources.values(), lr=1.0, betas=betas, eps=adversary.get("eps", 1e-8), maximize=True
        )

    def rate(self, step: int) -> float:
        peak, warmup = (
            self.adversary.get("lr", 0.1),
            int(self.adversary.get("lr_warmup", 0) * self.iterations),
        )
        if step < warmup:
            return peak * step / warmup
        if self.adversary.get("schedule", "constant") == "constant":
            return peak
        done, last = (step - warmup) / (self.iterations - warmup - 1), self.adversary["final_lr"]
        return peak * (last + (1 - last) * (1 - done))

    def everywhere(self, name: str, rows: int, positions: int) -> Tensor:
        s = self.sources[name]
        s = torch.sigmoid(s) if self.adversary.get("sigmoid") else s
        chosen = torch.stack([s[row % len(s)] for row in range(rows)])
        return chosen.expand(rows, positions, -1)

    def loss(self, values: dict[str, Tensor], ci: dict[str, Tensor], batch: Tensor, routes: Any) -> Tensor:
        """KL(target || masked) per position."""
        layers = dict(self.network.named_modules())
        h = layers["embed"](batch)

        def masked(name: str, x: Tensor) -> Tensor:
            W, b = layers[name].weight, layers[name].bias
            V, U = (values[f"components.{name.replace('.', '-')}.{part}"] for part in "VU")
            s = self.everywhere(name, *batch.shape)
            C = V.shape[1]
            out = ((x @ V) * (ci[name] + (1 - ci[name]) * s[..., :C])) @ U
            if s.shape[-1] > C:
                out = out + s[..., C:] * (x @ (W.T - V @ U))
            out = out if b is None else out + b
            return out if routes is None else torch.where(routes[name].unsqueeze(-1), out, layers[name](x))

        found = layers["out"](h + masked("body.2", F.gelu(masked("body.0", h))))
        logs = F.log_softmax(self.network(batch), -1)
        return F.kl_div(F.log_softmax(found, -1), logs, log_target=True, reduction="sum") / batch.numel()

    def climb(self, loss: Tensor, step: int) -> None:
        for s, g in zip(
            self.sources.values(), torch.autograd.grad(loss, list(self.sources.values())), strict=True
        ):
            s.grad = g
            if self.adversary.get("optimizer") == "sign":
                s.data += self.rate(step) * g.sign()
        if self.adversary.get("optimizer") != "sign":
            self.adam.param_groups[0]["lr"] = self.rate(step)
            self.adam.step()
        if not self.adversary.get("sigmoid"):
            for s in self.sources.values():
                s.data.clamp_(0, 1)


def each_module(stacks: Any) -> dict[str, Tensor]:
    found = {name: t if len(key) == 1 else t[k] for key, t in stacks.items() for k, name in enumerate(key)}
    return {name: found[name].detach() for name in NAMES}


def compared(workload: Spd, network: nn.Module, adversary: dict[str, Any], iterations: int) -> float:
    """The worst relative difference of a loss or a source over some iterations."""
    arm, batches, routes = workload.arm, [], []
    (spec,) = workload.config.recipe.losses

    def watched(batch: Tensor, clock: Any) -> Any:
        batches.append(batch)
        return advance(batch, clock)

    advance, drawn, importances = arm.advance, arm.draws.routes, []
    original = arm.importances

    def seen(*inputs: Any) -> Any:
        importances.append(original(*inputs))
        return importances[-1]

    arm.importances = seen
    arm.draws.routes = lambda lead: routes.append(drawn(lead)) or routes[-1]
    arm.advance = watched
    first = each_module(arm.kept.of(spec, LEAD))
    reference = Reference(network.double(), first, adversary, workload.config.recipe.steps)
    worst = 0.0
    for step in range(iterations):
        values = {n: t.detach().clone() for n, t in arm.decomposition.state().items()}
        for kept in (batches, routes, importances):
            kept.clear()
        workload.step(NullClock())
        ci = each_module(importances[0][0])
        subset = iter(routes) if routes else None
        for _ in range(adversary.get("steps", 0)):
            reference.climb(reference.loss(values, ci, batches[0], subset and next(subset)), step)
        expected = reference.loss(values, ci, batches[0], subset and next(subset))
        reference.climb(expected, step)
        assert subset is None or next(subset, None) is None
        worst = max(worst, abs(arm.total.item() / (0.5 * expected.item()) - 1))
        for name, s in each_module(arm.kept.of(spec, LEAD)).items():
            worst = max(worst, (s - reference.sources[name]).abs().max().item())
    return worst


@pytest.mark.parametrize("levels", [{}, FAST], ids=["naive", "fast"])
@pytest.mark.parametrize(
    ("adversary", "changed"),
    [
        ({}, {}),
        ({"scope": "broadcast_across_batch", "optimizer": "sign", "lr": 0.2, "steps": 1}, {}),
        (
            {"scope": "repeat_across_batch", "n_sources": 2, "sigmoid": True, "steps": 1},
            {"coefficients": SUBSET},
        ),
        (FLAGSHIP, {}),
        (FLAGSHIP, {"coefficients": SUBSET, "delta_component": False}),
    ],
    ids=["single", "broadcast sign", "repeat sigmoid subset", "flagship", "subset without delta"],
)
def test_sources_climb_as_a_plain_loop_has_them(start, network, tokens, levels, adversary, changed) -> None:
    workload = start(
        config={**OWN, "adversary": adversary, **changed},
        given=Given(copy.deepcopy(network), tokens),
        **levels,
    )
    (spec,) = workload.config.recipe.losses
    first = each_module(workload.arm.kept.of(spec, LEAD))
    assert compared(workload, network, adversary, iterations=4) <= 1e-9
    moved = each_module(workload.arm.kept.of(spec, LEAD))
    assert all((moved[name] - s).abs().max() > 0.01 for name, s in first.items())


def test_a_training_goes_on_with_its_sources(start, run, network, tokens, tmp_path) -> None:
    first, second = (start(config=FLAGSHIP_RUN, given=Given(copy.deepcopy(network), tokens)) for _ in "ab")
    run(first, 2)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    run(first, 2)
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    run(second, 2)
    assert first.arm.total.item() == second.arm.total.item()
    one, other = (w.arm.kept for w in (first, second))
    assert isinstance(one, KeptSources)
    (spec,) = first.config.recipe.losses
    for name, s in each_module(one.of(spec, LEAD)).items():
        assert torch.equal(s, each_module(other.of(spec, LEAD))[name])


def test_what_parity_compares_is_taken_before_any_source_moves(start, network, tokens) -> None:
    workload = start(config=FLAGSHIP_RUN, given=Given(copy.deepcopy(network), tokens), kind="evidence")
    assert workload.state_dict()["sources"]["persistent"]["sources"] == {}
    assert workload.replayable() is None
    other = start(config=FLAGSHIP_RUN, given=Given(copy.deepcopy(network), tokens), kind="evidence", **FAST)
    torch.testing.assert_close(
        other.evidence().tensors["gradients"], workload.evidence().tensors["gradients"]
    )


@pytest.mark.parametrize("levels", [{"pgd_steps": "every_k"}, {"cuda_graph": "on"}, {"amp": "fp16"}], ids=str)
def test_levels_that_would_move_sources_otherwise_are_refused(levels) -> None:
    space = Space(Spd.toggles, SpdConfig(**OWN))
    with pytest.raises(ConfigError, match=r"is refused: (sources of persistent terms|persistent terms hand)"):
        space.legal(space.closure(levels))


@pytest.mark.parametrize(
    ("adversary", "rule"),
    [
        ({"optimizer": "adamw"}, "one whose optimizer is one of adam, sign"),
        ({"scope": "batch"}, "one whose scope is one of single_source"),
        ({"steps": -1}, "one whose steps is a whole number from 0"),
        ({"beta2": 1.0}, "one whose beta2 is from 0 to below 1"),
        ({"lr": 0}, "one whose lr is a number above 0"),
        ({"momentum": 0.9}, "of optimizer, lr, schedule"),
        ({"n_sources": 3}, "of an n_sources that divides the 4 rows"),
    ],
)
def test_an_adversary_that_cannot_be_is_refused(adversary: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"^workload\.adversary=.* cannot be used: it must be {rule}"):
        SpdConfig(**{**OWN, "adversary": adversary})


@pytest.mark.parametrize(
    ("changed", "field"), [({"microbatches": 2}, "microbatches"), ({"drop_last": False}, "drop_last")]
)
def test_rows_of_an_iteration_stay_together_where_sources_are_kept(changed, field) -> None:
    with pytest.raises(ConfigError, match=rf"^workload\.{field}=.* where a term is persistent"):
        SpdConfig(**{**OWN, **changed})
    with pytest.raises(ConfigError, match=r"^workload\.adversary=.* left out where no term is persistent"):
        SpdConfig(adversary={"steps": 1})
