"""Policies of upstream's networks: computed as upstream does, or refused by what the tensors do not say."""

from __future__ import annotations

import io
import zipfile

import pytest
import torch
from torch import nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover import evaluate, oracle, policy_from_state_dict, read_policy, save_policy
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase, Vocabulary
from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape
from perfsweep.workloads.prover.ranking import ranks_of
from perfsweep.workloads.prover.training import resolver_of
from perfsweep.workloads.prover.upstream_policy import UpstreamForm
from perfsweep.workloads.prover.workload import Prover

KINSHIP = generate("kinship", 3, 0, 0.2, 0)
NAMES = Vocabulary.of(KINSHIP)
E, D, LAYERS, VARIABLES = 8, 32, 2, 20
FORM = {"atom_embedder": "transe", "state_embedder": "mean"}


class Fused(nn.Module):
    """Linear, ReLU and, with `norm`, LayerNorm as one module of two or four tensors, as upstream's."""

    def __init__(self, inputs: int, outputs: int, norm: bool) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(outputs, inputs)),
            nn.Parameter(torch.randn(outputs)),
        )
        if norm:
            self.ln_weight, self.ln_bias = (nn.Parameter(torch.randn(outputs)) for _ in "wb")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.linear(x, self.weight, self.bias).relu()
        return (
            nn.functional.layer_norm(x, x.shape[-1:], self.ln_weight, self.ln_bias)
            if hasattr(self, "ln_bias")
            else x
        )


def layers(inputs: int, outputs: int, norm: bool) -> nn.Module:
    """The same as a sequence, as upstream keeps it to compare with Stable Baselines."""
    parts = [nn.Linear(inputs, outputs), nn.ReLU(), *([nn.LayerNorm(outputs)] if norm else [])]
    return nn.Sequential(*parts)


class Network(nn.Module):
    """Upstream's ActorCriticPolicy: its names of modules, its arithmetic of states and logits."""

    def __init__(self, made, atom: str, state: str) -> None:
        super().__init__()
        self.atom, self.state = atom, state
        table = {
            "constant_embedder": len(NAMES.constants) + VARIABLES,
            "predicate_embedder": len(NAMES.predicates) + 3,
        }
        self.features_extractor = self.pi_features_extractor = nn.ModuleDict(
            {
                "embedder": nn.ModuleDict(
                    {
                        name: nn.ModuleDict({"embedder": nn.Embedding(1 + rows, E, padding_idx=0)})
                        for name, rows in table.items()
                    }
                )
            }
        )
        body = nn.ModuleDict(
            {
                "input_transform": made(E, D, True),
                "res_blocks": nn.ModuleList(made(D, D, True) for _ in range(LAYERS)),
            }
        )
        self.mlp_extractor = nn.ModuleDict(
            {
                "shared_body": body,
                "value_body": body,
                "policy_head_fused": made(D, D, False),
                "policy_head_final": nn.Linear(D, E),
                "value_head_fused": made(D, D, False),
                "value_head_final": nn.Linear(D, 1),
            }
        )
        self.action_net, self.value_net = nn.Linear(1, 120), nn.Linear(1, 1)

    def values(self, states: torch.Tensor) -> torch.Tensor:
        embedder, net = self.features_extractor["embedder"], self.mlp_extractor
        terms = embedder["constant_embedder"]["embedder"](states[..., 1:])
        atoms = embedder["predicate_embedder"]["embedder"](states[..., 0])
        first, second = terms[..., 0, :], terms[..., 1, :]
        atoms = atoms + first - second if self.atom == "transe" else atoms - terms.sum(-2)
        x = net["shared_body"]["input_transform"](atoms.mean(-2) if self.state == "mean" else atoms.sum(-2))
        for block in net["shared_body"]["res_blocks"]:
            x = x + block(x)
        return net["policy_head_final"](net["policy_head_fused"](x))


def network(made=Fused, atom: str = "transe", state: str = "mean") -> Network:
    torch.manual_seed(0)
    return Network(made, atom, state)


def converted(net, **changed):
    return policy_from_state_dict(
        net if isinstance(net, dict) else net.state_dict(),
        NAMES.predicates,
        NAMES.constants,
        **{**FORM, "variables": VARIABLES, **changed},
    )


def some_states(count: int = 40) -> torch.Tensor:
    """States [N, 6, 3] of one to six goals, constants and variables, unary ones among them."""
    drawn = torch.Generator().manual_seed(1)
    states = torch.zeros(count, 6, 3, dtype=torch.int64)
    for row, state in enumerate(states):
        size = 1 + row % 6
        state[:size, 0] = torch.randint(1, NAMES.true + 3, (size,), generator=drawn)
        state[:size, 1:] = torch.randint(0, NAMES.base, (size, 2), generator=drawn)
    return states


@pytest.mark.parametrize("folded", [False, True], ids=["plain", "folded"])
@pytest.mark.parametrize("made", [Fused, layers])
@pytest.mark.parametrize(
    ("atom", "state"), [("transe", "mean"), ("transe", "sum"), ("sum", "mean"), ("sum", "sum")]
)
def test_logits_are_those_of_upstreams_network(made, atom, state, folded):
    theirs = network(made, atom, state)
    policy = converted(theirs, atom_embedder=atom, state_embedder=state)
    assert policy.shape == PolicyShape(E, D, LAYERS, decay=1.0)
    own, states = Policy(policy.weights_for(NAMES), policy.shape, folded), some_states()
    with torch.no_grad():
        values, expected = own.values(states), theirs.values(states)
        logits = own.dots(values, *own.keys(values[:1]), torch.zeros(len(values), dtype=torch.int64))
        expected = expected @ expected[0] / E**0.5
    assert torch.allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.05


