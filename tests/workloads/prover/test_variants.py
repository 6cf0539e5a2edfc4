"""What each level of the prover says of itself."""

from __future__ import annotations

from declared import described, lines

from perfsweep.workloads.prover.variants import TOGGLES

DECLARED = """
slab_size all, Issue 1, any integer from 1 slabs log_prob<0.0001: 512 (slabs log_prob<0.0001), auto
  (probe_steps log_prob<0.0001 slab_search=ladder)
pad_to_slab off, Issues 1 and 2: done_row (padded_rows log_prob<0.0001 slab_size!all)
warmup tiny, Issue 2: exact (warmup_rows slab_size!all)
slab_search fixed512, Issue 3: ladder (probe_steps log_prob<0.0001 slab_size=auto)
early_exit_all off, Issue 4: sync/every_k/async_lag1 (steps)
skip_done none, Future 1: where_mask (masked_rows log_prob<0.0001), compact (row_steps log_prob<0.0001)
refill off: queue (refilled log_prob<0.0001 slab_size!all skip_done!compact)
compile off, Issue 2: default (compiled_graphs log_prob<0.0001 policy_rows=padded|row_budget
  rule_pairs!ragged on old+gpu+cpu), reduce_overhead (cudagraph_recordings log_prob<0.0001
  policy_rows=padded|row_budget rule_pairs!ragged on old+gpu), max_autotune (compiled_graphs log_prob<0.0001
  policy_rows=padded|row_budget rule_pairs!ragged on old+gpu+cpu autotunes)
compile_cache cold, Future 3: shared (cache_hits compile=default|reduce_overhead|max_autotune)
corruptions per_chunk, Future 5: all/stream (corruption_batches log_prob<0)
fact_index dense, Future 6: csr (fact_pairs log_prob<0)
pack_width wide26, Future 6: tight (bytes_packed log_prob<0)
rule_pairs pad100, Future 6: exact/ragged (rule_pairs log_prob<0)
index_dtype int64, Future 6: int32 (bytes_packed log_prob<0), int16 (bytes_packed log_prob<0 refused)
policy_rows padded, Future 6: row_budget/ragged (states_padded log_prob<0.0001)
obs_reuse off: on (states_evaluated log_prob<0.0001)
const_states off: on (states_evaluated log_prob<0.0001)
forced_skip off: on (states_wanted log_prob<0.0001 policy_rows!padded)
fold off: on (policy_macs log_prob<0.0001)
dedup off: step/global (states_evaluated log_prob<0.0001 compile!default|reduce_overhead|max_autotune)
tf32 off: on (tf32_products tolerance log_prob<0.01 success<inf depth<inf actions<inf rank<inf mrr<inf
  hits*<inf on gpu told)
compaction sort, Future 6: scan (sorts log_prob<0)
screen16 off: on (states_rescored tolerance log_prob<0.01 tf32!on policy_rows!row_budget
  compile!default|reduce_overhead|max_autotune)
expand_kernel torch, Future 1: triton (kernel_rows log_prob<0.0001
  compile!default|reduce_overhead|max_autotune on old+gpu refused), native (kernel_rows log_prob<0.0001
  compile!default|reduce_overhead|max_autotune on cpu refused)
select_kernel torch: native (selected_rows log_prob<0.0001 policy_rows=ragged
  compile!default|reduce_overhead|max_autotune on cpu)
fused_trunk off: on (fused_rows log_prob<0.0001 compile!default|reduce_overhead|max_autotune on old+gpu+cpu)
"""
"""Baseline and section, then each level: its witness, class and bounds, what it needs and excludes."""


def test_every_level_declares_what_it_changes_and_what_it_needs() -> None:
    assert list(described(TOGGLES)) == lines(DECLARED)
