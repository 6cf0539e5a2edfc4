"""What a person takes home: files that others read, and from which a training goes on as if never ended."""

# Drives `named_files` and `declaration` of perfsweep.workloads.spd when a training is planned.
from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from perfsweep import conf
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.spd import decompose, library
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.library import PATHS
from perfsweep.workloads.spd.presets import PRESETS
from perfsweep.workloads.spd.training.loop import DivergedError
from perfsweep.workloads.spd.training.targets import Given
from perfsweep.workloads.spd.workload import Spd
from perfsweep.workloads.weight_files import read_safetensors

OWN: dict[str, Any] = {
    "target": "tests:Network",
    "tokens_path": "given",
    "counts": {"body.0": 5, "body.2": 7},
    "seq_len": 5,
    "eval_every": 0,
    "save_every": 0,
}
FILES = {"decomposition.safetensors", "decomposition.json", "checkpoint.pt", "upstream.pth"}


@pytest.fixture
def kept(start, run, network, tokens, tmp_path):
    """A training of three iterations, and the folder that it has kept itself in."""
    workload = start(config=OWN, given=Given(network, tokens))
    run(workload, 3)
    folder = tmp_path / "kept"
    folder.mkdir()
    workload.keep(folder)
    return workload, folder


def values(workload: Any) -> dict[str, torch.Tensor]:
    return workload.arm.decomposition.state()


def test_the_files_hold_the_decomposition_and_say_what_it_is(kept) -> None:
    workload, folder = kept
    assert {file.name for file in folder.iterdir()} == FILES
    found = read_safetensors(folder / "decomposition.safetensors")
    assert all(torch.equal(found[name], value) for name, value in values(workload).items())
    said = json.loads((folder / "decomposition.json").read_text())
    assert said["iterations"] == 3
    assert said["modules"][1] == {"name": "body.2", "kind": "linear", "in": 10, "out": 6, "C": 7}
    assert said["configuration"]["counts"] == OWN["counts"]
    assert np.isfinite(said["figures"]["eval/ce_unrecovered/ci"])
    upstream = torch.load(folder / "upstream.pth", weights_only=True)
    assert torch.equal(upstream["_components.body-2.V"], found["components.body-2.V"])
    assert torch.equal(upstream["target_model.out.weight"], workload._given.module.out.weight)


def test_a_training_goes_on_from_what_was_kept_to_the_bit(kept, start, run, network, tokens) -> None:
    workload, folder = kept
    config = {**OWN, "resume": str(folder / "checkpoint.pt")}
    second = start(config=config, given=Given(network, tokens))
    run(workload, 2)
    run(second, 2)
    assert second.arm.step == 5
    assert all(torch.equal(values(second)[name], value) for name, value in values(workload).items())


