"""Decompositions go to upstream and come from there: the same parameters, losses and importances.

`TheirModel` is upstream's component model as its checkpoints describe it, written here by their names and its
published formulas; it imports nothing from what it checks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.training.targets import Given

MODULES = {"mlp": ["embed", "body.0", "body.2"], "vector_mlp": ["body.0", "out"], "shared_mlp": ["body.*"]}
P, BETA = 0.7, 0.2
TERMS = {"minimality": 2.0, "faithfulness": 3.0, "unmasked": 1.0, "ci_masked": 1.0, "stochastic": 1.0}


class Layer(nn.Module):
    """W and b, of one network [in, out] or of C of them [C, in, out]."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.zeros(*shape))
        self.b = nn.Parameter(torch.zeros(*shape[:-2], shape[-1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = x @ self.W if self.W.dim() == 2 else torch.einsum("...ci,cio->...co", x, self.W)
        return product + self.b


class TheirCi(nn.Module):
    """A causal-importance function: its layers at even places, exact GELUs between them."""

    def __init__(self, kind: str, width: int, hidden: list[int], count: int) -> None:
        super().__init__()
        self.kind = kind
        lead = () if kind == "shared_mlp" else (count,)
        sizes = [1 if kind == "mlp" else width, *hidden, count if kind == "shared_mlp" else 1]
        layers = [Layer(*lead, i, o) for i, o in pairwise(sizes)]
        parts = [part for layer in layers for part in (layer, nn.GELU())][:-1]
        self.layers = nn.Sequential(*parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "shared_mlp":
            return self.layers(x)
        x = x.unsqueeze(-1) if self.kind == "mlp" else x.unsqueeze(-2)
        return self.layers(x)[..., 0]


class TheirComponents(nn.Module):
    """V, U and, as a buffer, the module's own bias."""

    def __init__(self, rows: int, count: int, columns: int, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.V, self.U = nn.Parameter(torch.zeros(rows, count)), nn.Parameter(torch.zeros(count, columns))
        self.register_buffer("bias", bias)

    def acts(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.V if x.is_floating_point() else self.V[x]


class TheirModel(nn.Module):
    """Upstream's component model: a frozen network, components and importance functions."""

    def __init__(self, target: nn.Module, names: list[str], kind: str, hidden: list[int], count: int) -> None:
        super().__init__()
        self.target_model, self.names, self.kind = target.requires_grad_(False), names, kind
        self._components, self._ci_fns = nn.ModuleDict(), nn.ModuleDict()
        for name in names:
            leaf = target.get_submodule(name)
            rows, columns = self.matrix(name).shape
            key = name.replace(".", "-")
            bias = getattr(leaf, "bias", None)
            bias = None if bias is None else torch.zeros_like(bias)
            self._components[key] = TheirComponents(rows, count, columns, bias)
            self._ci_fns[key] = TheirCi(kind, rows, hidden, count)

    def matrix(self, name: str) -> torch.Tensor:
        """The weight as [in, out]."""
        leaf = self.target_model.get_submodule(name)
        return leaf.weight.T if isinstance(leaf, nn.Linear) else leaf.weight

    def masked(self, batch: torch.Tensor, masks: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
        """The output, components in place of the modules of `masks`, and what modules read."""
        read, handles = {}, []
        for name in self.names:

            def hook(_module, args, _output, name=name):
                read[name] = args[0]
                return self.replaced(name, args[0], *masks[name]) if name in masks else None

            handles.append(self.target_model.get_submodule(name).register_forward_hook(hook))
        try:
            return self.target_model(batch), read
        finally:
            for handle in handles:
                handle.remove()

    def replaced(self, name: str, x: torch.Tensor, mask: Any, delta: Any) -> torch.Tensor:
        pair = self._components[name.replace(".", "-")]
        out = (pair.acts(x) * mask) @ pair.U
        if delta is not None:
            rest = self.matrix(name) - pair.V @ pair.U
            out = out + delta.unsqueeze(-1) * (x @ rest if x.is_floating_point() else rest[x])
        return out if pair.bias is None else out + pair.bias

    def importances(self, read: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Pre-sigmoid importances by module."""
        found = {}
        for name, x in read.items():
            key = name.replace(".", "-")
            found[name] = self._ci_fns[key](self._components[key].acts(x) if self.kind == "mlp" else x)
        return found

    def terms(
        self, batch: torch.Tensor, sources: Any, deltas: Any, noise: Any = None
    ) -> dict[str, torch.Tensor]:
        target, read = self.masked(batch, {})
        g = self.importances(read)
        shaken = g if noise is None else {n: 1.05 * g[n] - 0.05 * noise[n] for n in g}
        ci = {name: value.clamp(0, 1) for name, value in shaken.items()}
        upper = {n: torch.where(v > 1, 1 + 0.01 * (v - 1), v.clamp(min=0)) for n, v in g.items()}
        pairs = {name: self._components[name.replace(".", "-")] for name in self.names}
        rest = {n: self.matrix(n) - pairs[n].V @ pairs[n].U for n in self.names}
        sums = {n: ((u + 1e-12) ** P).flatten(0, -2).sum(0) for n, u in upper.items()}
        masks = {
            "unmasked": {n: (torch.ones_like(ci[n]), None) for n in self.names},
            "ci_masked": {n: (ci[n], None) for n in self.names},
            "stochastic": {n: (ci[n] + (1 - ci[n]) * sources[n], deltas.get(n)) for n in self.names},
        }
        logs = F.log_softmax(target, -1)
        divergences = {
            kind: F.kl_div(
                F.log_softmax(self.masked(batch, chosen)[0], -1), logs, log_target=True, reduction="sum"
            )
            / batch.numel()
            for kind, chosen in masks.items()
        }
        return {
            **divergences,
            "faithfulness": sum((d**2).sum() for d in rest.values()) / sum(d.numel() for d in rest.values()),
            "minimality": sum(
                (s / batch.numel() * (1 + BETA * torch.log2(1 + s))).sum() for s in sums.values()
            ),
        }


def configuration(kind: str, **own: Any) -> dict[str, Any]:
    return {
        "preset": "lm_test",
        "target": "tests:Network",
        "tokens_path": "given",
        "modules": MODULES[kind],
        "components": 7,
        "importance": kind,
        "hidden": [4, 3],
        "coefficients": {**TERMS, "stochastic_subset": 0, "pgd_subset": 0},
        "pnorm": P,
        "final_p": P,
        "beta": BETA,
        "seq_len": 5,
        "eval_every": 0,
        "save_every": 0,
        "dtype": "float64",
        **own,
    }


def theirs(network: nn.Module, kind: str, state: dict[str, torch.Tensor]) -> TheirModel:
    """Their model with the values of a checkpoint, loaded as strictly as upstream does."""
    names = [name for name, _ in network.named_modules() if name in NAMES[kind]]
    model = TheirModel(network, names, kind, [4, 3], 7).double()
    model.load_state_dict(state)
    return model


NAMES = {**MODULES, "shared_mlp": ["body.0", "body.2"]}


def terms_and_draws(workload: Any) -> tuple[dict[str, torch.Tensor], Any, Any]:
    """Terms of the first batch, and the sources and the noise that made them."""
    draws = workload.arm.draws
    binomial = workload.config.sampling == "binomial"
    batch, state = workload.arm.first_batch(), draws.generator.get_state()
    workload.arm.schedule()
    terms, _ = workload.arm.gradients(batch, NullClock())
    draws.generator.set_state(state)
    noise = {names[0]: u for names, u in draws.noise(batch.shape).items()} if binomial else None
    return terms, draws.stochastic(batch.shape, routed=False, binomial=binomial), noise


def worst(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    assert found.keys() == expected.keys()
    return max(abs(found[name].item() / value.item() - 1) for name, value in expected.items())


def compared(workload: Any, network: nn.Module, kind: str, shakes: bool = True) -> float:
    """The largest relative difference of a term between this workload and upstream's model."""
    target = workload.arm.target
    values = workload.arm.decomposition.state()
    model = theirs(network, kind, upstream.exported(values, target, workload.arm.sites))
    found, drawn, noise = terms_and_draws(workload)
    single = {names[0]: s for names, s in drawn.components.items()}
    deltas = {names[0]: mu for names, mu in (drawn.deltas or {}).items()}
    batch = workload.arm.first_batch()
    return worst(found, model.terms(batch, single, deltas, noise if shakes else None))


@pytest.mark.parametrize("kind", MODULES)
def test_an_exported_decomposition_has_upstreams_losses(start, run, network, tokens, kind) -> None:
    workload = start(config=configuration(kind), given=Given(network, tokens))
    run(workload, 2)
    assert compared(workload, network, kind) <= 1e-10


def test_without_a_delta_component_masks_leave_its_source_out_as_upstream_does(
    start, network, tokens
) -> None:
    config = configuration("shared_mlp", delta_component=False)
    workload = start(config=config, given=Given(network, tokens))
    assert terms_and_draws(workload)[1].deltas is None
    assert compared(workload, network, "shared_mlp") <= 1e-10
    searched = {**config, "coefficients": {"pgd": 1, "minimality": 1}, "pgd_steps": 1}
    draws = start(config=searched, given=Given(network, tokens)).arm.draws
    (spec,) = [one for one in SpdConfig(**searched).recipe.losses if one.kind == "pgd"]
    assert {s.shape[-1] for s in draws.adversarial(torch.Size([4, 5]), spec).values()} == {7}


def test_binomial_sampling_shakes_importances_as_upstream_does(start, network, tokens) -> None:
    config = configuration("shared_mlp", sampling="binomial")
    workload = start(config=config, given=Given(network, tokens))
    _, drawn, _ = terms_and_draws(workload)
    assert all(bool(((s == 0) | (s == 1)).all()) for s in drawn.components.values())
    assert compared(workload, network, "shared_mlp") <= 1e-10
    assert compared(workload, network, "shared_mlp", shakes=False) > 1e-3  # the mutant without noise


@pytest.mark.parametrize("kind", MODULES)
def test_an_upstream_checkpoint_comes_back_as_it_went(start, run, network, tokens, kind, tmp_path) -> None:
    first = start(config=configuration(kind), given=Given(network, tokens))
    run(first, 1)
    target = first.arm.target
    values = first.arm.decomposition.state()
    torch.save(upstream.exported(values, target, first.arm.sites), tmp_path / "model_1.pth")
    config = configuration(kind, values_path=str(tmp_path / "model_1.pth"))
    second = start(config=config, given=Given(network, tokens))
    found = second.arm.decomposition.state()
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name], value) for name, value in values.items())


def test_a_checkpoint_in_bfloat16_of_upstreams_newer_names_is_begun_with(network, tokens, start) -> None:
    first = start(config=configuration("shared_mlp"), given=Given(network, tokens))
    target = first.arm.target
    values = first.arm.decomposition.state()
    theirs = {
        f"ci_fn.{name}" if name.startswith("_ci_fns.") else name: value.bfloat16()
        for name, value in upstream.exported(values, target, first.arm.sites).items()
    }
    second = start(config=configuration("shared_mlp"), given=Given(network, tokens, theirs))
    found = second.arm.decomposition.state()
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name], value.bfloat16().double()) for name, value in values.items())


def test_what_is_no_checkpoint_of_this_network_is_refused(start, network, tokens, tmp_path) -> None:
    first = start(config=configuration("shared_mlp"), given=Given(network, tokens))
    target = first.arm.target
    state = upstream.exported(first.arm.decomposition.state(), target, first.arm.sites)
    for other, sentence in (
        ({**state, "target_model.out.bias": state["target_model.out.bias"] + 1}, "differs from the target"),
        ({**state, "target_model.more": torch.ones(1)}, "is not in the target"),
        ({**state, "_gates.body-0.W": torch.ones(1)}, r"_gates\.body-0\.W is no parameter"),
        ({k: v for k, v in state.items() if k != "_components.body-0.V"}, r"body-0\.V .* no such tensor"),
        ({**state, "_components.out.V": torch.ones(1)}, r"components\.out\.V .* needs no such tensor"),
    ):
        torch.save(other, tmp_path / "other.pth")
        config = configuration("shared_mlp", values_path=str(tmp_path / "other.pth"))
        with pytest.raises(ConfigError, match=sentence):
            start(config=config, given=Given(network, tokens))


def test_a_gpt2_goes_out_by_the_names_of_transformers(tmp_path) -> None:
    from perfsweep.workloads.spd.maths.sites import find_sites
    from perfsweep.workloads.spd.maths.target import Gpt2, draw_values
    from perfsweep.workloads.spd.presets import TargetSpec

    target = Gpt2(TargetSpec("gpt2", layers=1, width=8, heads=2, kv_heads=2, mlp=32, vocab=50, context=16))
    draw_values(target, 0)
    sites = find_sites(target, [("h.0.mlp.c_fc", 4)])
    values = {"components.h-0-mlp-c_fc.V": torch.ones(8, 4), "components.h-0-mlp-c_fc.U": torch.ones(4, 32)}
    found = upstream.exported(values, target, sites)
    assert "_components.transformer-h-0-mlp-c_fc.V" in found
    assert "_components.transformer-h-0-mlp-c_fc.bias" in found
    assert torch.equal(found["target_model.lm_head.weight"], found["target_model.transformer.wte.weight"])
    assert upstream.imported(found, "mlp", target).keys() == values.keys()
