"""What a configuration asks for: queries and a policy; a plan refuses what trials could not use."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.config import SIZES, ProverConfig
from perfsweep.workloads.prover.data.corruption import Corruptor, no_corruption
from perfsweep.workloads.prover.data.formats import Problem, Triple
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase, Vocabulary
from perfsweep.workloads.prover.maths.policy import PolicyShape, Weights, make_weights
from perfsweep.workloads.prover.policy_file import read_policy
from perfsweep.workloads.prover.upstream_policy import UpstreamForm


def chosen_queries(problem: Problem, kb: KnowledgeBase, config: ProverConfig) -> Tensor:
    """Test queries [Q, 1+r] that a configuration asks for."""
    encoded = [kb.vocabulary.encode(triple) for triple in _asked(problem, config)]
    return torch.tensor(encoded, device=kb.facts.device)


def _asked(problem: Problem, config: ProverConfig) -> list[Triple]:
    """The first test queries of a seeded order, so that a longer list begins with a shorter one."""
    triples = list(dict.fromkeys(problem.test))
    if not triples:
        raise ConfigError(
            f"workload.data={config.data} with size={config.size} leaves no test query; make it larger"
        )
    random.Random(f"queries {config.query_seed}").shuffle(triples)
    return triples[: config.queries]


def first_policy(config: ProverConfig, vocabulary: Vocabulary) -> tuple[Weights, PolicyShape]:
    """The policy before any imitation: that of a file, or random weights.

    Raises
    ------
    ConfigError
        The file holds no whole policy, or one of other sizes or names.
    """
    if config.weights is None:
        given = {name: getattr(config, name) for name in SIZES}
        shape = PolicyShape(**SIZES | {name: size for name, size in given.items() if size is not None})
        return make_weights(shape, vocabulary, config.policy_seed, config.gain), shape
    form = UpstreamForm(config.atom_embedder, config.state_embedder, config.variables, "workload.")
    policy = read_policy(config.weights, f"workload.weights={config.weights}", vocabulary, form)
    for name in SIZES:
        own, given = getattr(policy.shape, name), getattr(config, name)
        if given not in (None, own):
            raise ConfigError(f"{policy.where}: workload.{name}={given} is not its {own}; leave it out")
    return policy.weights_for(vocabulary), policy.shape


def refuse_unusable(config: ProverConfig) -> None:
    """Refuse data and a policy that trials could not use.

    Raises
    ------
    ConfigError
        The message names file, line and text, or the tensor.
    """
    problem = config.problem
    kb = KnowledgeBase.build(problem, config.arity)
    queries = chosen_queries(problem, kb, config)
    for mode in config.mode_names:
        corruptor = Corruptor(kb, mode, min(config.corruptions or 2, 2), config.corruption_seed)
        if all(corruptor.together(block).sizes.max() < 2 for block in queries.split(16)):
            raise no_corruption(mode)
    if config.weights:
        first_policy(config, kb.vocabulary)
