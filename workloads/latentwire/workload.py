"""Training soft tokens for frozen language models: one encoder, several models, four losses.

One iteration is one optimiser step over the effective batch. Set-up (data, tokens, caches, models) is timed
apart.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.api import Clock, Context, Evidence, Levels, NullClock, Replayable, Work, Workload
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import checkpoint, declaration, presets
from perfsweep.workloads.latentwire import evidence as probes
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data import cache
from perfsweep.workloads.latentwire.data.batches import Window
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.maths.frozen import model_shapes
from perfsweep.workloads.latentwire.maths.trainables import Lora, Trained
from perfsweep.workloads.latentwire.scores import Score, evaluate
from perfsweep.workloads.latentwire.variants import arm
from perfsweep.workloads.toggles import product_type
from perfsweep.workloads.weight_files import write_safetensors

COUNTED = (
    *("kept_batches", "micro_steps", "graphs_kept", "backward_calls", "student_passes"),
    *("student_positions", "head_rows", "lm_flops", "lm_positions", "lm_bytes", "teacher_rows"),
    *("teacher_head_rows", "teacher_positions", "padded_positions", "encoder_positions"),
    *("encoder_kernels", "native_products", "table_reads", "attention_kernels", "syncs"),
    *("rows_tokenised", "host_copies", "loader_batches", "worker_batches", "pinned_batches"),
    *("unwaited_copies", "prefetched_batches", "examples", "cache_releases", "devices_used", "ranks"),
    *("retries", "decode_calls", "examples_per_step", "reduced_bytes", "gathered_bytes"),
    *("broken_terms",),
)
"""Names of the counts that trials record, zero where nothing happened."""


class LatentWire(declaration.LatentWire, Workload):
    """A training; see what it declares."""

    def __init__(self) -> None:
        self._endings = contextlib.ExitStack()

    def setup(self, config: LatentWireConfig, levels: Levels, context: Context) -> None:
        """Build everything, and choose each toggle's path.

        Raises
        ------
        ConfigError
            Data, models or memory do not allow this training.
        """
        self._config, self._levels, self._context = config, levels, context
        self._clock: Clock = NullClock()
        self._step = 0
        self._probe: dict[str, Tensor] = {}
        self.arm = arm(levels)(config, levels, context, self._phase)
        self._counts = self.arm.counts
        self._products = self.arm.products(self._endings)
        self.arm.build()
        self._endings.callback(self.arm.close)
        if config.resume is None:
            self.arm.start(self._step)
        else:
            self._resume(Path(config.resume))
        self.cadence = math.lcm(*self.arm.periods())
        self._lm_bytes = sum(model.lm.stored_bytes() for model in self.arm.models.values())

    def _phase(self, name: str) -> AbstractContextManager[Any]:
        return self._clock.phase(name)

    def step(self, clock: Clock) -> None:
        """One optimiser step over one window, and the periodic work that is due."""
        self._clock = clock
        self.arm.mark_step()
        started = time.perf_counter()
        with clock.phase("data_wait"):
            window = next(self.arm.loading)
        waited = time.perf_counter() - started
        with self._products:
            terms = self.arm.gradients(window)
        with clock.phase("optim"):
            self.arm.add_up()
            norm = self.arm.apply()
        with clock.phase("log"):
            values = self._logged(self.arm.total(terms), norm)
            host = {"batch_ms": (time.perf_counter() - started) * 1e3, "data_wait_ms": waited * 1e3}
            self.arm.push(values, {**host, "examples": float(window.examples)})
        self._step += 1
        self._count_step(window)
        self.arm.release(self._step)
        if self._config.eval_every and self._step % self._config.eval_every == 0:
            with clock.phase("evaluate"):
                probes.greedy_answers(self.arm)
        self._clock = NullClock()

    def _logged(self, terms: Tensor, norm: Tensor) -> Tensor:
        """Terms, gradient norm and skipped steps in one vector: one copy brings them to the host."""
        own = (value.reshape(1).to(terms.dtype) for value in (norm, self.arm.skipped))
        return torch.cat((terms, *own))

    def _count_step(self, window: Window) -> None:
        counts = self._counts
        counts["examples"] += window.examples
        counts["examples_per_step"] += window.examples
        counts["worker_rows_tokenised"] += window.tokenised if counts["worker_batches"] else 0
        counts["lm_bytes"] += self._lm_bytes
        counts["ranks"] += self._context.world
        counts["devices_used"] += len(
            {p.device for model in self.arm.models.values() for p in model.lm.parameters()}
        )

    def progress(self) -> float:
        """Examples of all ranks trained on since `setup`."""
        return float(self._counts["examples"])

    def evaluate(self, max_new: int) -> list[Score]:
        """Answers of every arm to the held-out examples."""
        return evaluate(self.arm, self.arm.corpus.held_out, max_new)

    def prepare_evidence(self) -> None:
        """Terms and gradient of one window of fixed rows along this arm's path, at the initial parameters."""
        counts = Counter(self._counts)
        with self._products:
            self._probe = self._probe_gradient()
        self._counts.clear()
        self._counts.update(counts)

    def _probe_gradient(self) -> dict[str, Tensor]:
        rows = min(self._config.sizes.probe_rows, len(self.arm.corpus))
        return probes.probe_gradient(self.arm, self.arm.window_of(list(range(rows))))

    def numbers(self) -> dict[str, float]:
        """The last loss, and the norm of everything that is trained."""
        self.arm.flush()
        trained = [p.detach().double().norm() for group in self.arm.groups.values() for p in group]
        return {
            "last_loss": self.arm.history[-1] if self.arm.history else math.nan,
            "parameter_norm": torch.stack(trained).norm().item(),
        }

    def evidence(self) -> Evidence:
        """The probe's terms and gradient, the losses so far, greedy answers and a few numbers."""
        self.arm.flush()
        numbers = {
            "examples": self.progress(),
            "skipped": float(self.arm.skipped.item()),
            "excluded_examples": float(self.arm.corpus.excluded),
            "rows_chosen": float(self.arm.shape.micro),
            "training_steps": float(self.arm.training_steps),
            "oom_deaths": 0.0,  # a trial that dies leaves no evidence
            "teacher_build_s": self.arm.teachers_cost(),
        }
        numbers |= probes.attention_speedup(self.arm)
        losses = torch.tensor(list(self.arm.history), dtype=self.arm.shape.dtype)
        answers = self.arm.gathered(probes.greedy_answers(self.arm))
        ids, close = (torch.cat(parts) for parts in zip(*answers, strict=True))
        return Evidence({**self._probe, "losses": losses, "greedy_ids": ids, "greedy_close": close}, numbers)

    def counters(self) -> Mapping[str, float]:
        """Counts since `setup`, made where the work is done."""
        found = {name: float(self._counts[name]) for name in COUNTED}
        # Loader workers count in their own processes and send the figure along.
        found["rows_tokenised"] = float(
            self.arm.corpus.counts["rows_tokenised"] + self._counts["worker_rows_tokenised"]
        )
        found["oom_deaths"] = 0.0
        return found

    def work(self) -> Work:
        """Least products for one example, over all models: one pruned pass, and a teacher that is there."""
        sizes = self._config.sizes
        parts = zip(model_shapes(self._config), self.arm.layouts, strict=True)
        return Work(
            flops=sum(
                presets.fast_flops(lm, layout.prefix, sizes.answer_tokens, sizes.early_tokens)
                for lm, layout in parts
            ),
            products="half"
            if self._levels["lm_dtype"] == "bf16"
            else product_type(self._levels, self._config.dtype),
        )

    def data_digest(self) -> str:
        """SHA-256 over all examples, what their ids depend on, local models and where training begins."""
        keys = [self.arm.corpus.digest(), *(self.arm.corpus.key(m) for m in range(len(self.arm.layouts)))]
        if self._config.lm_path is not None:
            keys += [*self.arm.fingerprints.values(), cache.key_of(*model_shapes(self._config))]
        if self._config.resume is not None:
            keys.append(checkpoint.digest(Path(self._config.resume)))
        return "-".join(keys)

    def state_dict(self) -> dict[str, Any]:
        """What a training needs to go on where it stopped."""
        modules = [self.arm.encoder, *self.arm.trained]
        return {
            "step": self._step,
            "modules": [
                {name: value.clone() for name, value in module.state_dict().items()} for module in modules
            ],
            "updates": copy.deepcopy(
                self.arm.updates_state()
            ),  # an optimizer's state goes on changing in place
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._step = state["step"]
        for module, values in zip([self.arm.encoder, *self.arm.trained], state["modules"], strict=True):
            module.load_state_dict(values)
        self.arm.load_updates(state["updates"])
        torch.set_rng_state(state["random"])
        self.arm.start(self._step)

    def keep(self, folder: Path) -> None:
        """Write a checkpoint, losses, scores and answers on held-out examples, and additions for PEFT.

        ``checkpoint/`` is what `workload.resume` and `load_compressor` read, ``losses.csv`` the last losses
        by step, ``scores.json`` EM, F1 and likelihoods of every arm of every model on the held-out examples,
        ``answers.jsonl`` the answers themselves, and ``lora-N/`` the additions to model N as an adapter of
        the PEFT library.

        Raises
        ------
        ConfigError
            The folder cannot be written, or no rank has all that is trained.
        """
        if self._levels["parallel"] == "model_per_gpu":
            raise ConfigError(
                "toggles.parallel=model_per_gpu leaves no rank with all adapters; use single to keep"
            )
        self.arm.flush()
        scores = self.evaluate(self._config.max_new)
        if self._context.rank:
            return
        first = self._step - len(self.arm.history) + 1
        losses = dict(enumerate(self.arm.history, first))
        write_results(folder, losses, scores, self.arm.corpus.held_out)
        models = checkpoint.facts_of_models(self.arm.models, self.arm.layouts, self._config.lm_folders)
        about = {**self._facts(), "models": models}
        checkpoint.write(folder / "checkpoint", self._modules(), self.state_dict(), about)
        write_additions(folder, self.arm.trained, self._config)

    def _modules(self) -> dict[str, nn.Module]:
        return checkpoint.modules_of(self.arm.encoder, self.arm.trained)

    def _resume(self, folder: Path) -> None:
        groups = self.arm.optimizer.state_dict()["param_groups"]
        self.load_state_dict(checkpoint.resume(folder, self._modules(), self._facts(), groups))

    def _facts(self) -> dict[str, Any]:
        order = [self._context.seed, self.arm.shape.effective, self.arm.shape.bucket]
        data = [self.arm.corpus.key(number) for number in range(len(self.arm.layouts))]
        return checkpoint.facts_of_training(self._config, self.arm.fingerprints, data, order)

    def replayable(self) -> Replayable:
        """What parity replays single iterations with."""
        groups = self.arm.groups.items()
        named = {f"{name}.{number}": p for name, group in groups for number, p in enumerate(group)}
        return Replayable(named, self.arm.optimizer, self.state_dict, self.load_state_dict)

    def close(self) -> None:
        """Hand over the last metrics and end loader processes."""
        self._endings.close()


PLACES = {
    **{name: f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")},
    **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}
"""Our names of a layer's matrices, and those of transformers."""


def write_results(
    folder: Path, losses: Mapping[int, float], scores: Sequence[Score], examples: Sequence[Example]
) -> None:
    """Write losses by step, scores and answers.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    rows = "".join(f"{step},{loss!r}\n" for step, loss in losses.items())
    answers = [
        {"id": example.id, "model": score.model, "arm": score.arm, "answer": text, "right": example.answers}
        for score in scores
        for text, example in zip(score.texts, examples, strict=True)
    ]
    try:
        (folder / "losses.csv").write_text("step,loss\n" + rows, encoding="utf-8")
        (folder / "scores.json").write_text(
            json.dumps([_figures(score) for score in scores], indent=2) + "\n"
        )
        lines = (json.dumps(answer, ensure_ascii=False) for answer in answers)
        (folder / "answers.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error}); name another folder") from error


def _figures(score: Score) -> dict[str, Any]:
    found = dataclasses.asdict(score)
    return {name: value for name, value in found.items() if name not in ("f1_each", "texts", "wall_s")}


def write_additions(folder: Path, trained: Sequence[Trained], config: LatentWireConfig) -> None:
    """Write every model's low-rank additions as PEFT keeps them; nothing where none were trained."""
    for number, one in enumerate(trained):
        if one.lora is None:
            continue
        place = folder / f"lora-{number}"
        place.mkdir()
        write_safetensors(place / "adapter_model.safetensors", _peft_names(one.lora))
        base = str(config.lm_folders[number]) if config.lm_folders else None
        about = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": config.lora_rank,
            "lora_alpha": config.lora_alpha,
            "target_modules": [PLACES[name].rpartition(".")[2] for name in config.lora_targets],
            "layers_to_transform": list(range(len(one.lora.layers))),
            "bias": "none",
            "lora_dropout": 0.0,
            "inference_mode": True,
        }
        (place / "adapter_config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _peft_names(lora: Lora) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for number, layer in enumerate(lora.layers):
        for name, addition in layer.named_children():
            start = f"base_model.model.model.layers.{number}.{PLACES[name]}"
            for part, value in (("lora_A", addition.a), ("lora_B", addition.b)):  # type: ignore[union-attr]
                found[f"{start}.{part}.weight"] = value.detach().cpu().contiguous()  # type: ignore[union-attr]
    return found
