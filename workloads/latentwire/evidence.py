"""What evidence shows: one window's terms and gradient, and greedy answers; and how these are judged."""

from __future__ import annotations

import time
from contextlib import nullcontext

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.data import batches
from perfsweep.workloads.latentwire.data.batches import Piece, Window
from perfsweep.workloads.latentwire.maths.attention import Allowed, Attend, eager
from perfsweep.workloads.latentwire.presets import LMConfig
from perfsweep.workloads.latentwire.reference import Reference


@torch.no_grad()
def greedy_answers(training: Reference) -> dict[int, tuple[Tensor, Tensor]]:
    """Greedy answers after latents of some held-out rows; where choices turn close; [rows, t] by model."""
    corpus, config = training.corpus, training.config
    texts = [example.source.encode()[: corpus.max_bytes] for example in corpus.held_out[: config.eval_rows]]
    width = max(map(len, texts)) if training.shape.trim else corpus.max_bytes
    source = batches.source_bytes(texts, width).to(training.encoder.pooler.queries.device)
    z = training.latents(Piece(source, source[:, 0], tuple(range(len(texts))), []))
    found = {}
    for number, model in training.models.items():
        end = training.layouts[number].tokenizer.end
        decode = training.decoder(model.lm, end, config.max_new, model.trained.lora)
        with training.autocast():
            start = training.around(model, training.prefix(model, z))
            ids, close = decode(start.tokens, [start.tokens.shape[1]] * len(texts), start.past)
        found[number] = ids.cpu(), close.cpu()
    return found


def attention_speedup(training: Reference) -> dict[str, float]:
    """How many times as fast the attention layers alone are; nothing where they are the baseline's."""
    if training.attend is eager or not training.models:
        return {}
    number, model = next(iter(training.models.items()))
    length = training.layouts[number].prefix + training.sizes.answer_tokens
    stored = model.lm.table.dtype
    half = stored in (torch.bfloat16, torch.float16) or not isinstance(training.autocast(), nullcontext)
    dtype = torch.bfloat16 if half else training.shape.dtype
    return {
        "attention_speedup": kernel_speedup(
            training.attend, model.lm.config, training.shape.micro, length, training.device, dtype
        )
    }


def kernel_speedup(
    attend: Attend, lm: LMConfig, rows: int, length: int, device: torch.device, dtype: torch.dtype
) -> float:
    """Time of the explicit attention of one layer, forward and backward, over that of `attend`."""
    heads = (lm.n_heads, lm.n_kv_heads, lm.n_kv_heads)
    q, k, v = (
        torch.full((rows, one, length, lm.head_dim), 0.1, device=device, dtype=dtype, requires_grad=True)
        for one in heads
    )

    def seconds(kernel: Attend, repeats: int = 10) -> float:
        start = 0.0
        for repeat in range(2 * repeats):  # the first half warms up
            if repeat == repeats:
                _wait(device)
                start = time.perf_counter()
            kernel(q, k, v, Allowed(causal=True)).sum().backward()
        _wait(device)
        return time.perf_counter() - start

    return seconds(eager) / seconds(attend)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def probe_gradient(training: Reference, window: Window) -> dict[str, Tensor]:
    """Terms [6], norm [1] and flat gradient of a window; the gradient is cleared at the end."""
    terms = training.gradients(window)
    training.add_up()
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in training.parameters]
    )
    training.optimizer.zero_grad(set_to_none=True)
    for model in training.models.values():
        model.lm.zero_grad(set_to_none=True)
    flat = (flat / training.loss_scale).cpu()
    probe = {"terms": training.total(terms).cpu(), "gradient": flat, "gradient_direction": flat}
    return {**probe, "grad_norm": flat.double().norm().to(flat.dtype).reshape(1)}
