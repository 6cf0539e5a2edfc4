"""LatentWire trainings to look into: started with any levels at test size, closed after the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from added import distance, learn

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device, Evidence, LevelValue, NullClock
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.workload import LatentWire

HERE = Device(compiler=True, cores=2)
SMALL: dict[str, LevelValue] = {"effective_batch": 4, "micro_batch": 4}


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("latentwire")


@pytest.fixture
def start(cache_dir: Path, tmp_path: Path) -> Iterator[Callable[..., LatentWire]]:
    """Sets up a training: ``start({"k_loss": "kv"}, dtype="float64")``. Levels left out follow the others."""
    running: list[LatentWire] = []

    def make(
        levels: Mapping[str, Any] | None = None,
        kind: str = "timing",
        seed: int = 0,
        log: Any = None,
        device: Device = HERE,
        cache: Path | None = None,
        small: bool = True,
        **config: Any,
    ) -> LatentWire:
        own: dict[str, Any] = {"preset": "test", "tokenizer": "bytes", "max_prompt": 200}
        if small and "data" not in config:
            own |= {"data_n": 16, "eval_rows": 2, "max_new": 4, "held_out": 4}
        made = LatentWireConfig(**{**own, **config})
        chosen = Space(LatentWire.toggles, made, device).closure(
            {**(SMALL if small else {}), **(levels or {})}
        )
        context = Context(
            device,
            scratch_dir=tmp_path,
            cache_dir=cache or cache_dir,
            seed=seed,
            log=log or (lambda row: None),
        )
        workload = LatentWire()
        running.append(workload)
        workload.setup(made, chosen, context)
        if kind == "evidence":
            workload.prepare_evidence()
        return workload

    yield make
    for workload in running:
        workload.close()


SPECIALS = ["<|bos|>", "<|start|>", "<|sep|>", "<|eot|>"]
CHAT = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|eot|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
PROSE = "Context: The capital of Ba is Den.\nQuestion: Which? You answer questions. Answer: Den Far"


@pytest.fixture(scope="session")
def byte_level() -> Callable[[], Any]:
    """Trains a tokenizer of the kind that Llama 3 and Qwen2 have: blanks belong to the word behind them."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, pre_tokenizers, trainers

    def train() -> Any:
        made = tokenizers.Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=420, initial_alphabet=alphabet, special_tokens=SPECIALS, show_progress=False
        )
        made.train_from_iterator([PROSE] * 20, trainer)
        return made

    return train


@pytest.fixture(scope="session")
def write_tokenizer() -> Callable[..., Path]:
    """Writes a tokenizer's files into a folder; special tokens by name, as ``bos_token=...``."""
    transformers = pytest.importorskip("transformers")

    def write(folder: Path, made: Any, template: str | None = CHAT, **special: str) -> Path:
        fast = transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, **{"eos_token": "<|eot|>", **special}, chat_template=template
        )
        fast.save_pretrained(folder)
        return folder

    return write


@pytest.fixture(scope="session")
def local_model(
    tmp_path_factory: pytest.TempPathFactory,
    byte_level: Callable[[], Any],
    write_tokenizer: Callable[..., Path],
) -> Path:
    """A whole model's folder, at random weights."""
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=424,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    config.save_pretrained(folder)
    save_file(transformers.Qwen2ForCausalLM(config).state_dict(), folder / "model.safetensors")
    return write_tokenizer(folder, byte_level())


def iterate(workload: LatentWire, steps: int) -> LatentWire:
    for _ in range(steps):
        workload.step(NullClock())
    return workload


@pytest.fixture
def run() -> Callable[[LatentWire, int], LatentWire]:
    """Does some steps."""
    return iterate


@pytest.fixture
def evidence_of(start: Callable[..., LatentWire]) -> Callable[..., Evidence]:
    """What some steps have computed, in float64: ``evidence_of({"logits": "slice"}, steps=2)``.

    With `learned` additions to the models are not zero any more.
    """

    def compute(
        levels: Mapping[str, Any] | None = None, steps: int = 2, learned: bool = False, **more: Any
    ) -> Evidence:
        made = start(levels, **{"dtype": "float64", **more})
        (learn(made) if learned else made).prepare_evidence()
        return iterate(made, steps).evidence()

    return compute


@pytest.fixture(scope="session")
def _references() -> dict[Any, Evidence]:
    return {}


@pytest.fixture
def reference_of(
    evidence_of: Callable[..., Evidence], _references: dict[Any, Evidence]
) -> Callable[..., Evidence]:
    """As `evidence_of` on the naive path, computed once for all tests that compare with it."""

    def look_up(**config: Any) -> Evidence:
        key = tuple(sorted(config.items()))
        if key not in _references:
            _references[key] = evidence_of(**config)
        return _references[key]

    return look_up


@pytest.fixture
def deviations() -> Callable[[Evidence, Evidence], dict[str, float]]:
    """Relative distances of two trainings' terms, gradients and losses."""

    def compare(arm: Evidence, reference: Evidence) -> dict[str, float]:
        return {
            name: distance(arm.tensors[name], reference.tensors[name])
            for name in ("terms", "gradient", "losses")
        }

    return compare


@pytest.fixture
def short(tmp_path: Path) -> str:
    """A file whose sources and answers are shorter than the limits of encoder and answer."""
    record = {"context": "The capital of Ba is Den.", "question": "Which?"}
    lines = [{**record, "id": str(i), "answers": {"text": ["D" + "en"[: i % 3]]}} for i in range(20)]
    file = tmp_path / "short.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return str(file)
