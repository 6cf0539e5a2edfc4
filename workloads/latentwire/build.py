"""Frozen models and what is trained, built from a configuration and levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perfsweep.workloads.api import Levels
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data import cache
from perfsweep.workloads.latentwire.data.cache import TeacherCache
from perfsweep.workloads.latentwire.data.corpus import Corpus
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.kernels import native_attention
from perfsweep.workloads.latentwire.maths import local_models
from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder, table_rms
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, run_layer, store_as
from perfsweep.workloads.latentwire.maths.lm import Path as PassPath
from perfsweep.workloads.latentwire.maths.model_config import read_shape
from perfsweep.workloads.latentwire.maths.objective import Model, Options
from perfsweep.workloads.latentwire.maths.student import Student, StudentPath
from perfsweep.workloads.latentwire.maths.teacher import Teacher
from perfsweep.workloads.latentwire.maths.trainables import Trained, trained_for
from perfsweep.workloads.latentwire.presets import LMS, LMConfig
from perfsweep.workloads.latentwire.training.accumulate import Form
from perfsweep.workloads.latentwire.training.updates import Updates
from perfsweep.workloads.training.precision import autocast

DTYPES = {"float32": torch.float32, "float64": torch.float64}
LM_SEED = 100
RECORDING_LIMIT = 4096
"""One function is every layer of every pass, each of which is a recording of its own: beyond torch's 128 it
would run without graphs, silently."""

RECOMPILE_LIMIT = 64  # two models, and a static shape for every length of prefix and answer
HOST_DRAWN = 100_000_000  # parameters up to which weights are drawn on the host, the same for every device


def model_shapes(config: LatentWireConfig) -> list[LMConfig]:
    """Shapes of the frozen models: the preset's, or those of local folders."""
    if config.lm_path is not None:
        shapes = [read_shape(folder, config.inert_fields) for folder in config.lm_folders]
        config.require_depth(shapes)
        config.require_targets(shapes)
        return shapes
    return [LMS[name] for name in config.sizes.lms[: config.models]]


