"""Results of a job: the rank of every query, the score of every candidate, and proofs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from perfsweep.workloads.api import Levels
from perfsweep.workloads.prover.data.knowledge import Vocabulary
from perfsweep.workloads.prover.job import Job
from perfsweep.workloads.prover.maths.episodes import metrics, ranked, scores
from perfsweep.workloads.prover.oracle import Atom, Resolver, State
from perfsweep.workloads.prover.training import resolver_of


@dataclass(frozen=True)
class Ranks:
    """Ranks of Q queries in M modes, and the N candidates that they compare.

    Candidates are ordered by mode, then by query, each query before its corruptions. A candidate is
    ambiguous if two choices of its walk were so close that rounding can turn them, and a query if one of its
    candidates is.

    Attributes
    ----------
    mode : [M] head, tail or both
    query : [Q] as ``relation(a,b)``
    rank : [M, Q] expected rank, ties share a place
    ambiguous : [M, Q]
    sizes : [M, Q] candidates of each query, itself included
    candidate : [N, 1+r] numbers into `predicates` and `constants`, which count from 1; 0: no argument
    score : [N] log-probability of the walk, 100 less where it is no proof
    success, depth, candidate_ambiguous : [N] proved or not, actions taken, ambiguous or not
    predicates, constants : names
    toggles : levels of the path that computed them, each as ``toggle=level``
    """

    mode: np.ndarray
    query: np.ndarray
    rank: np.ndarray
    ambiguous: np.ndarray
    sizes: np.ndarray
    candidate: np.ndarray
    score: np.ndarray
    success: np.ndarray
    depth: np.ndarray
    candidate_ambiguous: np.ndarray
    predicates: np.ndarray
    constants: np.ndarray
    toggles: np.ndarray

    @cached_property
    def by_mode(self) -> dict[str, dict[str, float]]:
        """MRR and Hits@k of each mode."""
        return {str(mode): metrics(rank) for mode, rank in zip(self.mode, self.rank, strict=True)}

    @cached_property
    def metrics(self) -> dict[str, float]:
        """MRR and Hits@k, averaged over modes: mrr, hits1, hits3, hits10."""
        return averaged(list(self.by_mode.values()))

    def save(self, folder: Path) -> None:
        """Write ``ranks.npz``, with every attribute under its name, and ``metrics.json``."""
        np.savez_compressed(
            folder / "ranks.npz", **{name: getattr(self, name) for name in self.__annotations__}
        )
        summary = {
            **self.metrics,
            "modes": self.by_mode,
            "queries": len(self.query),
            "candidates": len(self.score),
            "proved": int(self.success.sum()),
            "ambiguous_candidates": int(self.candidate_ambiguous.sum()),
        }
        (folder / "metrics.json").write_text(json.dumps(summary, indent=2) + "\n")


def averaged(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric."""
    return {name: float(np.mean([values[name] for values in found])) for name in found[0]}


def metrics_of(job: Job) -> dict[str, float]:
    """MRR and Hits@k of a finished job, averaged over modes."""
    return averaged([metrics(ranked(one.outcome, one.sizes).rank) for one in job.results.values()])


def ranks_of(job: Job, levels: Levels) -> Ranks:
    """The ranks of a finished job; its candidates are drawn again, for jobs do not keep them."""
    task, results = job.task, job.results
    vocabulary = task.kb.vocabulary
    drawn = [task.corruptor(mode).together(task.queries).atoms for mode in results]
    found = [ranked(one.outcome, one.sizes) for one in results.values()]
    outcomes = [one.outcome for one in results.values()]

    def joined(name: str) -> np.ndarray:
        return np.concatenate([outcome[name] for outcome in outcomes])

    return Ranks(
        mode=np.array(list(results)),
        query=np.array([atom_text(tuple(query), vocabulary) for query in task.queries.tolist()]),
        rank=np.stack([ranks.rank for ranks in found]),
        ambiguous=np.stack([ranks.ambiguous for ranks in found]),
        sizes=np.stack([one.sizes for one in results.values()]),
        candidate=np.concatenate([atoms.cpu().numpy() for atoms in drawn]),
        score=np.concatenate([scores(outcome) for outcome in outcomes]),
        success=joined("success"),
        depth=joined("depth"),
        candidate_ambiguous=joined("ambiguous"),
        predicates=np.array(vocabulary.predicates),
        constants=np.array(vocabulary.constants),
        toggles=np.array([f"{name}={level}" for name, level in levels.items()]),
    )


@dataclass(frozen=True)
class Proof:
    """The walk of a query, chosen by the policy.

    Attributes
    ----------
    query : as ``relation(a,b)``
    proved : whether the walk ends in TRUE
    states : goals that were left after each action, the query first, as text; the last one is TRUE, FALSE,
        END, or what was left after the last action allowed
    log_prob : of all actions together
    """

    query: str
    proved: bool
    states: tuple[str, ...]
    log_prob: float

    def __str__(self) -> str:
        return "\n".join(self.states)


def proofs_of(job: Job) -> list[Proof]:
    """The walk of each query of a finished job that kept its actions, followed by the resolver."""
    task, first = job.task, next(iter(job.results.values()))
    resolver, vocabulary = resolver_of(task.kb), task.kb.vocabulary
    own = np.cumsum(first.sizes) - first.sizes  # a query comes before its corruptions
    outcome = {name: values[own] for name, values in first.outcome.items()}
    found = []
    for number, query in enumerate(map(tuple, task.queries.tolist())):
        walk = followed(
            resolver, query, [int(action) for action in outcome["actions"][number] if action >= 0]
        )
        states = tuple(state_text(state, vocabulary) for state in walk)
        proved, log_prob = bool(outcome["success"][number]), float(outcome["log_prob"][number])
        found.append(Proof(atom_text(query, vocabulary), proved, states, log_prob))
    return found


def followed(resolver: Resolver, query: Atom, actions: Sequence[int]) -> list[State]:
    """The states that `actions` lead through, the query first."""
    states: list[State] = [(query,)]
    history: list[int] = []
    for action in actions:
        history.append(resolver.hash(states[-1]))
        choices, _ = resolver.successors(states[-1], query, history)
        states.append(choices[action])
    return states


def state_text(state: State, vocabulary: Vocabulary) -> str:
    """Goals as ``p(a,X1), q(X1,b)``, or TRUE, FALSE, END."""
    return ", ".join(atom_text(atom, vocabulary) for atom in state)


def atom_text(atom: Sequence[int], vocabulary: Vocabulary) -> str:
    """An atom as ``relation(a,X1)``; variables are X1, X2 ..."""
    if atom[0] >= vocabulary.true:
        return ("TRUE", "FALSE", "END")[atom[0] - vocabulary.true]
    constants = vocabulary.constants
    terms = [
        constants[term - 1] if term <= len(constants) else f"X{term - len(constants)}"
        for term in atom[1:]
        if term
    ]
    return f"{vocabulary.predicates[atom[0] - 1]}({','.join(terms)})"
