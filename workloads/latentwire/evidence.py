"""What evidence shows: one window's terms and gradient, and greedy answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from perfsweep.workloads.api import Levels
from perfsweep.workloads.latentwire.build import model_shapes
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data import batches
from perfsweep.workloads.latentwire.data.batches import Piece, Shape, Window
from perfsweep.workloads.latentwire.data.corpus import Corpus
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.maths.attention import KERNELS, Allowed, Attend, eager
from perfsweep.workloads.latentwire.maths.greedy_decoding import Decoder
from perfsweep.workloads.latentwire.maths.objective import Objective, Phase
from perfsweep.workloads.latentwire.presets import LMConfig
from perfsweep.workloads.latentwire.training.accumulate import Accumulator
from perfsweep.workloads.latentwire.training.ranks import Ranks
from perfsweep.workloads.latentwire.training.updates import Updates


@torch.no_grad()
def greedy_answers(
    objective: Objective,
    layouts: Sequence[Layout],
    corpus: Corpus,
    config: LatentWireConfig,
    trim: bool,
    batched: bool,
) -> dict[int, tuple[Tensor, Tensor]]:
    """Greedy answers after latents of some held-out rows; where choices turn close; [rows, t] by model."""
    texts = [example.source.encode()[: corpus.max_bytes] for example in corpus.held_out[: config.eval_rows]]
    width = max(map(len, texts)) if trim else corpus.max_bytes
    device = objective.encoder.pooler.queries.device
    source = batches.source_bytes(texts, width).to(device)
    z = objective.latents(Piece(source, source[:, 0], tuple(range(len(texts))), []))
    found = {}
    for number, model in objective.models.items():
        decoder = Decoder(
            model.lm, layouts[number].tokenizer.end, config.max_new, batched, model.student.lora
        )
        with objective.autocast():
            start = model.student.start(model.prefix(z))
            ids, close = decoder(start.tokens, [start.tokens.shape[1]] * len(texts), start.past)
        found[number] = ids.cpu(), close.cpu()
    return found


def attention_speedup(
    config: LatentWireConfig, levels: Levels, layouts: Sequence[Layout], shape: Shape, device: torch.device
) -> dict[str, float]:
    """How many times as fast the attention layers alone are; nothing where they are the baseline's."""
    attend, half = KERNELS[str(levels["attn"])], levels["lm_dtype"] != "fp32"
    if attend is eager or not layouts:
        return {}
    dtype = torch.bfloat16 if half or levels["amp"] != "off" else shape.dtype
    length = layouts[0].prefix + config.sizes.answer_tokens
    return {
        "attention_speedup": kernel_speedup(
            attend, model_shapes(config)[0], shape.micro, length, device, dtype
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


def probe_gradient(
    window: Window,
    accumulator: Accumulator,
    objective: Objective,
    updates: Updates,
    ranks: Ranks,
    phase: Phase,
) -> dict[str, Tensor]:
    """Terms [6], norm [1] and flat gradient of a window; the gradient is cleared at the end."""
    terms = accumulator.window(window, phase)
    ranks.add_up(updates.parameters, Counter())
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in updates.parameters]
    )
    updates.optimizer.zero_grad(set_to_none=True)
    for model in objective.models.values():
        model.lm.zero_grad(set_to_none=True)
    flat = (flat / updates.loss_scale).cpu()
    probe = {"terms": ranks.total(terms).cpu(), "gradient": flat, "gradient_direction": flat}
    return {**probe, "grad_norm": flat.double().norm().to(flat.dtype).reshape(1)}
