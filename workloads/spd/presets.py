"""Named recipes: which target is decomposed into what, under which losses, and for how long.

Declarations only: no torch, so that plans can read them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perfsweep.workloads.spd.specs import Adversary, TransformerSpec


@dataclass(frozen=True)
class TargetSpec:
    """The frozen network.

    Attributes
    ----------
    kind : llama, gpt2, tms or module, which is the user's own
    layers, width, heads, kv_heads, mlp, vocab, context : of a language model
    features, hidden : of a toy model of superposition
    values : trained (on the corpus, or for toys on their data), analytic (toys with as many features as a
        star has points), random (for timing only: its softmax is nearly uniform) or given
    corpus : stories, stdlib, markov or induction
    vectors : a module reads vectors instead of token ids
    activation, eps, scaled, scaled_by_layer, tied : of GPT-2, see `Gpt2`
    """

    kind: str = "llama"
    layers: int = 2
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    mlp: int = 512
    vocab: int = 4019
    context: int = 512
    features: int = 0
    hidden: int = 0
    values: str = "random"
    corpus: str = "markov"
    vectors: bool = False
    activation: str = "gelu_new"
    eps: float = 1e-5
    scaled: bool = True
    scaled_by_layer: bool = False
    tied: bool = True

    @property
    def toy(self) -> bool:
        """Whether this is a toy model of superposition, whose right answer is known."""
        return self.kind == "tms"

    @property
    def own(self) -> bool:
        """Whether this is a user's own module, of which no stages are known."""
        return self.kind == "module"

    @property
    def reads_vectors(self) -> bool:
        """Whether inputs are vectors instead of token ids."""
        return self.toy or self.vectors


@dataclass(frozen=True)
class LossSpec:
    """One term of the objective.

    Attributes
    ----------
    kind : faithfulness, minimality, unmasked, ci_masked, stochastic, stochastic_subset, stochastic_layerwise,
        hidden_acts, pgd, pgd_subset, pgd_layerwise, persistent_pgd or persistent_pgd_subset
    steps, step_size, init, scope : of the adversarial kinds; init is random, ones or zeros, scope is shared
        or datapoint
    adversary : of the persistent kinds, whose `steps` are its own
    """

    kind: str
    coeff: float
    steps: int = 0
    step_size: float = 0.0
    init: str = "random"
    scope: str = "shared"
    adversary: Adversary | None = None

    @property
    def persistent(self) -> bool:
        """Whether sources are kept from iteration to iteration."""
        return self.kind.startswith("persistent")

    @property
    def adversarial(self) -> bool:
        """Whether sources are searched for by gradient ascent."""
        return self.kind.startswith("pgd")


@dataclass(frozen=True)
class Recipe:
    """A whole training.

    Attributes
    ----------
    modules : patterns of module names, each with its number of subcomponents C
    importance, hidden : kind of the causal-importance functions and the widths of their hidden layers
    transformer : sizes of the kind that is a transformer
    batch, seq : rows and positions of an iteration (seq 1 for toys)
    steps, lr, schedule, final_lr, lr_warmup : of the optimiser; final_lr as a fraction, lr_warmup as a share
        of steps
    clip_components, clip_importance : clip of the gradient norm of each group, None: off
    log_every, eval_every, save_every : periods in iterations; the last two 0 for never
    pnorm, final_p, anneal_from, anneal_to : exponent of the minimality loss, linear between two shares of
        training
    beta : weight of its log term
    warmup_steps, warmup_lr, warmup_decay : of the faithfulness warm-up
    """

    target: TargetSpec
    modules: tuple[tuple[str, int], ...]
    importance: str
    hidden: tuple[int, ...]
    losses: tuple[LossSpec, ...]
    batch: int
    seq: int
    steps: int
    lr: float
    schedule: str = "cosine"
    final_lr: float = 0.1
    lr_warmup: float = 0.0
    clip_components: float | None = None
    clip_importance: float | None = None
    pnorm: float = 2.0
    final_p: float = 0.3
    anneal_from: float = 0.0
    anneal_to: float = 1.0
    beta: float = 0.0
    warmup_steps: int = 0
    warmup_lr: float = 1e-3
    warmup_decay: float = 0.0
    transformer: TransformerSpec | None = None
    log_every: int = 100
    eval_every: int = 1000
    eval_batches: int = 5
    save_every: int = 1000
    activity: float = 0.05  # toys: probability that a feature is active

    @property
    def toy(self) -> bool:
        """Whether the target is a toy."""
        return self.target.toy


_TOY_LOSSES = (
    LossSpec("minimality", 3e-3),
    LossSpec("stochastic", 1.0),
    LossSpec("stochastic_layerwise", 1.0),
)


def _subset(steps: int, step_size: float, faithfulness: float, minimality: float) -> tuple[LossSpec, ...]:
    return (
        LossSpec("minimality", minimality),
        LossSpec("stochastic_subset", 0.5),
        LossSpec("pgd_subset", 0.5, steps, step_size),
        LossSpec("faithfulness", faithfulness),
    )


LAYERWISE = (
    LossSpec("minimality", 1e-3),
    LossSpec("stochastic_layerwise", 0.5),
    LossSpec("pgd_layerwise", 0.5, 1, 1.0),
    LossSpec("faithfulness", 1e6),
)
EVERY_MODULE = (
    LossSpec("minimality", 1e-3),
    LossSpec("stochastic", 0.5),
    LossSpec("pgd", 0.5, 1, 1.0),
    LossSpec("faithfulness", 1e6),
)
FORWARD_ONLY = (
    LossSpec("minimality", 1e-3),
    LossSpec("unmasked", 0.5),
    LossSpec("ci_masked", 0.5),
    LossSpec("hidden_acts", 0.5),
    LossSpec("faithfulness", 1e6),
)
"""The terms without sources of their own: reconstruction by all components, by the important ones, and of
what modules read."""