def test_what_files_say_is_refused_when_the_plan_is_made(run, start, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    toy = {"preset": "tms_5-2_test"}
    workload = start(config=toy)
    run(workload, 1)
    Path("kept").mkdir()
    workload.keep(Path("kept"))
    np.save("ids.npy", np.array([1, 2, 300]))
    np.save("words.npy", np.array(["a"]))
    Path("cut.safetensors").write_bytes(Path("kept/decomposition.safetensors").read_bytes()[:-9])
    own = {key: value for key, value in OWN.items() if key != "tokens_path"} | {"target": "mine.py:build"}
    Path("mine.py").touch()
    Spd.planned(SpdConfig(**toy, resume="kept/checkpoint.pt"))
    Spd.planned(SpdConfig(**toy, values_path="kept/decomposition.safetensors"))
    Spd.planned(SpdConfig(**toy, values_path="kept/upstream.pth"))
    Spd.planned(SpdConfig(**own, tokens_path="ids.npy"))
    for fields, sentence in (
        ({**toy, "resume": "gone.pt"}, r"workload\.resume=gone\.pt does not exist"),
        ({**toy, "resume": "kept/upstream.pth"}, "is no checkpoint of SPD"),
        ({**toy, "components": 9, "resume": "kept/checkpoint.pt"}, "belongs to another architecture"),
        ({**toy, "values_path": "cut.safetensors"}, r"cut\.safetensors cannot be read"),
        ({**toy, "components": 9, "values_path": "kept/upstream.pth"}, "belongs to another architecture"),
        ({"tokens_path": "gone.npy"}, r"workload\.tokens_path=gone\.npy does not exist"),
        ({"tokens_path": "ids.npy"}, "holds token id 300"),
        ({"preset": "gpt2_one", "target_path": "./gone"}, r"workload\.target_path=\./gone"),
        ({**own, "tokens_path": "words.npy"}, "whole numbers"),
        ({**own, "target": "gone.py:build", "tokens_path": "ids.npy"}, r"there is no file gone\.py"),
    ):
        with pytest.raises(ConfigError, match=sentence) as refusal:
            Spd.planned(SpdConfig(**fields))
        assert "\n" not in str(refusal.value)


def test_a_folder_that_takes_no_files_is_named(kept, tmp_path) -> None:
    workload, _ = kept
    with pytest.raises(ConfigError, match=r"keep=.*gone cannot be written to"):
        workload.keep(tmp_path / "gone")


def test_a_diverged_training_keeps_nothing(start, run, network, tokens, tmp_path) -> None:
    workload = start(config=OWN, given=Given(network, tokens), metrics="deferred", mask_checks="off")
    with torch.no_grad():
        workload.arm.decomposition.component_parameters()[0].fill_(torch.nan)
    run(workload, 1)
    with pytest.raises(DivergedError):
        workload.keep(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def test_the_function_trains_leaves_the_network_alone_and_keeps(network, tokens, tmp_path) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    rows: list[Any] = []
    with decompose(network, tokens, {"body.*": 6}, steps=4, log_every=2, log=rows.append, seed=1) as found:
        assert len(found.losses) == 4 and [row["step"] for row in rows] == [2, 4]
        importances = found.importances(tokens[:3])
        assert importances["body.2"].shape == (3, 5, 6)
        assert all(ci.min() >= 0 and ci.max() <= 1 for ci in importances.values())
        assert "eval/divergence/ci" in found.figures()
        assert found.upstream()["_components.body-0.U"].shape == (6, 10)
        found.keep(tmp_path / "out")
        with pytest.raises(ConfigError, match=r"out exists and is not empty"):
            found.keep(tmp_path / "out")
        tensors = found.tensors
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES
    assert network.training and all(p.requires_grad for p in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    with decompose(network, tokens, {"body.*": 6}, steps=0, values=tensors) as again:
        assert all(torch.equal(again.tensors[name], value) for name, value in tensors.items())


def test_a_network_and_vectors_in_bfloat16_are_read_exactly() -> None:
    network = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).bfloat16()
    vectors = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    own: dict[str, Any] = {"modules": {"0": 6}, "steps": 2, "batch_size": 8, "importance": "shared_mlp"}
    losses = []
    for net, rows in ((network, vectors), (copy.deepcopy(network).float(), vectors.float())):
        with decompose(net, rows, **own) as found:
            losses.append(found.losses)
    assert losses[0] == losses[1]
    assert network[0].weight.dtype == torch.bfloat16


@pytest.mark.parametrize("path", ["exact", "gathered", "stacked", "compiled"])
def test_a_path_of_the_function_is_the_headlines_arm_of_its_name(path) -> None:
    file = Path(conf.__file__).parent / "sweep" / "spd" / "headline.yaml"
    design = OmegaConf.to_container(OmegaConf.load(file))["sweep"]["designs"][0]  # type: ignore[index, call-overload]
    arm, here = design["arms"][path], PATHS[path]
    of_a_target_or_a_process = {"prefix_reuse", "fused_target_ops", "gc", "wandb_logging"}
    assert {name: value for name, value in arm.items() if name not in of_a_target_or_a_process} == {
        name: value for name, value in here.items() if name != "pgd_layerwise"
    }


def test_the_function_says_which_path_it_ran_and_takes_another(network, tokens) -> None:
    own: dict[str, Any] = {"modules": {"body.*": 6}, "steps": 2, "dtype": "float64"}
    losses = {}
    for path in (None, "naive", "stacked"):
        with decompose(network, tokens, path=path, **own) as found:
            losses[path] = found.losses
            assert found.path == path or (path, found.path) == (None, "gathered")
            assert found.levels.get("routed_rows") == ("gathered" if path is None else None)
            assert bool(found.levels) == (path != "naive")
            assert found._workload.levels["patching"] == ("temp_hooks" if path == "naive" else "wrapper")
    assert losses[None] == pytest.approx(losses["naive"], rel=1e-12)
    assert losses["stacked"] == pytest.approx(losses["naive"], rel=1e-12)


@pytest.mark.workloads
def test_kernels_are_built_where_a_compiler_is_and_one_thread_runs(network, tokens, monkeypatch) -> None:
    monkeypatch.setattr(library, "compiler_here", compiler_here)
    with decompose(network, tokens, {"body.*": 6}, steps=1) as found:
        assert (found.levels.get("draws"), found.levels.get("products")) == ("native", "native")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with decompose(network, tokens, {"body.*": 6}, steps=0) as found:
        assert "products" not in found.levels


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"resume": "c.pt"}, r"resume is a field of runs"),
        ({"learning_rate": 1.0}, r"decompose\(\): .*learning_rate"),
        ({"lr": -1.0}, r"workload\.lr=-1\.0"),
        ({"modules": {}}, r"workload\.counts=\{\} .*patterns with numbers"),
        ({"modules": {"nothing": 3}}, r"pattern 'nothing' matches no module"),
        ({"data": np.zeros(5)}, r"data must be token ids \[n, S\] or vectors \[n, f\]"),
        ({"path": "banana"}, r"^path=banana: no such path\. Give one of naive, exact, gathered, stacked"),
        ({"amp": "banana"}, r"^amp=banana: no such type\. Give one of off, bf16, fp16\.$"),
        ({"amp": "fp16"}, r"^amp=fp16: float16 needs a GPU, and device=cpu\. Give amp=bf16 or amp=off\.$"),
        ({"device": "banana"}, r"^device=banana: no such device\. Give cpu or cuda\.$"),
    ],
)
def test_the_function_says_what_does_not_fit(network, tokens, own, sentence) -> None:
    given = {"data": tokens, "modules": {"body.*": 3}, "steps": 1, **own}
    with pytest.raises(ConfigError, match=sentence):
        decompose(network, **given)


def test_a_recipe_is_begun_from_by_its_name(network, tokens, monkeypatch) -> None:
    monkeypatch.setitem(PRESETS, "tiny", replace(PRESETS["lm_test"], batch=3, lr=0.5))
    with decompose(network, tokens, {"body.*": 6}, steps=0, preset="tiny") as found:
        assert (found._workload.arm.config.recipe.batch, found._workload.arm.config.recipe.lr) == (3, 0.5)
