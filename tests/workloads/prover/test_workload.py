"""The job as the pipelines see it: units, phases, repetition, records, memory, and an honest baseline."""

from __future__ import annotations

import numpy as np
import pytest
from phase_times import PhaseTimes
from tables.prover import BEST

from perfsweep.pipelines.trial.failures import is_oom
from perfsweep.workloads.prover import evidence
from perfsweep.workloads.prover.variants.policy_rows import BUDGET_PER_ROW

NATIVE = {**BEST, "slab_size": 16, "expand_kernel": "native", "fused_trunk": "on", "dedup": "off"}
TORCH = {**BEST, "slab_size": 16}


@pytest.mark.parametrize("levels", [{}, TORCH, NATIVE], ids=["naive", "best", "native"])
def test_a_second_job_in_the_same_process_repeats_the_first(set_up, run_to_end, levels):
    workload = run_to_end(set_up(levels, queries=2, corruptions=3))
    first = workload.job.results["both"].outcome
    assert workload.progress() == 8
    workload.reset()
    assert (workload.done(), workload.progress()) == (False, 0)
    second = run_to_end(workload).job.results["both"].outcome
    assert all((first[name] == second[name]).all() for name in first)
    workload.step(PhaseTimes())
    assert workload.progress() == 8


def test_units_are_valid_candidates_alone(solve):
    workload = solve(
        {"slab_size": 16, "pad_to_slab": "done_row"}, data="countries", size=40, modes="tail", corruptions=50
    )
    result = workload.job.results["tail"]
    assert workload.progress() == result.sizes.sum() < 6 * 51
    assert workload.counters()["done"] >= workload.progress()


def test_iterations_are_marked_by_phase(naive):
    assert set(naive[1].seconds) == {"expand", "policy", "select"}


@pytest.mark.parametrize(
    "levels", [None, TORCH, {**NATIVE, "refill": "off"}], ids=["naive", "refilled", "native slabs"]
)
def test_one_row_of_metrics_is_logged_per_iteration(solve, naive, levels):
    workload = solve(levels) if levels else naive[0]
    rows = workload.rows
    assert len(rows) == workload.counters()["steps"]
    assert " ".join(rows[0]) == (
        "step_ms active refilled done row_steps useful_row_steps states_real states_padded fact_pairs"
        " rule_pairs bytes_packed deferred overflow queue_left cand_per_s"
    )
    assert all(row["cand_per_s"] == pytest.approx(1e3 * row["done"] / row["step_ms"]) for row in rows)
    assert sum(row["done"] for row in rows) == 54
    assert rows[-1]["queue_left"] == 0
    assert all(row["useful_row_steps"] <= row["row_steps"] for row in rows)


def test_numbers_of_a_job_are_figures_of_its_results_and_its_evidence_is_complete(solve):
    assert set(solve(NATIVE, kind="timing").numbers()) == {
        *("mrr", "hits1", "hits3", "hits10"),
        *("success_unambiguous", "depth_unambiguous"),
    }
    done = solve(NATIVE, modes="head,tail,both")
    full = done.evidence()
    outcome, numbers = full.tensors, full.numbers
    sure = ~outcome["ambiguous"]
    assert (numbers["queries"], numbers["modes"]) == (6, 3)
    assert numbers["candidates"] == len(sure)
    assert numbers["ambiguous_share"] == 1 - sure.mean()
    assert numbers["ms_per_candidate"] == 1e3 * numbers["evaluation_s"] / len(outcome["depth"])
    assert numbers["depth_mean"] == outcome["depth"].mean()
    assert outcome["depth_histogram"].tolist() == np.bincount(outcome["depth"]).tolist()
    own = np.concatenate([result.outcome["log_prob"] for result in done.job.results.values()])
    assert np.allclose(outcome["log_prob"] * (1 + outcome["depth"]), own)
    told = done.numbers()
    assert told["success_unambiguous"] == outcome["success"][sure].mean()
    assert told["depth_unambiguous"] == outcome["depth"][sure].mean()
    assert {"success", "depth", "actions", "log_prob", "rank", "depth_histogram"} <= set(full.tensors)
    assert full.numbers["mrr"] == pytest.approx(
        sum(full.numbers[f"mrr_{mode}"] for mode in ("head", "tail", "both")) / 3
    )
    assert 0 <= full.numbers["provable"] <= 1
    assert "mrr_provable_head" in full.numbers


@pytest.mark.workloads
def test_all_candidates_at_once_end_as_out_of_memory_beyond_the_budget(set_up, run_to_end):
    workload = set_up({}, memory_gb=0.001)
    with pytest.raises(
        MemoryError, match=r"slab of 54 rows is predicted to need \d.* GB .*budget is 0\.00 GB"
    ) as refusal:
        run_to_end(workload)
    assert is_oom(refusal.value)
    fits = set_up({"slab_size": 1}, memory_gb=0.001)
    assert run_to_end(fits).progress() == 54


