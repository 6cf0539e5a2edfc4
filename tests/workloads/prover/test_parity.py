"""Each toggle alone, or left out of the best arm, keeps all choices; slabs and order change nothing."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tables.prover import BEST

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict, loosest
from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.prover import oracle
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.maths.episodes import ranked
from perfsweep.workloads.prover.workload import Prover

pytestmark = pytest.mark.workloads

HERE = Device(compiler=True)
SPACE = Space(Prover.toggles, ProverConfig(), HERE)
DATA = {
    "kinship": {"queries": 3, "corruptions": 3},
    "countries": {"data": "countries", "size": 40, "modes": "head,tail", "queries": 3, "corruptions": 5},
    "wide": {"data": "wide", "size": 140, "queries": 3, "corruptions": 4},
}
CHOICES = ("success", "depth", "actions", "rank")
NATIVE = {"expand_kernel": "native", "select_kernel": "native", "fused_trunk": "on"}
NATIVE_BEST = {**BEST, **NATIVE, "slab_size": 16, "dedup": "off"}
TORCH_BEST = {**BEST, "slab_size": 16}


@pytest.fixture(scope="module")
def known():
    """Evidence by data and levels, computed once."""
    return {}


@pytest.fixture
def evidence(solve, known):
    def compute(levels, data="kinship", **more):
        key = (data, str(sorted(SPACE.complete(levels).items())), str(more))
        if key not in known:
            known[key] = solve(levels, **{**DATA[data], **more}).evidence()
        return known[key]

    return compute


def verdict(reference, arm, levels, against):
    """The pipelines' verdict on an arm whose levels differ from the reference's."""
    different = [
        SPACE.toggle(name).level(value) for name, value in levels.items() if against.get(name) != value
    ]
    parity, bounds = loosest(different, Prover.checks)
    return judge(reference, arm, Prover.checks, parity, bounds)


@pytest.mark.parametrize("name", TORCH_BEST)
def test_the_best_arm_without_a_toggle_chooses_the_same(evidence, name):
    arm = SPACE.without(SPACE.legal(TORCH_BEST), name)
    for check in CHOICES:
        assert np.array_equal(evidence({}).tensors[check], evidence(arm).tensors[check]), check


@pytest.mark.parametrize(
    "levels",
    [
        pytest.param({}, id="naive"),
        pytest.param(TORCH_BEST, id="best"),
        pytest.param({**NATIVE_BEST, "screen16": "on"}, id="screened"),
    ],
)
@pytest.mark.parametrize("slab", [7, 1024])
def test_results_do_not_depend_on_the_slab(evidence, levels, slab):
    arm, base = evidence({**levels, "slab_size": slab}), evidence({**levels, "slab_size": 16})
    for check in CHOICES:
        assert np.array_equal(arm.tensors[check], base.tensors[check]), check
    assert np.abs(arm.tensors["log_prob"] - base.tensors["log_prob"]).max() <= 1e-4


def test_results_do_not_depend_on_the_order_of_the_queries(set_up, run_to_end):
    straight, turned = set_up(NATIVE_BEST), set_up(NATIVE_BEST)
    turned.task.queries = turned.queries = straight.queries.flip(0)
    results = [run_to_end(workload).job.results["both"] for workload in (straight, turned)]
    ranks = [ranked(result.outcome, result.sizes).rank.tolist() for result in results]
    assert ranks[0] == ranks[1][::-1]


def expected_of(workload, resolver, scorer):
    """Episodes of all candidates by the oracle, mode by mode, and ranks."""
    problem, vocabulary = workload.config.problem, workload.kb.vocabulary
    true = {vocabulary.encode(triple) for triple in (*problem.facts, *problem.valid, *problem.test)}
    domain, config = workload.kb.domain.tolist(), workload.config
    parts = {"head": [(0, config.corruptions)], "tail": [(1, config.corruptions)]}
    parts["both"] = [(0, (config.corruptions + 1) // 2), (1, config.corruptions // 2)]
    episodes, ranks = [], []
    for mode in config.mode_names:
        for query in map(tuple, workload.queries.tolist()):
            own = [query]
            for place, count in parts[mode]:
                same = [e for e in range(1, len(domain)) if domain[e] == domain[query[1 + place]]]
                own += oracle.corruptions(
                    query, place, same, true, config.corruption_seed, vocabulary.base, count
                )
            played = [oracle.play(resolver, scorer, candidate) for candidate in own]
            episodes += played
            ranks.append(oracle.expected_rank([oracle.score(episode) for episode in played]))
    return episodes, ranks


def disagreements(found, episodes, ranks):
    """How many candidates and ranks differ from the oracle's."""
    tensors = found.tensors
    wrong = 0
    for number, episode in enumerate(episodes):
        actions = tuple(int(action) for action in tensors["actions"][number] if action >= 0)
        same = (bool(tensors["success"][number]), int(tensors["depth"][number]), actions)
        near = abs(float(tensors["log_prob"][number]) * (1 + episode.depth) - episode.log_prob) <= 1e-4 * (
            1 + episode.depth
        )
        wrong += not (near and same == (episode.success, episode.depth, episode.actions))
    return wrong + sum(a != b for a, b in zip(tensors["rank"].tolist(), ranks, strict=True))


