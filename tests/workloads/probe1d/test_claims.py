"""What each claim about Probe1D promises, of which levels, as read from the report's own sentence."""

from __future__ import annotations

import spelled

from workloads.probe1d.claims import CLAIMS

EXPECTED = """
    Context | each LM iteration for the first class_slab_size | seconds_per_iteration >= 31.5 <= 38.5
    ... solver=naive where data=full slabs=None
    Context | With 151 classes we run roughly 19 slabs | slabs/jobs >= 17.1 <= 20.9 solver=naive where
    ... data=demo/setA/occurring/full slabs=None
    Context | at max_iter = 100 that is 19 x 100 x 35 s ≈ 18 h | seconds_per_iteration*slab_passes/jobs
    ... >= 5.832e+04 <= 7.128e+04 solver=naive where data=full slabs=None max_iter=None/100
    Context | at max_iter = 100 that is 19 x 100 passes | slab_passes/slabs >= 90 <= 110 solver=naive
    ... where data=full slabs=None max_iter=None/100
    Context | almost every iteration still loops with n_fail ≈ | n_fail/failing_passes >= 841.5 <= 1028
    ... solver=naive where data=full/nfail max_iter=None/100
    Context | almost every iteration still loops with LM fallb | failing_passes/slab_passes >= 0.9 <= 1
    ... solver=naive where data=full/nfail max_iter=None/100
    Context | LM fallbacks where gradients are already zero | n_fail <= 0 skip_zero_grad=exact where
    ... data=full/nfail max_iter=None/100
    Suspected bottlenecks | _compute_slab_stats and _compute_loss_slab rebui |
    ... row_index_builds/slab_passes >= 1 solver=naive
    Suspected bottlenecks | a bottleneck: rebuilding sparse row indices | faster cache_row_idx=on
    Suspected bottlenecks | The LM step treats zero-gradient coordinates as | lambda_max_dead >= 9.9e+11
    ... solver=naive
    Suspected bottlenecks | The code converts the full CSR value tensor to s | casts/slab_passes >= 1
    ... solver=naive where storage_dtype=float16/float64
    Suspected bottlenecks | a bottleneck: converting the full CSR value tens | faster cast_once=on where
    ... storage_dtype=float16/float64
    Suspected bottlenecks | Debug logging forces torch.cuda.synchronize, whi | faster no_sync_log=on
    Ideas to try | Skip zero-gradient coordinates so inert latents | faster skip_zero_grad=exact,
    ... skip_zero_grad=tol
    Ideas to try | Cache row indices per slab and reuse them | faster cache_row_idx=on
    Ideas to try | reuse them across _compute_confusion_slab | faster confusion_search=on
    Ideas to try | Avoid redundant casts by storing CSR values in s | faster cast_once=on where
    ... storage_dtype=float16/float64
    Ideas to try | Tune class_slab_size to amortize traversal overh | faster slab_size=32, slab_size=all
    Ideas to try | Tune row_batch_size to amortize traversal overhe | faster chunk_events=262144,
    ... chunk_events=1048576, chunk_events=4194304, chunk_events=auto
    Ideas to try | Stop increasing lambda for coordinates that repe | faster freeze_failed=3
    Ideas to try | instrumentation hooks that record per-slab timin | negligible timing_hook=on
    Ideas to try | the overhead of full profiling | slower timing_hook=profiler
    Open questions | a cheaper statistic than RMS for qx that preserv | faster qx_stat=rms_free,
    ... qx_stat=meanabs, qx_stat=max, qx_stat=p95
    Open questions | Would mixed precision (weights float32, accumula | n_fail <= 0 precision=f32acc64
    ... where data=full/nfail max_iter=None/100
    Profiling plan | Set PYTORCH_NO_CUDA_MEMORY_CACHING=1 during prof | slower caching_allocator=off
    Profiling plan | a smaller shard such as 1k rows, 256 classes on | a rule
"""


def test_every_claim_promises_what_its_sentence_says() -> None:
    assert spelled.claims(CLAIMS) == spelled.entries(EXPECTED, {})
