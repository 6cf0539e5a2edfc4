"""Train the small models of the preset ``quality``, so that answers mean something.

``python -m perfsweep.workloads.latentwire.pretrain FOLDER`` draws the preset's two models at random, teaches
each to answer generated questions from the text in its prompt, and writes them as ``FOLDER/tiny-l`` and
``FOLDER/tiny-q``: config.json, model.safetensors, tokenizer.json and a chat template, as transformers and
`workload.lm_path` read them. It stops where exact matches on held-out contexts reach ``--until``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.errors import ConfigError, PerfsweepError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data import batches, generator, readers
from perfsweep.workloads.latentwire.data.corpus import layouts_for
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.frozen import parameters_of
from perfsweep.workloads.latentwire.maths.greedy_decoding import BatchDecoder
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath
from perfsweep.workloads.latentwire.maths.lm import Path as PassPath
from perfsweep.workloads.latentwire.presets import LMS, LMConfig
from perfsweep.workloads.latentwire.scores import exact_match
from perfsweep.workloads.training.precision import autocast

HELD_OUT = 64
IGNORED = -100


@dataclass(frozen=True)
class Course:
    """How long and how fast a model is taught; `share` of the loss is the text's, the rest the answer's."""

    steps: int
    batch: int = 32
    lr: float = 1e-3
    warmup: int = 200
    until: float = 0.8
    test_every: int = 250
    share: float = 0.2


def examples(seed: int) -> Iterator[Example]:
    """Generated examples without end: no context comes twice."""
    while True:
        found = readers.parse(generator.generate("squad", 2000, seed), "generated")
        random.Random(seed).shuffle(found)
        yield from found
        seed += 1


def teach(lm: CausalLM, layout: Layout, course: Course, device: torch.device) -> float:
    """Train a model to answer from the text in its prompt; share of exact matches on held-out contexts."""
    held_out = [example for example, _ in zip(examples(seed=0), range(HELD_OUT), strict=False)]
    stream = examples(seed=1)
    optimizer = torch.optim.AdamW(lm.parameters(), lr=course.lr, betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / course.warmup))
    started, found = time.monotonic(), 0.0
    for step in range(1, course.steps + 1):
        rows = [layout.row(next(stream)) for _ in range(course.batch)]
        with autocast("bf16" if device.type == "cuda" else "off", device):
            loss = _loss(lm, layout, [(row.scaffold, row.answer) for row in rows], course.share, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rate.step()
        if step % course.test_every == 0 or step == course.steps:
            found = exact_matches(lm, layout, held_out, device)
            spent = time.monotonic() - started
            print(
                f"step {step}: loss {loss.item():.3f}, exact matches {found:.2f}, {spent:.0f} s", flush=True
            )
            if found >= course.until:
                break
    return found


def _loss(
    lm: CausalLM, layout: Layout, rows: list[tuple[list[int], list[int]]], share: float, device: torch.device
) -> Tensor:
    """Cross entropies of texts and of answers, each a mean over its own tokens."""
    whole = [scaffold + answer for scaffold, answer in rows]
    longest = max(map(len, whole))
    ids = batches.padded(whole, longest, layout.tokenizer.pad).to(device)
    targets, answers = (torch.full_like(ids, IGNORED) for _ in range(2))
    for row, (scaffold, answer) in enumerate(rows):
        end = len(scaffold) + len(answer)
        targets[row, : len(scaffold)] = ids[row, : len(scaffold)]
        answers[row, len(scaffold) : end] = ids[row, len(scaffold) : end]
    logits = lm.logits(lm.run(lm.embed(ids[:, :-1]))).flatten(0, 1)
    text, answer = (F.cross_entropy(logits, part[:, 1:].flatten()) for part in (targets, answers))
    return share * text + (1 - share) * answer


@torch.no_grad()
def exact_matches(lm: CausalLM, layout: Layout, held_out: Sequence[Example], device: torch.device) -> float:
    """Share of held-out examples that greedy decoding answers exactly."""
    rows = [layout.scaffold(example.source) for example in held_out]
    ids = batches.padded(rows, max(map(len, rows)), layout.tokenizer.pad).to(device)
    end = layout.tokenizer.end
    found, _ = BatchDecoder(lm, end, layout.answer_tokens)(lm.embed(ids), [len(row) for row in rows])
    texts = [layout.tokenizer.decode(row[: row.index(end)] if end in row else row) for row in found.tolist()]
    hits = [exact_match(text, example.answers) for text, example in zip(texts, held_out, strict=True)]
    return sum(hits) / len(hits)


def write_model(folder: Path, lm: CausalLM, kind: str, layout: Layout, tokenizer_file: Path) -> None:
    """Write a model as transformers keeps it, with its tokenizer.

    Raises
    ------
    ConfigError
        The folder exists already, or cannot be written.
    """
    from safetensors.torch import save_file

    tensors = {name: value.detach().cpu().contiguous() for name, value in parameters_of(lm).items()}
    try:
        folder.mkdir(parents=True)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(_config_of(lm.config, kind), indent=2) + "\n")
        _write_tokenizer(folder, layout, tokenizer_file)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error}); name another folder") from error


def _config_of(shape: LMConfig, kind: str) -> dict[str, Any]:
    return {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[kind]],
        "model_type": kind,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": shape.activation,
        "rms_norm_eps": shape.rms_eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": shape.max_pos,
        "tie_word_embeddings": shape.tie_embeddings,
    }


def _write_tokenizer(folder: Path, layout: Layout, file: Path) -> None:
    """The made tokenizer with its special tokens, and its template in Jinja."""
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast

    trained: Any = layout.tokenizer
    flavour, made = trained.flavour, Tokenizer.from_file(str(file))
    # Special tokens have fixed ids after the vocabulary, which may have unused ids at its end.
    unused = [f"<|unused{number}|>" for number in range(made.get_vocab_size(), trained.first_special)]
    names = [*unused, *map(_spelled, flavour.specials)]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=_spelled(flavour.end), pad_token=_spelled(flavour.pad)
    )
    if flavour.bos is not None:
        fast.bos_token = _spelled(flavour.bos)
    text = ("{{ bos_token }}" if flavour.bos else "") + flavour.template
    text = text.replace("{system}", "{{ messages[0].content }}").replace(
        "{user}", "{{ messages[1].content }}"
    )
    for name in flavour.specials:
        text = text.replace(name, _spelled(name))
    # Jinja drops a newline at the very end.
    fast.chat_template = f"{text[:-1]}{{{{ '\\n' }}}}" if text.endswith("\n") else text
    fast.save_pretrained(folder)


def _spelled(special: str) -> str:
    """Another spelling of a special token: its own has become an ordinary token of the trained vocabulary."""
    return special.replace("|", "||")


def main(arguments: Sequence[str]) -> int:
    """Status 0 where every model answers as well as asked, 1 where one does not, 2 for a mistake."""
    given = _parsed(arguments)
    try:
        reached = [_pretrain(given, number) for number in range(2)]
    except PerfsweepError as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if min(reached) >= given.until else 1


def _pretrain(given: argparse.Namespace, number: int) -> float:
    config = LatentWireConfig(preset=given.preset, tokenizer="bpe", max_prompt=400)
    name = config.sizes.lms[number]
    folder = Path(given.folder) / name
    if folder.exists():
        raise ConfigError(f"{folder} exists already; name another folder")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = LMS[name]
    with tempfile.TemporaryDirectory() as cache:
        layout = layouts_for(config, [LMS[one] for one in config.sizes.lms], Path(cache))[number]
        (tokenizer_file,) = Path(cache).glob("latentwire-bpe-*.json")
        lm = CausalLM(shape, torch.Generator().manual_seed(number)).to(device).requires_grad_(True)
        lm.path = PassPath(LayerPath(KERNELS["sdpa"]))
        print(f"{name}: {sum(p.numel() for p in lm.parameters()):,} parameters on {device}", flush=True)
        found = teach(lm, layout, Course(given.steps, until=given.until), device)
        write_model(folder, lm, "qwen2" if shape.qkv_bias else "llama", layout, tokenizer_file)
    print(f"{folder}: exact matches {found:.2f} of {HELD_OUT} held-out contexts", flush=True)
    return found


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m perfsweep.workloads.latentwire.pretrain", description=__doc__
    )
    parser.add_argument("folder", help="where the models are written")
    parser.add_argument("--preset", default="quality", help="whose models (default: quality)")
    parser.add_argument("--steps", type=int, default=20_000, help="at most (default: 20000)")
    parser.add_argument("--until", type=float, default=0.8, help="exact matches to stop at (default: 0.8)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
