"""What is trained: its names, importances, gradients, and values that are taken from a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.sites import Site
from perfsweep.workloads.spd.presets import PRESETS

SITES = (Site("a.x", "linear", 3, 5, 2, 0), Site("b", "linear", 3, 4, 2, 0), Site("c", "linear", 3, 4, 3, 1))
NAMES = [
    f"{part}.{key}.{one}"
    for part, ones in (
        ("components", ("V", "U")),
        ("importance", ("weights.0", "weights.1", "biases.0", "biases.1")),
    )
    for key in ("a-x", "b", "c")
    for one in ones
]


def made(stacked: bool = False, kind: str = "shared_mlp", **more) -> Decomposition:
    recipe = replace(PRESETS["lm_test"], importance=kind, hidden=(4,))
    return Decomposition(SITES, recipe, 3, torch.float64, stacked, **more)


@pytest.fixture
def inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {site.name: torch.randn(6, 3, generator=generator, dtype=torch.float64) for site in SITES}


@pytest.mark.parametrize(("stacked", "groups"), [(False, 3), (True, 2)])
def test_names_and_first_values_do_not_depend_on_stacking(stacked: bool, groups: int) -> None:
    found = made(stacked)
    assert sorted(found.named_tensors()) == sorted(NAMES)
    assert len(found.groups) == groups
    assert all(torch.equal(one, found.state()[name]) for name, one in made().state().items())
    assert len(found.component_parameters()) == 6
    assert {name.split(".")[0] for name in found.named_parameters()} == {"components", "importance"}
    other = Decomposition(SITES, replace(PRESETS["lm_test"], hidden=(4,)), 4, torch.float64)
    assert not torch.equal(other.state()["components.b.V"], found.state()["components.b.V"])


@pytest.mark.parametrize("kind", ["shared_mlp", "mlp"])
def test_importances_of_masks_and_of_minimality(kind: str, inputs) -> None:
    found = made(kind=kind)
    lower, upper = found.importances(inputs)
    read = {
        site.name: inputs[site.name] @ found.operands()[site.name].V if kind == "mlp" else inputs[site.name]
        for site in SITES
    }
    for name in ("a.x", "b", "c"):
        g = found.importance.functions[name.replace(".", "-")](read[name])
        assert torch.allclose(lower[name,], g.clamp(0, 1))
        assert torch.allclose(upper[name,], torch.where(g > 1, 1 + 0.01 * (g - 1), g.clamp(min=0)))
    noise = {(site.name,): torch.ones(6, site.count, dtype=torch.float64) for site in SITES}
    shaken, same = found.importances(inputs, noise)
    g = found.importance(read)["c",]
    assert torch.allclose(shaken["c",], (1.05 * g - 0.05).clamp(0, 1))
    assert torch.equal(same["c",], upper["c",])


def test_another_sigmoid_is_one_form_for_both(inputs) -> None:
    lower, upper = made(sigmoid="normal").importances(inputs)
    assert torch.equal(lower["b",], upper["b",])
    assert lower["b",].min() > 0 and lower["b",].max() < 1


@pytest.mark.parametrize("stacked", [False, True])
def test_gradients_have_the_names_of_values_and_leave_these_alone(stacked: bool, inputs) -> None:
    found = made(stacked)
    before = {name: one.clone() for name, one in found.state().items()}
    _, upper = found.importances({name: 100 * x for name, x in inputs.items()})
    upper["c",].sum().backward()
    gradients = found.named_gradients()
    assert list(gradients) == sorted(NAMES)
    assert not gradients["components.c.V"].any()
    assert gradients["importance.c.biases.1"].any()
    assert not gradients["importance.b.biases.1"].any()
    assert all(torch.equal(before[name], one) for name, one in found.state().items())


def test_operands_have_deltas_where_these_are_given() -> None:
    found = made()
    deltas = {site.name: torch.ones(1) for site in SITES}
    assert found.operands()["b"].delta is None
    assert found.operands(deltas)["b"].delta is deltas["b"]
    assert found.operands()["b"].V is found.components["b"].V


@pytest.mark.parametrize("stacked", [False, True])
def test_values_are_taken_from_a_checkpoint(stacked: bool) -> None:
    found = made(stacked)
    state = {name: torch.full_like(one, 2.0) for name, one in made().state().items()}
    found.load(state)
    assert all((one == 2).all() for one in found.state().values())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda state: state.pop("components.b.V"),
            r"components\.b\.V of the checkpoint is no such tensor and this decomposition needs \[3, 2\]",
        ),
        (
            lambda state: state.update({"components.z.V": torch.ones(7)}),
            r"components\.z\.V of the checkpoint is \[7\] and this decomposition needs no such tensor",
        ),
        (
            lambda state: state.update({"components.b.V": torch.ones(2, 3)}),
            r"components\.b\.V of the checkpoint is \[2, 3\] and this decomposition needs \[3, 2\]",
        ),
    ],
)
def test_values_of_another_architecture_are_refused_by_name(change, sentence: str) -> None:
    state = made().state()
    change(state)
    with pytest.raises(ConfigError, match=sentence):
        made().load(state)