class Builder:
    """Builds everything on one device, choosing each toggle's path once."""

    def __init__(
        self,
        config: LatentWireConfig,
        levels: Levels,
        device: torch.device,
        counts: Counter[str],
        cache_dir: Path,
    ):
        self.config, self.levels, self.device = config, levels, device
        self.counts, self.cache_dir = counts, cache_dir
        self.dtype = DTYPES[config.dtype]
        self.fingerprints: dict[int, str] = {}
        self.options = Options(
            calibrate_once=levels["calibration"] == "once",
            chatty=levels["sync"] == "chatty",
            state_kd=config.state_kd,
            manifold=config.manifold,
            adaptive_first=config.adaptive_first,
            autocast=lambda: autocast(str(levels["amp"]), device),
        )
        self._block = self._compiled_block()

    def _compiled_block(self) -> Callable[..., Any] | None:
        mode = self.levels["compile"]
        if mode == "off":
            return None
        torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT  # type: ignore[attr-defined]
        options: dict[str, Any] = {"mode": "reduce-overhead"} if mode == "reduce_overhead" else {}
        if options:
            from torch._inductor import config

            config.triton.cudagraph_unexpected_rerecord_limit = RECORDING_LIMIT
        return torch.compile(run_layer, dynamic=False, **options)

    def trainables(self, shapes: list[LMConfig], seed: int) -> tuple[LatentEncoder, list[Trained]]:
        """The encoder and what each model has of its own, drawn on the host: equal values on every device."""
        sizes, config = self.config.sizes, self.config
        torch.manual_seed(seed)
        width = sizes.latent_width
        encoder = LatentEncoder(
            width, sizes.encoder_layers, sizes.max_bytes, sizes.latents, config.norm, config.dropout
        )
        encoder.bytes.recompute = self.levels["grad_checkpointing"] == "on"
        trained = trained_for(config, shapes)
        if self.levels["encoder_attn"] == "native":
            native_attention.build()
            encoder.pack(native_attention.attention)
        return encoder.to(self.device, self.dtype), [one.to(self.device, self.dtype) for one in trained]

    def updates(self, groups: Mapping[str, Sequence[nn.Parameter]], steps: int) -> Updates:
        """The optimiser of a training of `steps` steps, over groups of what is trained."""
        config, levels = self.config, self.levels
        return Updates(
            groups,
            str(levels["optimizer"]),
            lr=config.lr,
            weight_decay=config.weight_decay,
            clip=config.clip,
            total=steps,
            chatty=levels["sync"] == "chatty",
            scaled=levels["amp"] == "fp16",
            counts=self.counts,
        )

    def form(self) -> Form:
        """How gradients of pieces add up."""
        levels = self.levels
        return Form(
            each=levels["accum"] == "backward_each",
            per_model=levels["model_backward"] == "per_model",
            chatty=levels["sync"] == "chatty",
            backoff=levels["oom"] == "backoff",
            oom_above=self.config.oom_above,
        )

    def frozen(self, number: int, shape: LMConfig) -> tuple[CausalLM, torch.Tensor]:
        """One frozen model as it is stored, and its table's root mean square before any rounding."""
        large = shape.body_parameters + shape.head_parameters > HOST_DRAWN
        generator = torch.Generator(self.device if large else "cpu").manual_seed(LM_SEED + number)
        lm = CausalLM(shape, generator, self.dtype)
        if self.config.lm_path is not None:
            local_models.load_weights(lm, self.config.lm_folders[number])
        lm = lm.to(self.device)
        self.fingerprints[number] = cache.fingerprint(local_models.parameters_of(lm).items())
        rho = table_rms(lm.table)
        store_as(lm, str(self.levels["lm_dtype"]))
        attend, recompute = KERNELS[str(self.levels["attn"])], str(self.levels["grad_checkpointing"])
        lm.path = PassPath(LayerPath(attend, recompute), self._block, counts=self.counts)
        return lm, rho

    def model(self, number: int, shape: LMConfig, trained: Trained, layout: Layout, corpus: Corpus) -> Model:
        """One frozen model with its student, teacher and trainables."""
        lm, rho = self.frozen(number, shape)
        levels, path = self.levels, self._student_path()
        early = self.config.sizes.early_tokens
        student = Student(lm, path, layout.before, layout.anchor_ids, early, trained.lora)
        header = torch.tensor(corpus.header(number), device=self.device, dtype=torch.long)
        teacher = Teacher(
            lm,
            str(levels["teacher"]),
            header,
            pruned=path.pruned,
            states=self.config.state_kd,
            context=self.options.autocast,
        )
        if str(levels["teacher"]).startswith("cache"):
            teacher.cache = self._teacher_cache(number, lm, corpus)
        return Model(lm, trained, student, teacher, self.options, self.counts, rho)

    def _student_path(self) -> StudentPath:
        levels = self.levels
        merged, pruned = levels["passes"] == "merged", levels["last_block"] == "pruned"
        return StudentPath(str(levels["k_loss"]), merged, str(levels["logits"]), pruned, self.config.state_kd)

    def _teacher_cache(self, number: int, lm: CausalLM, corpus: Corpus) -> TeacherCache:
        """The cache that belongs to this shape, weights as they are stored, tokens, K and type."""
        early, width = self.config.sizes.early_tokens, lm.config.d_model
        weights = cache.weights_key([*lm.named_parameters(), *lm.named_buffers()])
        model = f"{lm.config}/{weights}"
        dtype = lm.table.dtype
        key = cache.key_of(model, corpus.key(number), early, str(dtype), self.levels["amp"], width)
        folder = self.cache_dir / f"latentwire-teacher-{key}"
        return TeacherCache(folder, (len(corpus), early, width), dtype)


def groups_of(encoder: LatentEncoder, trained: Sequence[Trained]) -> dict[str, list[nn.Parameter]]:
    """All trainables by group: encoder, then adapter0, lora0, deep0, adapter1 ..., where models have them."""
    found = {"encoder": list(encoder.parameters())}
    for number, one in enumerate(trained):
        found |= {f"{name}{number}": list(part.parameters()) for name, part in one.named_children()}
    return found