@pytest.mark.parametrize(
    "levels",
    [{}, TORCH_BEST, NATIVE_BEST, {**NATIVE_BEST, "screen16": "on"}],
    ids=["naive", "best", "native", "screened"],
)
@pytest.mark.parametrize("data", DATA)
def test_traces_probabilities_and_ranks_are_the_oracles_end_to_end(
    set_up, evidence, oracles_of, known, data, levels
):
    key = ("oracle", data)
    if key not in known:
        asked = set_up(TORCH_BEST, **DATA[data])
        known[key] = expected_of(asked, *oracles_of(asked))
    assert disagreements(evidence(levels, data), *known[key]) == 0


@pytest.mark.parametrize("mistake", ["weight", "tie", "depth"])
def test_an_oracle_with_a_planted_mistake_disagrees(set_up, evidence, oracles_of, monkeypatch, mistake):
    asked = set_up(NATIVE_BEST, **DATA["kinship"])
    resolver, scorer = oracles_of(asked)
    if mistake == "weight":
        scorer = dataclasses.replace(scorer, weights={**scorer.weights, "V": scorer.weights["U"]})
    elif mistake == "tie":
        monkeypatch.setattr(oracle, "choose", lambda logits: (int(np.argmin(logits)), 0.0, False))
    else:
        resolver.max_depth = 3
    assert disagreements(evidence(NATIVE_BEST), *expected_of(asked, resolver, scorer)) > 0


def test_a_query_in_doubt_leaves_the_others_compared(evidence):
    found = evidence({})
    doubt, rank = (found.tensors[name].copy() for name in ("ambiguous_query", "rank"))
    doubt[0] = True
    doubted = dataclasses.replace(found, tensors={**found.tensors, "ambiguous_query": doubt})
    for moved, expected in ((0, ParityVerdict.WITHIN_TOLERANCE), (1, ParityVerdict.DIFFERENT)):
        ranks = rank.copy()
        ranks[moved] += 1
        other = dataclasses.replace(doubted, tensors={**doubted.tensors, "rank": ranks})
        assert verdict(doubted, other, {}, {}).verdict is expected


def test_queries_and_policy_of_another_seed_are_other_data(set_up):
    digests = {
        set_up({}, **{name: 1}).data_digest()
        for name in ("policy_seed", "query_seed", "corruption_seed", "data_seed")
    }
    digests |= {set_up({}, **more).data_digest() for more in ({}, {"modes": "head"}, {"corruptions": 7})}
    assert len(digests) == 7


def test_a_trained_policy_proves_more_than_a_random_one_and_all_paths_follow_it(evidence):
    random, trained = evidence(TORCH_BEST, queries=12), evidence(TORCH_BEST, queries=12, imitation=8)
    assert trained.numbers["success_positive"] > random.numbers["success_positive"] + 0.2
    assert trained.numbers["mrr"] > random.numbers["mrr"]
    again = evidence(NATIVE_BEST, queries=12, imitation=8)
    assert torch.equal(torch.tensor(again.tensors["actions"]), torch.tensor(trained.tensors["actions"]))
