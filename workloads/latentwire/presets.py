"""Sizes: language models and whole workloads, by name.

Imports nothing but the standard library, so that plans and formulas can read it.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("squad", "squad2", "hotpot")
"""Kinds of data that are generated."""

ENCODER_HEADS = 8
"""Heads of every attention of the byte encoder."""

PAD_BYTE = 256
"""The id that fills rows of bytes up: the first after the ids of bytes."""


NORMS = ("norm1", "after1", "norm2", "after2", "q_norm", "k_norm")
"""Norms that a layer may have: before and after attention, before and after the MLP, of queries and keys."""


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.x stretching of long wavelengths."""

    factor: float
    low_freq: float = 1.0
    high_freq: float = 4.0
    original_max: int = 8192


@dataclass(frozen=True)
class LinearRope:
    """Every wavelength `factor` times as long."""

    factor: float


@dataclass(frozen=True)
class Yarn:
    """YaRN (Peng et al. 2023): wavelengths that turn less than `slow` times in `original_max` positions are
    stretched, wavelengths that turn more than `fast` times are not; `loudness` multiplies cosines and
    sines.

    `whole` rounds the ends of the blend between the two outwards to whole pairs.
    """

    factor: float
    original_max: int
    fast: float = 32.0
    slow: float = 1.0
    loudness: float = 1.0
    whole: bool = True


@dataclass(frozen=True)
class LMConfig:
    """Shape of a causal LM with RMSNorm, RoPE, grouped queries and a gated MLP.

    Attributes
    ----------
    qkv_bias : Qwen2 adds a bias to queries, keys and values; Llama only where its `attention_bias` says so
    tie_embeddings : the head is the embedding table
    max_pos : positions that the model knows
    o_bias, mlp_bias : output projections, the MLP's matrices have a bias
    activation : of the gate; a name in `maths.lm.ACTIVATIONS`
    window : positions that a query sees, itself included, in the layers that are `windowed`, by number
    unturned : numbers of the layers without rotary positions
    qk_norm : queries and keys are normed by "head" (Qwen3), as one "row" of all heads (OLMo 2); None: not
    norms : "before" attention and MLP, "after" them (OLMo 2), or "both" (Gemma)
    local_theta : of layers with a window, where nothing scales rotary positions (Gemma 3); None: as of all
    query_scale : queries are multiplied by it, beyond the root of a head's width
    score_cap, logit_cap : attention scores, logits are bent to stay below: cap * tanh(x / cap) (Gemma 2)
    folder_table_scale, folder_norm_offset : what tables and norms of files lack: the first times the scale,
        the second and the offset are what is computed with (Gemma)
    joined_folder : files have one matrix for queries, keys and values, and one for gate and up (Phi-3)
    """

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    rope_theta: float = 1e4
    rope_scaling: RopeScaling | LinearRope | Yarn | None = None
    rms_eps: float = 1e-5
    qkv_bias: bool = False
    tie_embeddings: bool = True
    max_pos: int = 131072
    o_bias: bool = False
    mlp_bias: bool = False
    activation: str = "silu"
    window: int | None = None
    windowed: tuple[int, ...] = ()
    unturned: tuple[int, ...] = ()
    qk_norm: str | None = None
    norms: str = "before"
    local_theta: float | None = None
    query_scale: float = 1.0
    score_cap: float | None = None
    logit_cap: float | None = None
    joined_folder: bool = False
    folder_table_scale: float = 1.0
    folder_norm_offset: float = 0.0

    def window_of(self, layer: int) -> int | None:
        """Positions that a query of this layer sees, itself included; None: all before it."""
        return self.window if layer in self.windowed else None

    @property
    def norm_widths(self) -> dict[str, int | None]:
        """Entries of each norm of a layer; None: it has no such norm."""
        e = self.head_dim
        of_heads = {"head": (e, e), "row": (self.n_heads * e, self.n_kv_heads * e), None: (None, None)}
        before, after = (
            self.d_model if self.norms in (place, "both") else None for place in ("before", "after")
        )
        return dict(zip(NORMS, (before, after, before, after, *of_heads[self.qk_norm]), strict=True))

    @property
    def attention_parameters(self) -> int:
        """Entries of one layer's query and output projections, and of its key and value projections."""
        return 2 * self.d_model * self.head_dim * (self.n_heads + self.n_kv_heads)

    @property
    def mlp_parameters(self) -> int:
        """Entries of one layer's three MLP matrices."""
        return 3 * self.d_model * self.d_ff

    @property
    def body_parameters(self) -> int:
        """N: entries of all layers' matrices."""
        return self.n_layers * (self.attention_parameters + self.mlp_parameters)

    @property
    def head_parameters(self) -> int:
        """H: entries of the head."""
        return self.d_model * self.vocab_size

    @property
    def pruned_parameters(self) -> int:
        """N_qom: the last layer's query, output and MLP matrices, unused by rows that are not read."""
        return 2 * self.d_model * self.head_dim * self.n_heads + self.mlp_parameters


