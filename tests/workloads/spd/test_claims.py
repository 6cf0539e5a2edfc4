"""What each claim about SPD promises, of which levels, as read from the report's own sentence."""

from __future__ import annotations

import spelled

from workloads.spd.claims import CLAIMS

EXPECTED = """
    1.1 | Pinned (page-locked) memory enables faster CPU-t | moderate pin_memory=on
    1.1 | With num_workers > 0, data loading happens in pa | worker_batches >= 1 num_workers=4
    1.2 | Add num_workers=4 (or experiment with 2-8 depend | faster num_workers=2, num_workers=4,
    ... num_workers=8
    1.2 | For tokenized datasets that are already in tenso | small num_workers=2, num_workers=4,
    ... num_workers=8
    Priority 1 | Pin memory + num_workers in DataLoader: pin_memo | high pin_memory=on num_workers=4
    3.1 | non_blocking=True: operations that can overlap w | faster non_blocking=on
    Priority 2 | non_blocking=True for .to(device) calls | high non_blocking=on
    3.2 | you can prefetch the next batch while computing | faster prefetch=stream
    Priority 9 | Prefetch batches with overlap | moderate prefetch=stream
    2.1 | dynamic hook registration creates graph breaks t | graph_breaks >= 1 compile=breaks
    2.1.1 | ci_fns are pure MLPs that can be compiled safely | faster compile=ci_fns
    Priority 3 | torch.compile ci_fns (the causal importance MLPs | high compile=ci_fns
    2.1.2 | target_model = torch.compile(target_model): Full | faster compile=target
    Priority 6 | torch.compile target_model | high compile=target
    2.1.2 | mode='reduce-overhead': Less memory | memory <= 1 cuda_graph=on
    2.1.3 | Compile Loss Functions (as written an annealed e | faster compile=losses
    2.1.4 | This will compile the parts between graph breaks | faster compile=breaks
    2.2 | full torch.compile of a masked pass, without dyn | graph_breaks <= 0 compile=masked_pass
    2.2 | full torch.compile, without dynamic hook registr | graph_breaks <= 0 compile=full
    4 | Potentially 2x speedup on modern GPUs (Ampere+), | time >= 1 <= 2 amp=fp16, amp=bf16
    Priority 5 | Mixed precision training (AMP or bfloat16) | high amp=fp16, amp=bf16
    4.1 | Basic AMP Implementation: autocast and GradScale | faster amp=fp16
    4.2 | faithfulness_loss should remain in full precisio | exact_faithfulness <= 1e-12 amp=bf16
    4.3 | BFloat16: more stability with slightly less spee | slightly slower amp=bf16 against amp=fp16
    ... pgd_inner=detached
    5.1 | Persistent hooks: removes per-forward-pass hook | faster patching=persistent_hooks
    Priority 8 | Persistent hook architecture | moderate patching=persistent_hooks
    5.2 | For maximum performance, compute component activ | high patching=wrapper, prefix_reuse=on
    6.1 | Cache target weights and only recompute V @ U (a | faster delta=cached_w
    6.2 | If mask is None, fuse: x @ (V @ U) | faster unmasked_form=fused
    Priority 11 | Fused operations (may already be handled by torc | faster unmasked_form=fused
    6.3 | Python dict operations have overhead: use ordere | faster stack_modules=stacked
    6.4 | gpt2_config.yaml has n_steps: 20 for PGD | pgd_steps >= 20 <= 20 pgd_steps=n where
    ... preset=gpt2_one/gpt2_all pgd_steps=None
    6.4 | Reducing n_steps during early training; larger s | faster pgd_steps=schedule,
    ... pgd_steps=larger, pgd_steps=every_k
    Priority 10 | PGD optimizations (depends on how much time PGD | faster pgd_steps=schedule,
    ... pgd_steps=larger, pgd_steps=every_k, pgd_steps=persistent, pgd_inner=detached, pgd_layerwise=single
    7.1 | Save in background thread (as written the file g | faster checkpoint=async
    Priority 4 | Async checkpointing | high checkpoint=async
    7.2 | wandb.log can be slow. Use commit=False and batc | faster wandb_logging=commit_false
    8.1 | torch.cuda.empty_cache() and gc.collect() are ex | expensive gc=rarely, gc=oom_only
    Priority 7 | Reduce gc.collect() frequency | high gc=rarely, gc=oom_only
    8.2 | Gradient checkpointing: ~30% slower (as written | time >= 0.7519 <= 0.7874
    ... grad_checkpointing=per_block
    8.2 | Gradient checkpointing uses significantly less m | memory significantly
    ... grad_checkpointing=per_block
    8.3 | Explicitly delete large intermediates; let PyTor | memory <= 1 free_early=on
    9.1 | torch.profiler.schedule(wait=1, warmup=1, active | profiled_steps >= 3 <= 3 profiler=torch
    9.2 | CUDA Events for Timing (as written without warm- | none profiler=events
    9.3 | Simple Timing: torch.cuda.synchronize() before a | a rule
    Priority 1-4 | High Impact, Low Effort: the four together | high pin_memory=on num_workers=4
    ... non_blocking=on compile=ci_fns checkpoint=async
    Quick start | Minimal changes for immediate speedup | faster pin_memory=on num_workers=4
    ... non_blocking=on compile=target against patching=wrapper
    4 and 2 | bfloat16 and compilation without new algebra: ab | time >= 1.44 <= 1.76 amp=bf16
    ... patching=wrapper compile=full
"""


def test_every_claim_promises_what_its_sentence_says() -> None:
    assert spelled.claims(CLAIMS) == spelled.entries(EXPECTED, {})
