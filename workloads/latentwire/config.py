"""What a LatentWire training trains."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsweep.workloads.errors import ConfigError, Ruled
from perfsweep.workloads.latentwire.presets import (
    ENCODER_HEADS,
    KINDS,
    LMS,
    LORA_TARGETS,
    PRESETS,
    LMConfig,
    Preset,
)

LORA_DEFAULT = ("q", "k", "v", "o")
SIZES = ("latents", "answer_tokens", "early_tokens", "latent_width", "encoder_layers", "max_bytes")
"""Sizes of the preset that can be given one by one."""


@dataclass(frozen=True)
class LatentWireConfig(Ruled):
    """What is trained, on what. How it is computed is the toggles' part.

    Attributes
    ----------
    preset : test, demo, count, full, full8b or quality: sizes of everything
    models : how many of the preset's frozen models take part; with `lm_path`, as many as it names folders
    latents, answer_tokens, early_tokens : M, T and K; null: the preset's
    latent_width, encoder_layers, max_bytes : of the byte encoder; null: the preset's
    data : squad, squad2 or hotpot (generated), or a file
    data_format : auto, squad, hotpot or flat
    data_n : examples, after a seeded shuffle; null: the preset's number of generated ones, or the whole file
    unanswerable : filter, or eos: nothing but the end is the answer
    tokenizer : auto, bpe or bytes, of models with random weights; those of `lm_path` bring their own
    anchor : text, chat or none: what is between latents and answer
    max_prompt : longest teacher prompt in tokens
    chat_template : of all models; it has {system} and {user}. Null: each tokenizer's own; empty: none
    norm, dropout : of the byte encoder
    lm_path : folders of local models (config.json, safetensors, tokenizer.json), one or two, separated by
        commas; null: random weights
    inert_fields : fields of their config.json that no computation reads
    resume : the folder `checkpoint` that an earlier training kept: goes on there; null: from the start
    state_kd, manifold, adaptive_first : optional losses
    lora_rank : columns of low-rank additions to the frozen matrices, for the student alone; null: none are
        trained
    lora_layers : layers that have them, from the first; null: all
    lora_targets : their matrices, of q, k, v, o, gate, up and down
    lora_alpha : a product counts lora_alpha / lora_rank times
    deep_prefix : keys and values of every layer, made of the soft tokens, precede the student's row
    dtype : float32 or float64, of everything that no toggle rounds
    epochs : what the learning rate's cosine spans
    log_every : steps from one copy of late metrics to the next
    eval_every, eval_rows, max_new : greedy answers for some held-out rows every so many steps; 0: never
    teacher_fill : setup, or lazy: the first epoch pays for the teacher's cache
    memory_mb : what micro_batch=auto may fill; null: the device's
    oom_above : fault injection: a piece with more rows fails as if memory had run out
    held_out : examples at the end of the shuffled data that are not trained on
    """

    preset: str = "demo"
    models: int = 2
    latents: int | None = None
    answer_tokens: int | None = None
    early_tokens: int | None = None
    latent_width: int | None = None
    encoder_layers: int | None = None
    max_bytes: int | None = None
    data: str = "squad"
    data_format: str = "auto"
    data_n: int | None = None
    data_seed: int = 0
    unanswerable: str = "filter"
    tokenizer: str = "auto"
    anchor: str = "text"
    max_prompt: int = 1024
    chat_template: str | None = None
    norm: str = "post"
    dropout: float = 0.0
    lm_path: str | None = None
    inert_fields: list[str] = field(default_factory=list)
    resume: str | None = None
    state_kd: bool = False
    manifold: bool = False
    adaptive_first: bool = False
    lora_rank: int | None = None
    lora_layers: int | None = None
    lora_targets: list[str] = field(default_factory=lambda: list(LORA_DEFAULT))
    lora_alpha: float = 16.0
    deep_prefix: bool = False
    dtype: str = "float32"
    lr: float = 1e-4
    weight_decay: float = 0.01
    clip: float = 1.0
    epochs: int = 24
    log_every: int = 10
    eval_every: int = 0
    eval_rows: int = 4
    max_new: int = 12
    teacher_fill: str = "setup"
    memory_mb: int | None = None
    oom_above: int | None = None
    held_out: int = 8

    def __post_init__(self) -> None:
        """Refuse what cannot be trained.

        Raises
        ------
        ConfigError
            A field is out of range; the message names it.
        """
        self._check_words()
        self._check_numbers()
        self._check_sizes()
        self._check_models()
        self._check_lora()
        if self.lm_path is None:
            self.require_depth([LMS[name] for name in self.sizes.lms[: self.models]])

    def _check_words(self) -> None:
        words = {
            "preset": tuple(PRESETS),
            "data_format": ("auto", "squad", "hotpot", "flat"),
            "unanswerable": ("filter", "eos"),
            "tokenizer": ("auto", "bpe", "bytes"),
            "anchor": ("text", "chat", "none"),
            "norm": ("post", "pre"),
            "dtype": ("float32", "float64"),
            "teacher_fill": ("setup", "lazy"),
        }
        for name, choices in words.items():
            self._require(name, getattr(self, name) in choices, f"one of {', '.join(choices)}")

    def _check_numbers(self) -> None:
        for name in ("epochs", "log_every", "eval_rows", "max_new", "max_prompt", "held_out"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("data_n", "memory_mb", "lora_rank", "lora_layers"):
            self._require(
                name, getattr(self, name) is None or getattr(self, name) >= 1, "at least 1, or null"
            )
        self._require("eval_every", self.eval_every >= 0, "at least 0")
        self._require("oom_above", self.oom_above is None or self.oom_above >= 0, "at least 0, or null")
        self._require("models", 1 <= self.models <= 2, "1 or 2")
        for name in ("lr", "clip", "lora_alpha"):
            self._require(name, 0 < getattr(self, name) < math.inf, "a number above 0")
        self._require("weight_decay", 0 <= self.weight_decay < math.inf, "a number from 0")
        self._require("dropout", 0 <= self.dropout < 1, "at least 0 and below 1")

    def _check_sizes(self) -> None:
        for name in SIZES:
            value = getattr(self, name)
            self._require(name, value is None or value >= 1, "at least 1, or null")
        sizes, most = self.sizes, self.sizes.answer_tokens
        self._require("early_tokens", sizes.early_tokens <= most, f"at most answer_tokens, which is {most}")
        self._require(
            "latent_width", sizes.latent_width % ENCODER_HEADS == 0, f"a multiple of {ENCODER_HEADS}"
        )

    def _check_models(self) -> None:
        if self.lm_path is None:
            self._require("inert_fields", not self.inert_fields, "empty where lm_path is null")
            return
        self._require("lm_path", 1 <= len(self.lm_folders) <= 2, "one folder, or two separated by a comma")
        self._require(
            "models", self.models >= len(self.lm_folders), f"{len(self.lm_folders)}, the folders of lm_path"
        )
        self._require("tokenizer", self.tokenizer == "auto", "auto: the folders of lm_path bring their own")

    def _check_lora(self) -> None:
        targets = self.lora_targets
        known = bool(targets) and set(targets) <= set(LORA_TARGETS) and len(set(targets)) == len(targets)
        self._require("lora_targets", known, f"a list of some of {', '.join(LORA_TARGETS)}, each once")
        changed = {
            "lora_layers": self.lora_layers is not None,
            "lora_targets": tuple(targets) != LORA_DEFAULT,
        }
        for name in [name for name, differs in changed.items() if differs and self.lora_rank is None]:
            raise ConfigError(
                f"workload.{name}={getattr(self, name)} does nothing while workload.lora_rank is null: set"
                " lora_rank too"
            )

    def require_depth(self, shapes: Sequence[LMConfig]) -> None:
        """Refuse more layers of additions than a model has.

        Raises
        ------
        ConfigError
            `lora_layers` exceeds the layers of one of `shapes`.
        """
        least = min(shape.n_layers for shape in shapes)
        self._require(
            "lora_layers",
            self.lora_layers is None or self.lora_layers <= least,
            f"at most {least}, a model's layers",
        )

    def require_targets(self, shapes: Sequence[LMConfig]) -> None:
        """Refuse additions that no adapter of PEFT can hold: to a part of a matrix of the model's folder.

        Raises
        ------
        ConfigError
            `lora_targets` names such a part of one of `shapes`.
        """
        whole = set(self.lora_targets) <= {"o", "down"}
        joined = self.lora_rank is not None and any(shape.joined_folder for shape in shapes)
        self._require(
            "lora_targets", whole or not joined, "some of o, down: this model's folder joins the others"
        )

    @property
    def sizes(self) -> Preset:
        """The preset's sizes, replaced by sizes that are given."""
        given = {name: getattr(self, name) for name in SIZES if getattr(self, name) is not None}
        return dataclasses.replace(PRESETS[self.preset], **given)

    @property
    def lm_folders(self) -> list[Path]:
        """Folders of the local models; none where weights are random."""
        return [Path(folder.strip()) for folder in (self.lm_path or "").split(",") if folder.strip()]

    @property
    def model_count(self) -> int:
        """How many frozen models take part."""
        return len(self.lm_folders) or self.models

    def absolute(self) -> LatentWireConfig:
        """The same configuration wherever it is read: files and folders from the root."""
        folders = ",".join(str(folder.absolute()) for folder in self.lm_folders)
        return dataclasses.replace(
            self,
            data=self.data if self.data in KINDS else str(Path(self.data).absolute()),
            lm_path=folders or None,
            resume=None if self.resume is None else str(Path(self.resume).absolute()),
        )
