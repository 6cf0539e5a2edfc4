"""Layers cut among ranks and put together again, of ranks that only say what they hold."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bare_arms import bare

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.presets import LMS
from perfsweep.workloads.latentwire.training import sharding
from perfsweep.workloads.latentwire.training.sharding import ShardedLayer, check_shards, shard, split_layers


def model(name: str = "nano-q") -> CausalLM:
    made = CausalLM(LMS[name], torch.Generator().manual_seed(0), torch.float64)
    made.path = Path(LayerPath(KERNELS["sdpa"]))
    return made


def test_a_model_in_parts_computes_what_the_whole_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut, counts = model(), model(), Counter[str]()
    alone = bare({"parallel": "fsdp"})
    alone.models = {0: SimpleNamespace(lm=cut)}
    alone.spread()
    assert not any(isinstance(layer, ShardedLayer) for layer in cut.layers), "one rank has nothing to share"
    monkeypatch.setattr(sharding.dist, "all_gather_into_tensor", lambda to, own: to.copy_(own))
    shard(cut, 0, 1, counts)
    x = whole.embed(torch.arange(5)[None])
    with torch.no_grad():
        assert torch.allclose(whole.run(x), cut.run(x))
    once = counts["gathered_bytes"]
    learning = x.clone().requires_grad_()
    cut.run(learning).sum().backward()
    assert counts["gathered_bytes"] == 3 * once, "the backward pass gathers each layer again"
    own = x.clone().requires_grad_()
    whole.run(own).sum().backward()
    assert torch.allclose(own.grad, learning.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("effective", "examples", "fill", "fine"),
    [(4, 16, "setup", True), (3, 15, "setup", False), (4, 18, "setup", False), (4, 16, "lazy", False)],
)
def test_ranks_must_run_the_same_passes(effective: int, examples: int, fill: str, fine: bool) -> None:
    config: Any = SimpleNamespace(teacher_fill=fill)
    shape: Any = SimpleNamespace(effective=effective)
    if fine:
        check_shards(config, shape, examples, 2)
        return
    with pytest.raises(
        ConfigError, match=f"effective_batch={effective} must divide into 2 and divide the {examples}"
    ):
        check_shards(config, shape, examples, 2)


@pytest.mark.parametrize(
    ("layers", "devices", "places"),
    [(4, 2, [0, 0, 1, 1]), (5, 2, [0, 0, 0, 1, 1]), (3, 3, [0, 1, 2]), (2, 4, [0, 1])],
)
def test_runs_of_layers_lie_on_one_device_after_the_other(
    layers: int, devices: int, places: list[int]
) -> None:
    moved: list[int] = []
    made: Any = SimpleNamespace(layers=[SimpleNamespace(to=moved.append) for _ in range(layers)])
    split_layers(made, list(range(devices)))  # type: ignore[arg-type]
    assert moved == places
