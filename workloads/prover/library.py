"""Evaluate and derive queries from Python: no sweep, no configuration, and only files that are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.counters import Counts
from perfsweep.workloads.prover.data.formats import STATE_ATOMS, Problem, Triple
from perfsweep.workloads.prover.data.knowledge import MAX_DEPTH, KnowledgeBase
from perfsweep.workloads.prover.exhaustive import Derivation, Search
from perfsweep.workloads.prover.job import Job, Task
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.maths.slab_size import device_budget
from perfsweep.workloads.prover.policy_file import SavedPolicy, policy_of
from perfsweep.workloads.prover.ranking import Proof, Ranks, proofs_of, ranks_of
from perfsweep.workloads.prover.variants import FAST, TOGGLES, arm
from perfsweep.workloads.prover.variants.hand_written import cannot_expand


def evaluate(
    kb: Problem,
    queries: Sequence[Triple],
    policy: SavedPolicy,
    *,
    modes: Sequence[str] = ("both",),
    corruptions: int | None = 100,
    seed: int = 0,
    slab_size: int = 256,
    screen16: bool = False,
    device: str = "cpu",
) -> tuple[Ranks, list[Proof]]:
    """Prove queries and their corruptions, and rank each query among its own.

    Runs the float32 arm of the headlines, without kernels that these data or this machine do not have;
    `Ranks.toggles` says which levels these were.

    Parameters
    ----------
    kb : facts and rules, as `read_problem` reads them from a folder
    queries : Q triples (relation, argument ...) by name; all count as true where corruptions are drawn
    policy : what chooses; see `read_policy`, `policy_from_state_dict`, `random_policy`
    modes : what is corrupted: head, tail, both
    corruptions : candidates per query and mode in addition to the query itself; None: every eligible entity
    seed : of the keys that choose them
    slab_size : candidates that are proved at once; results do not depend on it
    screen16 : score in bfloat16 first, and in float32 what comes near the best: the same choices; faster
        where walks are long and the processor multiplies bfloat16
    device : cpu or cuda

    Returns
    -------
    Ranks in each mode, and of each query the walk that the policy chose, proof or not.

    Raises
    ------
    ConfigError
        A query names what the knowledge base does not know, the policy belongs to other names, no query has
        a corruption, bfloat16 is too coarse for the policy, or an option is out of range.
    """
    _refuse_unknown("evaluate", kb, queries)
    _refuse_small(slab_size=slab_size)
    if isinstance(modes, str):
        raise ConfigError(f"modes={modes!r}: is one name; give a list, modes=[{modes!r}]")
    kind = _device_here(device)
    config = ProverConfig(
        arity=max(kb.arity, policy.arity),
        modes=",".join(modes),
        corruptions=corruptions,
        corruption_seed=seed,
    )
    extended = dataclasses.replace(kb, test=(*kb.test, *(tuple(query) for query in queries)))
    known = KnowledgeBase.build(extended, config.arity, device)
    encoded = torch.tensor([known.vocabulary.encode(tuple(query)) for query in queries], device=device)
    levels = fast_levels(kb, config.arity, kind) | {"slab_size": slab_size}
    if screen16:
        levels["screen16"] = "on"
    with torch.no_grad():
        made = arm(levels)(levels, known, policy.weights_for(known.vocabulary), policy.shape)
        budget = device_budget(None, None, kind)
        job = Job(Task(made, config, encoded, slab_size, budget, Counts(), lambda row: None, traces=True))
        for _ in job.passes():
            pass
        if made.screening_error() > 0.5:
            raise ConfigError("screen16=True: bfloat16 is too coarse for this policy; leave screen16 out")
        return ranks_of(job, levels), proofs_of(job)


def derive(
    kb: Problem,
    queries: Sequence[Triple],
    *,
    depth: int = MAX_DEPTH,
    states: int = 100_000,
    atoms: int | None = STATE_ATOMS,
) -> list[Derivation]:
    """Search exhaustively for the shortest proof of each query: a reference that needs no policy.

    A query that no walk of a policy proves may still be derivable. Each query is no fact of its own proof.

    Parameters
    ----------
    kb : facts and rules, as `read_problem` reads them from a folder
    queries : Q triples (relation, argument ...) by name
    depth : actions of a proof at most
    states : states that are looked at for one query at most
    atoms : goals of a state at most, by default as many as walks may have; None: any number

    Returns
    -------
    Of each query the shortest proof, or that there is none within these limits.

    Raises
    ------
    ConfigError
        A query names what the knowledge base does not know, or a limit is no whole number from 1.
    """
    _refuse_unknown("derive", kb, queries)
    _refuse_small(depth=depth, states=states, **({} if atoms is None else {"atoms": atoms}))
    search = Search(kb, depth, states, atoms)
    return [search(tuple(query)) for query in queries]


def random_policy(
    kb: Problem,
    embedding: int = 250,
    width: int = 256,
    layers: int = 8,
    seed: int = 0,
    arity: int | None = None,
) -> SavedPolicy:
    """Make an untrained policy for the names of a knowledge base, to start from or to compare with.

    `arity` is the largest number of arguments that it has tables for; None: two, or as many as the knowledge
    base has.

    Raises
    ------
    ConfigError
        The knowledge base has relations with more arguments.
    """
    vocabulary = KnowledgeBase.build(kb, arity or max(kb.arity, 2)).vocabulary
    shape = PolicyShape(embedding, width, layers)
    return policy_of(make_weights(shape, vocabulary, seed, ProverConfig.gain), shape, vocabulary)


def fast_levels(kb: Problem, arity: int, device: str) -> dict[str, LevelValue]:
    """The levels of the fast exact path that can evaluate these data here."""
    levels = {toggle.name: toggle.levels[0].value for toggle in TOGGLES} | dict(FAST)
    if device == "cuda":
        kernels = {"expand_kernel": "triton", "fused_trunk": "on"}
    elif compiler_here():
        kernels = {"expand_kernel": "native", "select_kernel": "native", "fused_trunk": "on"}
    else:
        return levels
    if cannot_expand(kernels["expand_kernel"], arity, kb.longest_body):
        del kernels["expand_kernel"]
    return levels | kernels


def _refuse_small(**numbers: int) -> None:
    for name, number in numbers.items():
        if type(number) is not int or number < 1:
            raise ConfigError(f"{name}={number!r}: is out of range; give a whole number from 1")


def _device_here(device: str) -> str:
    """The kind of a device."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind != "cpu" and not (kind == "cuda" and torch.cuda.is_available()):
        raise ConfigError(f"device={device!r}: is not here; give device='cpu'")
    return kind


def _refuse_unknown(caller: str, kb: Problem, queries: Sequence[Triple]) -> None:
    if not queries:
        raise ConfigError(f"{caller}: there are no queries; give at least one (relation, argument, argument)")
    arguments = {atom[0]: len(atom) for rule in kb.rules for atom in rule.atoms}
    arguments |= {fact[0]: len(fact) for fact in kb.facts}
    constants = set(kb.constants)
    for number, query in enumerate(queries):
        named = f"{caller}: query {number}, {tuple(query)!r},"
        if isinstance(query, str) or not query or query[0] not in arguments:
            raise ConfigError(f"{named} does not begin with a relation of facts or rules")
        if len(query) != arguments[query[0]]:
            raise ConfigError(f"{named} should have {arguments[query[0]] - 1} arguments")
        if unknown := [name for name in query[1:] if name not in constants]:
            raise ConfigError(f"{named} names {unknown[0]!r}, which neither facts nor domains know")
