"""What choosing a level of Probe1D implies beside its class, and which counter shows that it acts."""

from __future__ import annotations

import spelled

from workloads.probe1d.toggles import TOGGLES

EXPECTED = """
    solver=late: moves late_passes
    solver=newton: moves newton_passes
    skip_zero_grad=exact: moves skipped_zero_grad, needs solver=naive/late
    skip_zero_grad=tol: moves skipped_zero_grad, needs solver=naive/late
    cache_row_idx=on: moves row_index_builds, needs solver=naive/late
    cast_once=on: moves casts
    chunk_events=262144: moves chunks, needs solver=naive/late
    chunk_events=1048576: moves chunks, needs solver=naive/late
    chunk_events=4194304: moves chunks, needs solver=naive/late
    chunk_events=auto: moves chunks, needs solver=naive/late
    chunk_events=+: moves chunks, needs solver=naive/late
    slab_size=1: moves slabs
    slab_size=4: moves slabs
    slab_size=32: moves slabs
    slab_size=all: moves slabs
    slab_size=+: moves slabs
    freeze_failed=3: moves frozen_pairs, needs solver=naive/late
    freeze_failed=+: moves frozen_pairs, needs solver=naive/late
    active_set=latent: moves compacted_pairs, needs label_free=on csc_layout=on consistent_stop=scaled
    active_set=pair: moves compacted_pairs, needs label_free=on csc_layout=on consistent_stop=scaled
    timing_hook=on: moves hook_records
    timing_hook=profiler: moves profiler_samples
    no_sync_log=on: moves host_syncs
    precision=f64: moves events_f64
    precision=f32acc64: moves sums_acc64
    precision=block: moves sums_block, needs label_free=on csc_layout=on
    label_free=on: moves label_gathers
    csc_layout=on: moves bucket_launches, needs label_free=on
    compile=on: moves compiled_graphs, needs label_free=on csc_layout=on
    fused_kernel=on: moves fused_launches, needs label_free=on csc_layout=on, not with compile=on
    ... precision=f32acc64
    consistent_stop=seed: needs solver=naive
    consistent_stop=mismatch: needs solver=late
    consistent_stop=scaled: moves scaled_tests
    warm_start=on: moves warm_pairs, needs label_free=on
    tail_steps=on: moves tail_steps, needs solver=newton label_free=on
    qx_stat=rms_free: moves qx_passes
    qx_stat=meanabs: moves metric_changed
    qx_stat=max: moves metric_changed
    qx_stat=p95: moves metric_changed
    compress=16: moves nodes, needs label_free=on csc_layout=on active_set=pair/latent
    compress=32: moves nodes, needs label_free=on csc_layout=on active_set=pair/latent
    compress=64: moves nodes, needs label_free=on csc_layout=on active_set=pair/latent
    compress=128: moves nodes, needs label_free=on csc_layout=on active_set=pair/latent
    caching_allocator=off: sets PYTORCH_NO_CUDA_MEMORY_CACHING=1
    confusion_search=on: moves confusion_searches, needs label_free=on csc_layout=on
"""


def test_every_level_needs_and_moves_what_it_is_said_to() -> None:
    assert spelled.levels(TOGGLES) == spelled.entries(EXPECTED, {})
