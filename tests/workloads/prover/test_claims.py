"""What each claim about Prover promises, of which levels, as read from the report's own sentence."""

from __future__ import annotations

import spelled

from workloads.prover.claims import CLAIMS

SHORT = {"as reported": "where queries=100 corruptions=100 modes=head/tail/both"}
EXPECTED = """
    Issue 1 | 100 × (1 + 100) = 10,100 candidates | candidates/modes >= 1.01e+04 <= 1.01e+04
    ... slab_size=all {as reported}
    Issue 1 | Tensor allocation of [10100, 120, 26, 3] for der | derived_states_bytes >= 1.08e+10 <=
    ... 1.32e+10 slab_size=all {as reported}
    Issue 1 | Process queries in chunks of fixed_batch_size (d | memory <= 1 slab_size=512 {as reported}
    Issue 1 | compute_optimal_batch_size() caps at 512 for bes | slower slab_size=256, slab_size=1024
    ... against slab_size=512 {as reported}
    Issue 2 | ~20-30s per unique batch size | recompile_s >= 20 <= 30 slab_size=512
    ... compile=reduce_overhead {as reported}
    Issue 2 | Each unique batch size triggers a full recompila | recompiles_after_warmup >= 1
    ... slab_size=512 compile=reduce_overhead {as reported}
    Issue 2 | Batch size 110 (no pad): 2.97s # SLOW - triggers | recompile_s >= 2.43 <= 2.97
    ... slab_size=512 compile=reduce_overhead {as reported}
    Issue 2 | Batch size 512 (repeated): 0.27s; Batch size 512 | varied_over_short >= 3.4 <= 4.156
    ... slab_size=512 compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Issue 2 | Warmup uses the same size that evaluation will u | recompiles_after_warmup <= 0
    ... slab_size=512 compile=reduce_overhead pad_to_slab=done_row warmup=exact
    Issue 3 | Batch size 100: 0.079s, 0.79 ms/query | time >= 0.4671 <= 0.5709 slab_size=100 against
    ... slab_size=512 {as reported}
    Issue 3 | Batch size 256: 0.122s, 0.47 ms/query | time >= 0.7851 <= 0.9596 slab_size=256 against
    ... slab_size=512 {as reported}
    Issue 3 | Batch size 1024: 3.450s, 3.37 ms/query: 8x slowe | time >= 0.1095 <= 0.1338 slab_size=1024
    ... against slab_size=512 {as reported}
    Issue 3 | Batch size 512: 0.208s, 0.41 ms/query | ms_per_candidate >= 0.369 <= 0.451 slab_size=512
    ... compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Issue 3 | At B=1024: ~75 MB per tensor, multiple such tens | derived_states_bytes >= 6.75e+07 <=
    ... 8.25e+07 slab_size=1024 {as reported}
    Issue 3 | Cap compute_optimal_batch_size() at 512 for opti | faster slab_size=auto
    ... slab_search=ladder {as reported}
    Issue 4 | Step 0: 0/512 done, time=81ms; Step 1: 294/512 d | first_step_over_second >= 1.585 <=
    ... 1.937 slab_size=512 compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Issue 4 | Step 1: 294/512 done | done_after_step_1 >= 264.6 <= 323.4 slab_size=512 {as reported}
    Issue 4 | Step 11: 502/512 done: 98% done! | done_after_step_11 >= 451.8 <= 512 slab_size=512 {as
    ... reported}
    Issue 4 | Step 19: 512/512 done | done_after_step_19 >= 512 <= 512 slab_size=512 {as reported}
    Issue 4 | Early exit at step 19 | steps/slabs >= 18 <= 20 slab_size=512 early_exit_all=sync {as
    ... reported}
    Issue 4 | the early exit once all queries are done | faster early_exit_all=sync,
    ... early_exit_all=every_k, early_exit_all=async_lag1
    Issue 4 | regardless of how many queries are done! | step_ms_slope <= 0.1 skip_done=none
    Issue 4 | Each step takes ~42-45ms | seconds_per_iteration >= 0.042 <= 0.045 slab_size=512
    ... compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Issue 4 | Varied queries (avg 5 steps, max 20): ALL B quer | row_steps_over_useful >= 3.6 <= 4.4
    ... slab_size=512 {as reported}
    Issue 4 | Repeated query (2 steps): 0.16s; Varied queries | varied_over_short >= 5.04 <= 6.16
    ... slab_size=512 {as reported}
    Issue 4 | No Per-Query Early Exit (Major Performance Issue | major skip_done=where_mask,
    ... skip_done=compact, expand_kernel=triton
    Current performance | Warmup/Compile: 5.49s | compile_s >= 4.941 <= 6.039 slab_size=512
    ... compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Current performance | Evaluation: 18.19s | evaluation_s >= 16.37 <= 20.01 slab_size=512
    ... compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Current performance | Total: 23.68s | compile_s+evaluation_s >= 21.31 <= 26.05 slab_size=512
    ... compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Current performance | Per original query: 181.9 ms | evaluation_s/queries >= 0.1637 <= 0.2001
    ... slab_size=512 compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Current performance | Per candidate: 1.80 ms | ms_per_candidate >= 1.62 <= 1.98 slab_size=512
    ... compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Current performance | 10,100 total candidates (100 queries × 101 candi | candidates/modes >=
    ... 1.01e+04 <= 1.01e+04 slab_size=512 {as reported}
    Current performance | 20 chunks of 512 (with padding) | slabs/jobs >= 20 <= 20 slab_size=512 {as
    ... reported}
    Current performance | ~0.9s per chunk × 20 = 18s | evaluation_s*jobs/slabs >= 0.81 <= 0.99
    ... slab_size=512 compile=reduce_overhead pad_to_slab=done_row warmup=exact {as reported}
    Current performance | Each chunk runs ~20 steps × ~45ms/step ≈ 0.9s | steps/slabs >= 18 <= 22
    ... slab_size=512 {as reported}
    Future 1 | Per-Query Early Exit (High Impact - est. 2-4x sp | time >= 2 <= 4 skip_done=where_mask,
    ... skip_done=compact, expand_kernel=triton
    Future 1 | CUDA graphs require static shapes, so (b) won't | cudagraph_recordings <= 0 slab_size=512
    ... compile=reduce_overhead skip_done=compact
    Future 2 | Smaller Default Batch Size (Medium Impact): 256 | moderate slab_size=256 against
    ... slab_size=512 pad_to_slab=done_row where queries=6 corruptions=8
    Future 2 | 512 for large evaluations (better throughput) | faster slab_size=512 against
    ... slab_size=256 {as reported}
    Future 3 | PyTorch's torch.compile caches are per-process. | warm_compile_s/compile_s <= 0.5
    ... compile=default compile_cache=shared, compile_cache=shared
    Future 4 | Reduce max_depth for Evaluation: SHOULD NOT DO T | a rule
    Future 5 | Could pre-generate all corruptions as one tensor | faster corruptions=all
    Future 5 | No, potentially there are millions of negatives | memory >= 1 corruptions=all
    Future 6 | Fused kernels for fact/rule matching | faster fact_index=csr, compaction=scan,
    ... expand_kernel=triton
    Future 6 | Better memory layout for coalesced access | faster index_dtype=int32, index_dtype=int16
    Future 6 | Reduced padding overhead | faster pack_width=tight, rule_pairs=exact, rule_pairs=ragged,
    ... policy_rows=row_budget, policy_rows=ragged
    Recommendation 1 | Use mode='reduce-overhead' for production (faste | faster compile=reduce_overhead
    Recommendation 2 | Use mode='default' for debugging (no CUDA graph | cudagraph_recordings <= 0
    ... compile=default
    Recommendation 3 | Always warmup before timing evaluation | recompiles_after_warmup <= 0
    ... slab_size=512 compile=reduce_overhead pad_to_slab=done_row warmup=exact
    Recommendation 4 | Use fixed_batch_size=512 for 8GB GPUs | predicted_bytes <= 8e+09 slab_size=512
    ... {as reported}
    Recommendation 5 | Consider max_depth=10 for faster evaluation if a | a rule
"""


def test_every_claim_promises_what_its_sentence_says() -> None:
    assert spelled.claims(CLAIMS) == spelled.entries(EXPECTED, SHORT)