_TOY = Recipe(
    target=TargetSpec("tms", features=5, hidden=2, values="analytic"),
    modules=(("linear1", 20), ("linear2", 20)),
    importance="mlp",
    hidden=(16,),
    losses=_TOY_LOSSES,
    batch=512,
    seq=1,
    steps=2500,
    lr=3e-3,
    final_lr=0.0,
    pnorm=1.0,
    final_p=1.0,
    warmup_steps=200,
    warmup_lr=1e-2,
    warmup_decay=0.1,
    log_every=100,
    eval_every=500,
    eval_batches=1,
    save_every=500,
)

_TWO_LAYERS = Recipe(
    target=TargetSpec(),
    modules=tuple(
        (f"layers.*.{name}", 650) for name in ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.fc", "mlp.down")
    ),
    importance="shared_mlp",
    hidden=(550,),
    losses=_subset(1, 1.0, 1e6, 1e-3),
    batch=64,
    seq=512,
    steps=200_000,
    lr=2e-4,
    warmup_steps=200,
)

_SMALL = TargetSpec(width=32, mlp=128, vocab=259, context=64, values="trained", corpus="stories")

_GPT2 = TargetSpec("gpt2", layers=12, width=768, heads=12, kv_heads=12, mlp=3072, vocab=50257, context=1024)
_ONE_MODULE: dict[str, Any] = {
    "importance": "vector_mlp",
    "hidden": (12,),
    "losses": (LossSpec("minimality", 3e-4), LossSpec("stochastic_layerwise", 2.0)),
}


def _in_every_layer(fc: int, down: int, q: int, k: int, v: int, o: int) -> tuple[tuple[str, int], ...]:
    """Subcomponents of each matrix of a layer."""
    counts = {"mlp.fc": fc, "mlp.down": down, "attn.q": q, "attn.k": k, "attn.v": v, "attn.o": o}
    return tuple((f"layers.*.{name}", count) for name, count in counts.items())


PRESETS: dict[str, Recipe] = {
    "tms_5-2_test": _TOY,
    "tms_5-2_demo": replace(_TOY, batch=1024, steps=5000, lr=2e-3),
    "tms_5-2": replace(_TOY, batch=4096, steps=10_000, lr=1e-3),
    "tms_40-10": replace(
        _TOY,
        target=TargetSpec("tms", features=40, hidden=10, values="trained"),
        modules=(("linear1", 200), ("linear2", 200)),
        losses=(LossSpec("minimality", 1e-4), *_TOY_LOSSES[1:]),
        batch=4096,
        steps=10_000,
        lr=1e-3,
        pnorm=2.0,
        final_p=2.0,
    ),
    "lm_test": replace(
        _TWO_LAYERS,
        target=_SMALL,
        modules=(("layers.*.attn.?", 40), ("layers.*.mlp.*", 40)),
        hidden=(32,),
        losses=_subset(4, 0.5, 1e6, 1e-3),
        batch=4,
        seq=16,
        steps=20,
        warmup_steps=20,
        log_every=10,
        eval_every=50,
        eval_batches=1,
        save_every=50,
    ),
    "lm_demo": replace(
        _TWO_LAYERS, batch=4, seq=32, steps=60, warmup_steps=0, log_every=20, eval_every=60, save_every=60
    ),
    "lm_2l": _TWO_LAYERS,
    "lm_one": replace(
        _TWO_LAYERS,
        target=TargetSpec(layers=4, vocab=50257),
        modules=(("layers.1.attn.q", 250),),
        **_ONE_MODULE,
        batch=1,
        seq=64,
        steps=60,
        warmup_steps=0,
        log_every=20,
        eval_every=20,
        eval_batches=1,
        save_every=20,
    ),
    "lm_4l": replace(
        _TWO_LAYERS,
        target=TargetSpec(layers=4),
        modules=_in_every_layer(fc=650, down=580, q=250, k=200, v=350, o=300),
        hidden=(800,),
        losses=_subset(4, 0.5, 1e5, 4e-3),
        final_p=0.5,
        batch=128,
        steps=400_000,
        lr=5e-4,
        clip_components=0.01,
    ),
    "gpt2_one": replace(
        _TWO_LAYERS,
        target=_GPT2,
        modules=(("h.1.attn.c_attn", 768),),
        **_ONE_MODULE,
        batch=2,
        seq=1024,
        steps=50_000,
        lr=3e-4,
        lr_warmup=0.01,
        warmup_lr=1e-2,
    ),
    "gpt2_all": replace(
        _TWO_LAYERS,
        target=_GPT2,
        modules=(("h.*.attn.c_attn", 3000), ("h.*.mlp.c_fc", 3000), ("h.*.mlp.c_proj", 3000)),
        hidden=(2000,),
        losses=_subset(6, 0.5, 1e6, 3e-4),
        batch=8,
        seq=1024,
        lr=5e-4,
        clip_components=0.01,
    ),
    "pile_4l": replace(
        _TWO_LAYERS,
        target=TargetSpec(layers=4, width=768, heads=12, kv_heads=12, mlp=3072, vocab=50277),
        modules=_in_every_layer(fc=4096, down=3072, q=512, k=256, v=1024, o=1024),
        hidden=(1024,),
        losses=_subset(1, 1.0, 1e6, 5e-4),
        final_p=0.4,
        beta=0.1,
        lr=1e-4,
        clip_components=0.01,
    ),
}

LOSS_SETS = {"layerwise": LAYERWISE, "all": EVERY_MODULE, "forward": FORWARD_ONLY}
