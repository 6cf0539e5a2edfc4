"""What each claim about LatentWire promises, of which levels, as read from the report's own sentence."""

from __future__ import annotations

import spelled

from workloads.latentwire.claims import CLAIMS

SHORT = {
    "wins": "pin_memory=on non_blocking=on micro_batch=64",
    "rest": (
        "loader=dataloader num_workers=4 tokenise=pre accum=backward_each k_loss=batched "
        "teacher=slice_header grad_checkpointing=on attn=flash encoder_trim=batch_max bucket=window "
        "empty_cache=epoch"
    ),
}
EXPECTED = """
    1 | ~20-30% performance overhead from blocking trans | time >= 1.25 <= 1.429 non_blocking=on,
    ... pin_memory=on non_blocking=on
    2 | DataLoader with num_workers=4: Parallel data loa | worker_batches >= 1 num_workers=4,
    ... loader=dataloader num_workers=4
    2 | No DataLoader usage: CPU bottleneck during data | faster loader=dataloader, num_workers=4,
    ... loader=dataloader num_workers=4
    3 | ~10-15% overhead from repeated tokenization | time >= 1.111 <= 1.176 tokenise=pre,
    ... tokenise=cache
    4 | Creating new tensors instead of in-place operati | memory <= 1 accum=backward_each
    5 | Default batch size of 1: 4x H100 GPUs running at | device_busy_share >= 0.09 <= 0.11
    ... micro_batch=1 where preset=full/full8b
    5 | For 4x H100 (80GB each): batch_size=256-512; wit | faster micro_batch=256 effective_batch=1024,
    ... micro_batch=512 effective_batch=1024
    5 | Memory-safe formula: batch_size = min(512, avail | rows_chosen >= 256 <= 512 micro_batch=auto
    ... where preset=full/full8b
    6 | Loop over K tokens instead of parallel computati | time >= 1.053 <= 1.111 k_loss=batched
    7 | 2-3x speedup possible with AMP | time >= 2 <= 3 amp=fp16, amp=bf16
    8 | KV cache not properly reused across steps: ~15-2 | time >= 1.176 <= 1.25 k_loss=kv,
    ... teacher=slice_header, teacher=cache_h
    Quick win 1 | Enable non-blocking transfers | faster non_blocking=on, pin_memory=on non_blocking=on
    Quick win 2 | Increase batch size: Change default from 1 to 64 | faster micro_batch=64,
    ... micro_batch=128 effective_batch=128, micro_batch=auto
    Quick win 3 | Enable mixed precision: Add AMP with minimal cod | faster amp=fp16, amp=bf16
    Quick win 4 | Use fused optimizer: Already implemented but ens | faster optimizer=fused
    Medium term 1 | Add DataLoader: Replace manual batching with Dat | faster loader=dataloader,
    ... num_workers=4, loader=dataloader num_workers=4
    Medium term 2 | Pre-compute tokenizations: Cache all tokenizatio | faster tokenise=pre,
    ... tokenise=cache
    Medium term 3 | Optimize gradient accumulation: Use in-place ope | memory <= 1 accum=backward_each
    Architecture 1 | Implement gradient checkpointing: Trade compute | slower grad_checkpointing=on
    Architecture 1 | Implement gradient checkpointing: for memory | memory <= 1 grad_checkpointing=on
    Architecture 2 | Use Flash Attention 2: 2-4x speedup on attention | attention_speedup >= 2 <= 4
    ... attn=flash amp=bf16, attn=flash lm_dtype=bf16
    Architecture 3 | Optimize encoder architecture: Reduce redundant | faster encoder_trim=batch_max,
    ... calibration=once
    Memory 1 | Use gradient checkpointing for memory-intensive | memory <= 1
    ... grad_checkpointing=selective
    Memory 2 | Implement dynamic batching based on sequence len | memory <= 1 bucket=window,
    ... bucket=global
    Memory 3 | Use ZeRO optimization for model parallel trainin | memory <= 1 parallel=fsdp
    Memory 4 | Clear cache after each epoch: torch.cuda.empty_c | memory <= 1 empty_cache=epoch
    Estimated gains | Current: ~24 hours for full training | seconds_per_iteration*training_steps >=
    ... 7.776e+04 <= 9.504e+04 micro_batch=1 where preset=full/full8b
    Estimated gains | After Quick Wins: ~8-12 hours | seconds_per_iteration*training_steps >= 2.88e+04
    ... <= 4.32e+04 {wins} amp=fp16 optimizer=fused, {wins} amp=bf16 optimizer=fused where
    ... preset=full/full8b
    Estimated gains | After Quick Wins: ~8-12 hours (2-3x speedup) | time >= 2 <= 3 {wins} amp=fp16
    ... optimizer=fused, {wins} amp=bf16 optimizer=fused
    Estimated gains | With All Optimizations: ~4-6 hours | seconds_per_iteration*training_steps >=
    ... 1.44e+04 <= 2.16e+04 {wins} amp=fp16 optimizer=fused {rest}, {wins} amp=bf16 optimizer=fused {rest}
    ... where preset=full/full8b
    Estimated gains | With All Optimizations: ~4-6 hours (4-6x speedup | time >= 4 <= 6 {wins} amp=fp16
    ... optimizer=fused {rest}, {wins} amp=bf16 optimizer=fused {rest}
    Monitoring | GPU utilization (target: >80%) | device_busy_share >= 0.8 {wins} amp=fp16
    ... optimizer=fused {rest}, {wins} amp=bf16 optimizer=fused {rest} where preset=full/full8b
    Validation | Run small benchmark (100 samples): Verify no acc | results_kept >= 1 {wins} amp=fp16
    ... optimizer=fused {rest}, {wins} amp=bf16 optimizer=fused {rest} where data_n=100
    Risks | Have fallback for OOM scenarios | retries/retries >= 1 oom=backoff
    Conclusion | Fixing GPU-CPU transfers (immediate 20-30% gain) | time >= 1.25 <= 1.429
    ... non_blocking=on, pin_memory=on non_blocking=on
    Conclusion | Increasing batch sizes (2-4x speedup) | time >= 2 <= 4 micro_batch=64, micro_batch=128
    ... effective_batch=128, micro_batch=256 effective_batch=1024, micro_batch=512 effective_batch=1024,
    ... micro_batch=auto
    Conclusion | Adding mixed precision (2-3x speedup) | time >= 2 <= 3 amp=fp16, amp=bf16
    Conclusion | reduce training time from 24 hours to under 6 ho | time >= 4 {wins} amp=fp16
    ... optimizer=fused {rest}, {wins} amp=bf16 optimizer=fused {rest}
    Conclusion | reduce training time to under 6 hours while main | seconds_per_iteration*training_steps
    ... <= 2.16e+04 {wins} amp=fp16 optimizer=fused {rest}, {wins} amp=bf16 optimizer=fused {rest} where
    ... preset=full/full8b
"""


def test_every_claim_promises_what_its_sentence_says() -> None:
    assert spelled.claims(CLAIMS) == spelled.entries(EXPECTED, SHORT)