def test_the_reports_ten_thousand_candidates_are_predicted_to_need_what_the_report_ran_out_of(
    set_up, real_data
):
    workload = set_up({}, data=real_data("family"), queries=100, corruptions=100)
    counted = workload.counters()
    assert counted["derived_states_bytes"] == 10_100 * 120 * 26 * 3 * 8
    assert counted["raw_states_bytes"] == 10_100 * 2643 * 26 * 3 * 8
    assert counted["predicted_bytes"] > 5 * counted["raw_states_bytes"]


def test_the_naive_path_does_the_naive_work(naive):
    """Its counters are formulas: every pair, 121 states, 20 steps, whatever the candidates need."""
    workload, _ = naive
    counted, kb, rows = workload.counters(), workload.kb, 54 * 20
    assert counted["row_steps"] == rows
    assert counted["fact_pairs"] == rows * kb.largest_predicate
    assert counted["rule_pairs"] == rows * 100
    assert counted["states_evaluated"] == rows * 121
    assert counted["bytes_packed"] == rows * (kb.largest_predicate + 100) * 26 * 3 * 8
    assert counted["sorts"] == 2 * 20
    assert counted["corruption_batches"] == 6
    useful = counted["useful_row_steps"]
    assert counted["fact_pairs_per_step"] == counted["fact_pairs"] / useful
    assert (counted["row_steps_over_useful"], counted["idle_share"]) == (rows / useful, 1 - useful / rows)
    assert counted["padded_over_real"] == counted["states_padded"] / counted["states_real"]
    assert counted["policy_macs"] == rows * 121 * (3 * 32**2 + 2 * 32 * 32)
    assert counted["tf32_products"] == 0
    assert (counted["jobs"], counted["warmup_rows"], counted["steps"]) == (1, 2, 20)


def test_screening_that_is_too_coarse_fails_its_certificate(solve, monkeypatch):
    monkeypatch.setattr("perfsweep.workloads.prover.variants.screening.DELTA", 1e-4)
    workload = solve({**NATIVE, "screen16": "on"})
    assert workload.evidence().numbers["screening_error"] > 0.5
    counted = workload.counters()
    assert 0 < counted["states_rescored"] < counted["low_precision_states"]


def test_the_ladder_is_climbed_once_and_remembered(set_up):
    first, second = (set_up({"slab_size": "auto", "slab_search": "ladder"}) for _ in range(2))
    assert first.task.slab == second.task.slab
    assert first.task.slab in (8, 16, 32, 64)
    assert first.counters()["probe_steps"] == second.counters()["probe_steps"] > 0


@pytest.mark.workloads
def test_rows_that_find_no_room_wait_and_get_their_turn(solve):
    """Lists of more than a hundred states share a budget of sixteen per row."""
    config = {"data": "wide", "size": 200, "queries": 4, "corruptions": 3, "modes": "head"}
    levels = {"slab_size": 4, "fact_index": "csr", "pack_width": "tight"}
    narrow, roomy = (solve({**levels, "policy_rows": value}, **config) for value in ("row_budget", "ragged"))
    counted = narrow.counters()
    assert BUDGET_PER_ROW * 4 < 128 == counted["states_padded"] / counted["steps"]
    assert counted["deferred"] > 0
    outcomes = [workload.job.results["head"].outcome for workload in (narrow, roomy)]
    assert all((outcomes[0][name] == outcomes[1][name]).all() for name in ("success", "depth", "actions"))


def test_a_step_in_which_every_row_is_forced_values_nothing(solve, tmp_path):
    for name, text in {
        "train.txt": "f(a,b).\nf(b,c).",
        "test.txt": "g(a,b)",
        "rules.txt": "r:1:f(x,y) -> g(x,y)",
    }.items():
        (tmp_path / name).write_text(text)
    levels = {"policy_rows": "ragged", "forced_skip": "on"}
    found = solve(levels, data=str(tmp_path), corruptions=1, modes="tail").job.results["tail"]
    assert found.outcome["success"].tolist() == [True, False]
    assert found.outcome["depth"].tolist()[0] == 1


def test_a_clock_that_does_not_tell_leaves_out_the_ratio_that_it_times(solve, monkeypatch):
    monkeypatch.setattr(evidence, "processor_seconds", lambda like: 1.0)
    assert "varied_over_short" not in solve(NATIVE).evidence().numbers
    monkeypatch.undo()
    assert solve(NATIVE).evidence().numbers["varied_over_short"] > 0


def test_memory_of_a_streamed_queue_does_not_grow_with_the_queries(set_up, run_to_end):
    """Rows in flight and drawn candidates stay bounded; outcomes are a few bytes each."""
    waiting = []
    for queries in (10, 30):
        workload = set_up(NATIVE, queries=queries, kind="timing")
        run_to_end(workload)
        waiting.append(max(row["row_steps"] for row in workload.rows))
    assert waiting[0] == waiting[1] == 16