LORA_TARGETS = ("q", "k", "v", "o", "gate", "up", "down")
"""Matrices of a layer that can have low-rank additions."""


def _qwen(*sizes: int, theta: float = 1e4, tied: bool = True) -> LMConfig:
    vocab, width, layers, heads, kv_heads, head_dim, d_ff = sizes
    return LMConfig(vocab, width, layers, heads, kv_heads, head_dim, d_ff, theta, None, 1e-6, True, tied)


LMS = {
    "nano-l": LMConfig(512, 64, 2, 4, 2, 16, 176),
    "nano-q": _qwen(512, 48, 2, 4, 2, 12, 128),
    "tiny-l": LMConfig(2048, 192, 3, 6, 2, 32, 512),
    "tiny-q": _qwen(2048, 128, 3, 4, 2, 32, 384),
    "mid-l": LMConfig(2048, 384, 3, 6, 2, 64, 1024),
    "mid-q": _qwen(2048, 256, 3, 4, 2, 64, 768),
    "count-l": LMConfig(4096, 256, 4, 4, 2, 64, 896),
    "count-q": _qwen(4096, 192, 4, 4, 2, 48, 672),
    "llama-3.2-1b": LMConfig(128256, 2048, 16, 32, 8, 64, 8192, 5e5, RopeScaling(32.0)),
    "qwen2.5-0.5b": _qwen(151936, 896, 24, 14, 2, 64, 4864, theta=1e6),
    "llama-3.1-8b": LMConfig(
        128256, 4096, 32, 32, 8, 128, 14336, 5e5, RopeScaling(8.0), tie_embeddings=False
    ),
    "qwen2.5-7b": _qwen(152064, 3584, 28, 28, 4, 128, 18944, theta=1e6, tied=False),
}


@dataclass(frozen=True)
class Preset:
    """Everything that scales together.

    Attributes
    ----------
    lms : names of the frozen models
    latent_width : d_z of encoder and latents
    encoder_layers, max_bytes : of the byte encoder
    latents, answer_tokens, early_tokens : M, T and K
    examples : generated examples
    batch : of them in an optimiser step, where `effective_batch` is not given
    probe_rows : rows of the fixed batch that evidence is computed on
    """

    lms: tuple[str, ...]
    latent_width: int
    encoder_layers: int
    max_bytes: int
    latents: int
    answer_tokens: int
    early_tokens: int
    examples: int
    probe_rows: int
    batch: int = 64


PRESETS = {
    "test": Preset(("nano-l", "nano-q"), 32, 1, 128, 4, 6, 3, 64, 4, batch=4),
    "demo": Preset(("mid-l", "mid-q"), 64, 2, 512, 32, 16, 4, 512, 8),
    "count": Preset(("count-l", "count-q"), 128, 6, 512, 32, 16, 4, 64, 8),
    "full": Preset(("llama-3.2-1b", "qwen2.5-0.5b"), 256, 6, 512, 32, 16, 4, 20000, 8),
    "full8b": Preset(("llama-3.1-8b", "qwen2.5-7b"), 256, 6, 512, 32, 16, 4, 20000, 8),
    "quality": Preset(("tiny-l", "tiny-q"), 64, 2, 512, 32, 16, 4, 2000, 8),
}


def fast_flops(lm: LMConfig, prefix: int, answer: int, early: int) -> float:
    """Products of one example and LM with one pruned pass and a cached teacher."""
    body = 4.0 * lm.body_parameters * (prefix + answer - 1) - 4.0 * lm.pruned_parameters * (prefix - 1)
    return body + 4.0 * lm.head_parameters * answer + 2.0 * lm.head_parameters * early
