"""Updates, schedules, metrics, windows, greedy answers and what a training refuses."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.greedy_decoding import BatchDecoder, Decoder
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.presets import LMS
from perfsweep.workloads.latentwire.workload import LatentWire


def test_broken_losses_reach_no_weight(start, run) -> None:
    workload = start()
    run(workload, 1)
    before = [p.detach().clone() for p in workload.arm.parameters]
    with torch.no_grad():
        workload.arm.models[0].anchor.fill_(math.nan)
    run(workload, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, workload.arm.parameters, strict=True))
    assert workload.evidence().numbers["skipped"] == 1


@pytest.mark.workloads
def test_losses_fall(start, run) -> None:
    workload = run(start({"passes": "merged", "teacher": "cache_h"}, lr=3e-3), 60)
    history = list(workload.arm.history)
    assert sum(history[-8:]) < 0.97 * sum(history[:8])


@pytest.mark.parametrize("level", ["index", "dataloader"])
def test_every_loader_gives_the_same_rows(start, level) -> None:
    resident = start({"loader": "resident_index", "answer_trim": "batch_max", "encoder_trim": "batch_max"})
    other = start(
        {"loader": level, "tokenise": "pre", "answer_trim": "batch_max", "encoder_trim": "batch_max"}
    )
    for _ in range(10):  # more than an epoch
        a, b = next(resident.arm.loading), next(other.arm.loading)
        for left, right in zip(a.pieces, b.pieces, strict=True):
            assert left.index == right.index
            assert torch.equal(left.source, right.source)
            for one, two in zip(left.models, right.models, strict=True):
                assert torch.equal(one.answer, two.answer)
                assert torch.equal(one.weights, two.weights)
                assert torch.equal(one.prompts.positions, two.prompts.positions)


def build_lm() -> CausalLM:
    lm = CausalLM(LMS["nano-q"], torch.Generator().manual_seed(0), torch.float64)
    lm.path = Path(LayerPath(KERNELS["sdpa"]))
    return lm


def test_rows_decode_together_as_they_do_alone() -> None:
    """Prefixes of other lengths: upstream passed a mask of length one and let pads be seen."""
    lm = build_lm()
    torch.manual_seed(0)
    x, lengths = 0.02 * torch.randn(3, 9, 48, dtype=torch.float64), [9, 4, 6]
    stop = BatchDecoder(lm, -1, 3)(x, lengths)[0][1, 2].item()  # some token that really comes
    for end in (int(stop), -1):
        together, alone = (kind(lm, end, 8)(x, lengths) for kind in (BatchDecoder, Decoder))
        assert torch.equal(together[0], alone[0])
        assert torch.equal(together[1], alone[1])
    noisy = x.clone()
    noisy[1, 4:] = 9.0  # what stands in the padding does not matter
    assert torch.equal(BatchDecoder(lm, -1, 8)(noisy, lengths)[0], BatchDecoder(lm, -1, 8)(x, lengths)[0])


def test_sizes_are_the_presets_but_for_those_that_are_given(start, run) -> None:
    sizes = {"latents": 5, "answer_tokens": 7, "early_tokens": 2, "latent_width": 24, "max_bytes": 96}
    workload = run(start({"passes": "merged"}, **sizes, encoder_layers=2), 1)
    assert LatentWireConfig(preset="test", latents=5).sizes.max_bytes == 128
    encoder = workload.arm.encoder
    assert encoder.pooler.queries.shape == (5, 24)
    assert len(encoder.bytes.layers) == 2 and encoder.bytes.positions.shape == (96, 24)
    assert workload.arm.collator.window([0, 1]).pieces[0].models[0].answer.shape[1] == 7


@pytest.mark.parametrize(("preset", "batch"), [("test", 4), ("demo", 64)])
def test_a_step_takes_the_presets_batch_where_none_is_given(preset, batch) -> None:
    config = LatentWireConfig(preset=preset)
    toggles = LatentWire.configured(config).toggles
    levels = Space(toggles, config, Device()).closure({})
    assert (levels["effective_batch"], levels["micro_batch"]) == (batch, 1)
    assert [toggle.name for toggle in toggles] == [toggle.name for toggle in LatentWire.toggles]
