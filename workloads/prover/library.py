"""Evaluate queries from Python: no sweep, no configuration, no files but those that are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.api import Context, Device, Levels, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.prover.build import Choices, assemble
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.counters import Counts
from perfsweep.workloads.prover.data.formats import Problem, Triple
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.maths.job import Job, Task
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.maths.slab_size import device_budget
from perfsweep.workloads.prover.policy_file import SavedPolicy, policy_of
from perfsweep.workloads.prover.ranking import Proof, Ranks, proofs_of, ranks_of
from perfsweep.workloads.prover.toggles import FAST, TOGGLES


def evaluate(
    kb: Problem,
    queries: Sequence[Triple],
    policy: SavedPolicy,
    *,
    modes: Sequence[str] = ("both",),
    corruptions: int | None = 100,
    seed: int = 0,
    slab_size: int = 256,
    device: str = "cpu",
) -> tuple[Ranks, list[Proof]]:
    """Prove queries and their corruptions, and rank each query among its own.

    Parameters
    ----------
    kb : facts and rules, as `read_problem` reads them from a folder
    queries : Q triples (relation, argument ...) by name; all count as true where corruptions are drawn
    policy : what chooses; see `read_policy`, `policy_from_state_dict`, `random_policy`
    modes : what is corrupted: head, tail, both
    corruptions : candidates per query and mode beside the query itself; None: every eligible entity
    seed : of the keys that choose them
    slab_size : candidates that are proved at once; results do not depend on it
    device : cpu or cuda

    Returns
    -------
    Ranks in each mode, and of each query the walk that the policy chose, proof or not.

    Raises
    ------
    ConfigError
        A query names what the knowledge base does not know, the policy belongs to other names, or no query
        has a corruption.
    """
    _refuse_unknown(kb, queries)
    config = ProverConfig(
        arity=policy.arity, modes=",".join(modes), corruptions=corruptions, corruption_seed=seed
    )
    extended = dataclasses.replace(kb, test=(*kb.test, *(tuple(query) for query in queries)))
    known = KnowledgeBase.build(extended, policy.arity, device)
    encoded = torch.tensor([known.vocabulary.encode(tuple(query)) for query in queries], device=device)
    with torch.no_grad():
        job = Job(_task(known, config, encoded, policy, slab_size))
        for _ in job.passes():
            pass
        return ranks_of(job), proofs_of(job)


def random_policy(
    kb: Problem, embedding: int = 250, width: int = 256, layers: int = 8, seed: int = 0, arity: int = 2
) -> SavedPolicy:
    """Make an untrained policy for the names of a knowledge base, to start from or to compare with."""
    vocabulary = KnowledgeBase.build(kb, arity).vocabulary
    shape = PolicyShape(embedding, width, layers)
    return policy_of(make_weights(shape, vocabulary, seed, ProverConfig.gain), shape, vocabulary)


def _task(
    kb: KnowledgeBase, config: ProverConfig, queries: Tensor, policy: SavedPolicy, slab_size: int
) -> Task:
    device = kb.facts.device.type
    choices = Choices.of({**_baseline(), **FAST, **_kernels(device), "slab_size": slab_size})
    machinery = assemble(kb, policy.weights_for(kb.vocabulary), policy.shape, choices, NullClock.phase)
    context = Context(device=Device(device), scratch_dir=Path(), cache_dir=Path())
    return Task(
        kb=kb,
        config=config,
        machinery=machinery,
        queries=queries,
        slab=slab_size,
        budget=device_budget(None, None, device),
        step=machinery.step,
        counts=Counts(),
        context=context,
        traces=True,
    )


def _baseline() -> dict[str, str | int | float]:
    return {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def _kernels(device: str) -> Levels:
    """The kernels that can be built here."""
    if device == "cuda":
        return {"expand_kernel": "triton", "fused_trunk": "on"}
    if not compiler_here():
        return {}
    return {"expand_kernel": "native", "select_kernel": "native", "fused_trunk": "on"}


def _refuse_unknown(kb: Problem, queries: Sequence[Triple]) -> None:
    if not queries:
        raise ConfigError("evaluate: there are no queries; give at least one (relation, argument, argument)")
    arguments = {atom[0]: len(atom) for rule in kb.rules for atom in (rule.head, *rule.body)}
    arguments |= {fact[0]: len(fact) for fact in kb.facts}
    constants = set(kb.constants)
    for number, query in enumerate(queries):
        named = f"evaluate: query {number}, {tuple(query)!r},"
        if isinstance(query, str) or not query or query[0] not in arguments:
            raise ConfigError(f"{named} does not begin with a relation of facts or rules")
        if len(query) != arguments[query[0]]:
            raise ConfigError(f"{named} should have {arguments[query[0]] - 1} arguments")
        if unknown := [name for name in query[1:] if name not in constants]:
            raise ConfigError(f"{named} names {unknown[0]!r}, which neither facts nor domains know")