@pytest.mark.parametrize(
    "renamed",
    [
        lambda name: f"_orig_mod.{name}",
        lambda name: name.replace("policy_head_fused", "policy_head").replace(
            "policy_head_final", "policy_head.2"
        ),
        lambda name: name.replace("head_fused", "head.out_transform").replace(
            "head_final", "head.out_transform.2"
        ),
    ],
    ids=["compiled", "one head", "Stable Baselines"],
)
def test_other_names_that_upstream_gave_are_read_too(renamed):
    state = network(layers).state_dict()
    found, expected = converted({renamed(name): tensor for name, tensor in state.items()}), converted(state)
    assert found.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.tensors.items())


def test_the_archive_of_a_stable_baselines_model_is_read_as_its_policy(tmp_path):
    """As its `model.save` writes one: names nest one level deeper, other files hold what training needs."""
    state = {
        name.replace("mlp_extractor", "mlp_extractor.shared_network"): tensor
        for name, tensor in network(layers).state_dict().items()
    }
    with zipfile.ZipFile(tmp_path / "best.zip", "w") as archive:
        for name, content in {"data": {}, "policy.pth": state, "policy.optimizer.pth": {"state": {}}}.items():
            kept = io.BytesIO()
            torch.save(content, kept)
            archive.writestr(name, kept.getvalue())
    form = UpstreamForm(**FORM, variables=VARIABLES)
    found, expected = read_policy(tmp_path / "best.zip", "", NAMES, form), converted(network(layers))
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in expected.tensors.items())


def changed_state(**changed):
    return {**network().state_dict(), **{name.replace("__", "."): tensor for name, tensor in changed.items()}}


@pytest.mark.parametrize(
    ("state", "form", "says"),
    [
        (
            {},
            {"atom_embedder": None},
            r"do not say its atom_embedder\. Give atom_embedder=transe or atom_embedder=sum",
        ),
        (
            {},
            {"atom_embedder": "rotate"},
            r"atom_embedder=rotate: is not computed here\. Give one of: transe, sum",
        ),
        (
            {},
            {"variables": 19},
            r"is \[\d+, 8\], and rows for padding, \d+ constants of the data and variables=19",
        ),
        ({}, {"arity": 3}, "atom_embedder=transe is about two arguments, and not 3"),
        (
            {"features_extractor__embedder__state_embedder__query": torch.zeros(1)},
            {},
            "state_embedder.query belongs to a form of upstream's network that is not computed",
        ),
        (
            {"pi_features_extractor__embedder__predicate_embedder__embedder__weight": torch.zeros(9, 8)},
            {},
            "differs from another tensor for predicates.weight",
        ),
        (
            {"mlp_extractor__policy_head_final__bias": torch.zeros(9)},
            {},
            r"out\.bias is \[9\] and should be \[8\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(state, form, says):
    with pytest.raises(ConfigError, match=says) as refusal:
        converted(changed_state(**state), **form)
    assert "\n" not in str(refusal.value)


def test_a_form_of_upstreams_is_refused_for_another_network():
    own = converted(network()).tensors
    with pytest.raises(ConfigError, match="no policy of upstream's, which state_embedder is about"):
        policy_from_state_dict(own, NAMES.predicates, NAMES.constants, state_embedder="sum")


def test_how_slots_count_is_kept_in_the_file(tmp_path):
    save_policy(converted(network()), tmp_path / "mine.pt")
    assert read_policy(tmp_path / "mine.pt").shape.decay == 1


@pytest.fixture
def config(tmp_path):
    """Fields of a workload for the file of an upstream network."""
    torch.save(network().state_dict(), tmp_path / "best.pt")
    return {"data": "kinship", "weights": str(tmp_path / "best.pt"), "variables": VARIABLES, **FORM}


def test_the_workload_takes_upstreams_file_and_derives_its_sizes(config, solve):
    """Every path comes to the same ranks, the library's too."""
    fast = {"policy_rows": "ragged", "fold": "on", "fact_index": "csr", "fused_trunk": "on"}
    naive, other = (solve(levels, queries=3, corruptions=4, **config) for levels in ({}, fast))
    assert naive.shape_of_policy == PolicyShape(E, D, LAYERS, decay=1.0)
    expected, found = (ranks_of(workload.job, {}) for workload in (naive, other))
    assert (found.rank == expected.rank).all() and found.score == pytest.approx(expected.score, abs=1e-3)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"atom_embedder": None}, "Give workload.atom_embedder=transe or workload.atom_embedder=sum"),
        ({"variables": 1000}, "workload.variables=1000 are"),
        ({"data": "./nowhere"}, "workload.data=nowhere is no folder"),
        ({"weights": None}, "workload.atom_embedder=transe is about a policy's file"),
    ],
)
def test_the_plan_refuses_what_the_file_and_the_fields_do_not_say(config, changed, says):
    with pytest.raises(ConfigError, match=says):
        Prover.planned(ProverConfig(**{**config, **changed}))


def test_walks_are_those_of_the_oracle_with_slots_that_count_alike():
    policy, known = converted(network()), KnowledgeBase.build(KINSHIP, 2)
    ranks, _ = evaluate(KINSHIP, KINSHIP.test[:3], policy, corruptions=4)
    weights = {name: one.double().numpy() for name, one in policy.weights_for(NAMES).items()}
    scorer, resolver = oracle.Scorer(weights, LAYERS, decay=1.0), resolver_of(known)
    played = [oracle.play(resolver, scorer, tuple(atom)) for atom in ranks.candidate.tolist()]
    assert ranks.depth.tolist() == [episode.depth for episode in played]
    assert ranks.score == pytest.approx([oracle.score(episode) for episode in played], abs=1e-3)
