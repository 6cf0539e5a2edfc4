"""What choosing a level of Prover implies beside its class, and which counter shows that it acts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import spelled

from workloads.prover.toggles import TOGGLES

SHORT = {"compiled": "compile=default/reduce_overhead/max_autotune"}
EXPECTED = """
    slab_size=512: moves slabs
    slab_size=auto: moves probe_steps, needs slab_search=ladder
    slab_size=+: moves slabs
    pad_to_slab=copy_last: moves padded_rows, not with slab_size=all
    pad_to_slab=done_row: moves padded_rows, not with slab_size=all
    warmup=exact: moves warmup_rows, not with slab_size=all
    slab_search=ladder: moves probe_steps, needs slab_size=auto
    early_exit_all=sync: moves steps
    early_exit_all=every_k: moves steps
    early_exit_all=async_lag1: moves steps
    skip_done=where_mask: moves masked_rows
    skip_done=compact: moves row_steps
    refill=queue: moves refilled, not with slab_size=all skip_done=compact
    compile=default: moves compiled_graphs, needs policy_rows=padded/row_budget, not with
    ... rule_pairs=ragged
    compile=reduce_overhead: moves cudagraph_recordings, needs policy_rows=padded/row_budget, not with
    ... rule_pairs=ragged
    compile=max_autotune: moves compiled_graphs, needs policy_rows=padded/row_budget, not with
    ... rule_pairs=ragged
    compile_cache=shared: moves cache_hits, needs {compiled}
    corruptions=all: moves corruption_batches
    corruptions=stream: moves corruption_batches
    fact_index=csr: moves fact_pairs
    pack_width=tight: moves bytes_packed
    rule_pairs=exact: moves rule_pairs
    rule_pairs=ragged: moves rule_pairs
    index_dtype=int32: moves bytes_packed
    index_dtype=int16: moves bytes_packed
    policy_rows=row_budget: moves states_padded
    policy_rows=ragged: moves states_padded
    obs_reuse=on: moves states_evaluated
    const_states=on: moves states_evaluated
    forced_skip=on: moves states_wanted, not with policy_rows=padded
    fold=on: moves policy_macs
    dedup=step: moves states_evaluated, not with {compiled}
    dedup=global: moves states_evaluated, not with {compiled}
    tf32=on: moves tf32_products
    amp=bf16: moves low_precision_ops
    compaction=scan: moves sorts
    screen16=on: moves states_rescored, not with tf32=on amp=bf16 policy_rows=row_budget {compiled}
    expand_kernel=triton: moves kernel_rows, not with {compiled}
    expand_kernel=native: moves kernel_rows, not with {compiled}
    select_kernel=native: moves selected_rows, needs policy_rows=ragged, not with {compiled}
    fused_trunk=on: moves fused_rows, not with {compiled}
"""


def test_every_level_needs_and_moves_what_it_is_said_to() -> None:
    assert spelled.levels(TOGGLES) == spelled.entries(EXPECTED, SHORT)


@pytest.mark.parametrize(("largest", "fits"), [(32_767, True), (32_768, False)])
def test_sixteen_bits_hold_ids_up_to_their_end(largest: int, fits: bool) -> None:
    level = next(toggle for toggle in TOGGLES if toggle.name == "index_dtype").level("int16")
    found = level.refused(SimpleNamespace(largest_id=largest), {})
    assert (found is None) == fits
    assert fits or found == "ids reach 32768, and int16 ends at 32767: use index_dtype=int32"
