"""What a configuration names: data, queries and a policy. Trials read them; plans look first."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.data.corruption import Corruptor, no_corruption
from perfsweep.workloads.prover.data.formats import Problem, Triple, read_problem
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase, Vocabulary
from perfsweep.workloads.prover.maths.policy import PolicyShape, Weights, make_weights
from perfsweep.workloads.prover.policy_file import read_policy


def load(config: ProverConfig) -> Problem:
    """The problem that a configuration names.

    Raises
    ------
    ConfigError
        There is no such folder, or a file holds something that cannot be used.
    """
    return config.problem or read_problem(config.data, config.arity)


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


def first_weights(config: ProverConfig, vocabulary: Vocabulary) -> Weights:
    """Weights before any imitation: those of a file, or random ones.

    Raises
    ------
    ConfigError
        The file holds no whole policy, or one of other sizes or names.
    """
    shape = PolicyShape(config.embedding, config.width, config.layers)
    if config.weights is None:
        return make_weights(shape, vocabulary, config.policy_seed, config.gain)
    policy = read_policy(config.weights, where=f"workload.weights={config.weights}")
    if policy.shape != shape:
        own = " ".join(f"workload.{name}={size}" for name, size in asdict(policy.shape).items())
        raise ConfigError(f"{policy.where} is a network of other sizes; set {own}")
    return policy.weights_for(vocabulary)


def refuse_unusable(config: ProverConfig) -> None:
    """Refuse, as far as they can be read here, data and a policy that trials could not use.

    Raises
    ------
    ConfigError
        The message names file, line and text, or the tensor.
    """
    problem = config.problem
    if problem is None:
        return
    kb = KnowledgeBase.build(problem, config.arity)
    queries = chosen_queries(problem, kb, config)
    for mode in config.mode_names:
        corruptor = Corruptor(kb, mode, min(config.corruptions or 2, 2), config.corruption_seed)
        if all(corruptor.together(block).sizes.max() < 2 for block in queries.split(16)):
            raise no_corruption(mode)
    if config.weights and Path(config.weights).is_file():
        first_weights(config, kb.vocabulary)
