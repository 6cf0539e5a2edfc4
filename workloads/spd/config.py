"""What an SPD training trains: a named recipe with single values changed."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError, Ruled
from perfsweep.workloads.spd.presets import LOSS_SETS, PRESETS, LossSpec, Recipe, TargetSpec
from perfsweep.workloads.spd.specs import SCHEDULES, Adversary, TransformerSpec

TRANSFORMER = "global_shared_transformer"
IMPORTANCE_KINDS = ("mlp", "vector_mlp", "shared_mlp", TRANSFORMER)
SIGMOIDS = ("leaky_hard", "normal", "hard")
UNBOUNDED_SIGMOIDS = ("swish_hard", "upper_leaky_hard")
LOSSES = (
    *("faithfulness", "minimality", "unmasked", "ci_masked", "stochastic", "stochastic_subset"),
    *("stochastic_layerwise", "hidden_acts", "pgd", "pgd_subset", "pgd_layerwise"),
    *("persistent_pgd", "persistent_pgd_subset"),
)
ONE_STEP = {"steps": 1, "step_size": 1.0}
"""The search of an adversarial term that a recipe lacks and `coefficients` adds."""

# Fields that replace the recipe's value of the same name.
_OF_RECIPE = (
    *("steps", "lr", "schedule", "final_lr", "lr_warmup", "pnorm", "final_p", "anneal_from", "anneal_to"),
    *("importance", "beta", "warmup_steps", "warmup_lr", "warmup_decay"),
    *("log_every", "eval_every", "save_every", "eval_batches"),
)


@dataclass(frozen=True)
class SpdConfig(Ruled):
    """A recipe by name, and what differs from it. None keeps what the recipe says.

    Attributes
    ----------
    preset : name of the recipe
    target : the user's own network as ``package.module:factory`` or ``file.py:factory``: the factory takes
        nothing and returns an `nn.Module` with linear and embedding sites. It is called with token ids
        [B, S] where tokens_path is given, with vectors [B, f] where vectors_path is
    output_part : the part of the network's result that is compared: an attribute such as logits, or the
        number of a tuple's part; None where it returns a tensor
    target_path : folder of a local GPT-2 (config.json, and model.safetensors or pytorch_model.bin, in shards
        or not); nothing is downloaded
    tokens_path : token file (.bin with its .json next to it, .npy or .txt); None for the recipe's own corpus
    vectors_path : .npy of float rows [n, f], for a network that reads vectors
    tokenizer_sha256 : of the target's tokeniser; a token file made by another one is refused
    batch_size, seq_len, steps, lr : of the training
    schedule, final_lr, lr_warmup : constant, linear or cosine; last rate as a share of lr; share of steps
    clip_components, clip_importance : clip of the gradient norm of V and U, of importance functions; 0: off
    losses : another set of terms: layerwise, all or forward
    coefficients : of terms by kind; a kind that the recipe lacks is added, and 0 takes one out
    pgd_steps, pgd_step_size, pgd_init, pgd_scope : of the adversarial terms; they start random, at ones or at
        zeros, and scope is shared or datapoint
    adversary : how persistent terms keep and move their sources; see `Adversary`
    pnorm, final_p, anneal_from, anneal_to : exponent of the minimality, linear between two shares of training
    beta : weight of its log term
    components : subcomponents of every module, instead of the recipe's numbers
    modules : patterns of module names, instead of the recipe's; they share `components`
    counts : patterns of module names, each with its own number of subcomponents
    importance, hidden : mlp, vector_mlp, shared_mlp or global_shared_transformer, and the widths of its
        hidden layers
    transformer : of the latter, which reads all modules at all positions: width, blocks, heads, context, base
    sigmoid : upstream's leaky_hard (one form for masks and another for minimality), normal or hard
    sampling : of stochastic sources: continuous or binomial
    delta_component : what components leave over of a weight takes part in masked passes under a mask of its
        own
    warmup_steps, warmup_lr, warmup_decay : of the faithfulness warm-up
    microbatches : pieces of an iteration's batch whose gradients are summed
    iterable, sharded : tokens as a stream; sharded means that each worker reads its own part
    drop_last : leave out rows that fill no batch
    canonical_draws : masks are drawn module by module in one fixed order, whatever computes them
    frozen_draws : every iteration sees the same masks
    dtype : float32, or float64 for comparisons
    log_every, eval_every, save_every, eval_batches : periods in iterations, the middle two 0 for never, and
        batches of an evaluation
    values_path : V, U and importance functions to begin with: the decomposition.safetensors of a kept one, or
        upstream's checkpoint
    resume : continue from this checkpoint.pt, with optimiser, random numbers and place in the data
    """

    preset: str = "lm_test"
    target: str | None = None
    output_part: str | None = None
    target_path: str | None = None
    tokens_path: str | None = None
    vectors_path: str | None = None
    tokenizer_sha256: str | None = None
    batch_size: int | None = None
    seq_len: int | None = None
    steps: int | None = None
    lr: float | None = None
    schedule: str | None = None
    final_lr: float | None = None
    lr_warmup: float | None = None
    clip_components: float | None = None
    clip_importance: float | None = None
    losses: str | None = None
    coefficients: dict[str, float] | None = None
    pgd_steps: int | None = None
    pgd_step_size: float | None = None
    pgd_init: str | None = None
    pgd_scope: str | None = None
    adversary: dict[str, Any] | None = None
    pnorm: float | None = None
    final_p: float | None = None
    anneal_from: float | None = None
    anneal_to: float | None = None
    beta: float | None = None
    components: int | None = None
    modules: list[str] | None = None
    counts: dict[str, int] | None = None
    importance: str | None = None
    hidden: list[int] | None = None
    transformer: dict[str, float] | None = None
    sigmoid: str = "leaky_hard"
    sampling: str = "continuous"
    delta_component: bool = True
    warmup_steps: int | None = None
    warmup_lr: float | None = None
    warmup_decay: float | None = None
    microbatches: int = 1
    iterable: bool = False
    sharded: bool = False
    drop_last: bool = True
    canonical_draws: bool = True
    frozen_draws: bool = False
    dtype: str = "float32"
    log_every: int | None = None
    eval_every: int | None = None
    save_every: int | None = None
    eval_batches: int | None = None
    values_path: str | None = None
    resume: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be trained.

        Raises
        ------
        ConfigError
            A field is out of range; the message names it.
        """
        self._require("preset", self.preset in PRESETS, f"one of {', '.join(PRESETS)}")
        self._check_numbers()
        self._check_choices()
        self._check_modules()
        self._check_transformer()
        self._check_adversary()
        self._check_terms()
        self._check_target()
        self._check_together()
        once = self.resume is None or self.values_path is None
        self._require("values_path", once, "left out where workload.resume is given, which holds values")

    def _check_numbers(self) -> None:
        sizes = ("batch_size", "seq_len", "components", "microbatches", "log_every", "eval_batches")
        self._check_whole(*sizes, least=1)
        self._check_whole("steps", "pgd_steps", "warmup_steps", "eval_every", "save_every", least=0)
        self._check_number("lr", "warmup_lr", "pgd_step_size", "pnorm", "final_p", above=0)
        self._check_number("final_lr", "clip_components", "clip_importance", "beta", "warmup_decay")
        self._check_number("lr_warmup", "anneal_from", "anneal_to", most=1)
        widths = self.hidden is None or all(isinstance(one, int) and one >= 1 for one in self.hidden)
        self._require("hidden", widths and self.hidden != [], "a list of whole numbers from 1")

    def _check_choices(self) -> None:
        self._choose("pgd_scope", ("shared", "datapoint"))
        self._choose("pgd_init", ("random", "ones", "zeros"))
        self._choose("schedule", SCHEDULES)
        self._choose("losses", tuple(LOSS_SETS))
        self._choose("importance", IMPORTANCE_KINDS)
        if self.sigmoid in UNBOUNDED_SIGMOIDS:
            raise ConfigError(
                f"workload.sigmoid={self.sigmoid} is upstream's and not implemented: its masks leave [0, 1];"
                f" choose from {', '.join(SIGMOIDS)}"
            )
        self._choose("sigmoid", SIGMOIDS)
        self._choose("sampling", ("continuous", "binomial"))
        self._choose("dtype", ("float32", "float64"))

    def _check_whole(self, *names: str, least: int) -> None:
        for name in names:
            value = getattr(self, name)
            whole = value is None or (isinstance(value, int) and value >= least)
            self._require(name, whole, f"a whole number from {least}")

    def _check_number(self, *names: str, above: float | None = None, most: float = math.inf) -> None:
        low = "above 0" if above is not None else "from 0"
        rule = f"a number {low}" if most == math.inf else f"a number {low} to {most:g}"
        for name in names:
            value = getattr(self, name)
            # No number fails every comparison, and so does none.
            holds = value is None or ((value > 0 if above is not None else value >= 0) and value <= most)
            self._require(name, holds and value != math.inf, rule)

    def _check_modules(self) -> None:
        self._require("modules", self.modules is None or len(self.modules) > 0, "a list of patterns, or null")
        if self.counts is None:
            return
        alone = self.modules is None and self.components is None
        self._require("counts", alone, "left out where workload.modules or workload.components is given")
        self._require("counts", len(self.counts) > 0, "patterns with numbers, or null")
        whole = all(isinstance(count, int) and count >= 1 for count in self.counts.values())
        self._require("counts", whole, "patterns with whole numbers from 1")

    def _check_transformer(self) -> None:
        given = self.transformer
        chosen = self.importance == TRANSFORMER
        rule = "{width: 64, blocks: 2, heads: 4}" if chosen else f"left out without importance={TRANSFORMER}"
        self._require("transformer", chosen == (given is not None), rule)
        if given is None:
            return
        problem = TransformerSpec.problem(given)
        self._require("transformer", problem is None, problem or "")

    def _check_terms(self) -> None:
        for kind, value in (self.coefficients or {}).items():
            if kind not in LOSSES:
                raise ConfigError(
                    f"workload.coefficients: {kind} is no term; choose from {', '.join(LOSSES)}"
                )
            if not 0 <= value < math.inf:
                raise ConfigError(f"workload.coefficients: {kind}={value} must be a number from 0")
        self._require("coefficients", len(self.recipe.losses) > 0, "one that leaves a term")

    def _check_adversary(self) -> None:
        given, terms = self.adversary or {}, self.coefficients or {}
        persistent = any(terms.get(kind, 0) > 0 for kind in LOSSES if kind.startswith("persistent"))
        self._require("adversary", persistent or not given, "left out where no term is persistent")
        problem = Adversary.problem(given)
        self._require("adversary", problem is None, problem or "")
        if persistent:
            self._check_sources(Adversary(**given))

    def _check_sources(self, adversary: Adversary) -> None:
        whole = self.recipe.batch % adversary.n_sources == 0
        rule = f"of an n_sources that divides the {self.recipe.batch} rows of an iteration"
        self._require("adversary", whole, rule)
        self._require("microbatches", self.microbatches == 1, "1 where a term is persistent")
        self._require("drop_last", self.drop_last, "true where a term is persistent")

    def _check_target(self) -> None:
        if self.target is None:
            self._require("output_part", self.output_part is None, "left out without workload.target")
            self._require("vectors_path", self.vectors_path is None, "left out without workload.target")
            return
        _, colon, factory = self.target.rpartition(":")
        self._require("target", bool(colon and factory.isidentifier()), "package.module:factory")
        self._require("target", self.target_path is None, "left out where workload.target_path is given")
        one = (self.tokens_path is None) != (self.vectors_path is None)
        self._require("target", one, "given with either workload.tokens_path or workload.vectors_path")
        named = self.modules is not None or self.counts is not None
        self._require("target", named, "given with workload.modules or workload.counts")

    def _check_together(self) -> None:
        recipe = self.recipe
        self._require(
            "microbatches",
            recipe.batch % self.microbatches == 0,
            f"a divisor of the {recipe.batch} rows of an iteration",
        )
        reaches = recipe.transformer is None or recipe.transformer.context >= recipe.seq
        self._require("transformer", reaches, f"of a context from workload.seq_len={recipe.seq}")
        decays = self.final_lr in (None, 1) or recipe.schedule != "constant"
        self._require("final_lr", decays, "left out, or 1, where workload.schedule=constant")
        ends = recipe.anneal_from <= recipe.anneal_to
        self._require("anneal_from", ends, f"at most workload.anneal_to={recipe.anneal_to}")
        if self.seq_len is not None:
            self._check_context(self.seq_len, recipe.target)
        if self.target_path is not None:
            gpt2 = recipe.target.kind == "gpt2"
            self._require("preset", gpt2, "one for GPT-2 where workload.target_path is given")
            self._refuse_hub_name(self.target_path)

    def _check_context(self, seq: int, target: TargetSpec) -> None:
        if target.reads_vectors:
            what = "vectors" if target.own else "a toy target"
            self._require("seq_len", False, f"left out for {what}")
        known = self.target_path is None and not target.own
        rule = f"at most {target.context}, the context of the target"
        self._require("seq_len", not known or seq <= target.context, rule)

    def _refuse_hub_name(self, path: str) -> None:
        if not Path(path).expanduser().is_dir():
            raise ConfigError(
                f"workload.target_path={path} is no folder on this machine: nothing is downloaded from a hub,"
                " so give the folder that holds config.json and model.safetensors"
            )

    def _choose(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        self._require(name, value is None or value in choices, f"one of {', '.join(choices)}")

    @cached_property
    def recipe(self) -> Recipe:
        """The preset with everything that is given here."""
        base = PRESETS[self.preset]
        given = {name: getattr(self, name) for name in _OF_RECIPE}
        given |= {
            "batch": self.batch_size,
            "seq": 1 if self.vectors_path is not None else self.seq_len,
            "hidden": None if self.hidden is None else tuple(self.hidden),
            "losses": self._losses(base),
            "modules": self._modules(base),
            "target": self._target(),
            "transformer": self._transformer(),
        }
        clips = {
            name: getattr(self, name) or None
            for name in ("clip_components", "clip_importance")
            if getattr(self, name) is not None
        }
        return replace(base, **{name: value for name, value in given.items() if value is not None}, **clips)

    def _target(self) -> TargetSpec | None:
        if self.target is None:
            return None
        return TargetSpec("module", values="given", vectors=self.vectors_path is not None)

    def _transformer(self) -> TransformerSpec | None:
        given = self.transformer
        return None if given is None or self.importance != TRANSFORMER else TransformerSpec.of(given)

    def _losses(self, base: Recipe) -> tuple[LossSpec, ...]:
        specs = {loss.kind: loss for loss in (LOSS_SETS[self.losses] if self.losses else base.losses)}
        for kind, value in (self.coefficients or {}).items():
            own: dict[str, int | float] = dict(ONE_STEP) if kind.startswith("pgd") else {}
            known = specs.get(kind, LossSpec(kind, 0.0, **own))  # type: ignore[arg-type]
            specs[kind] = replace(known, coeff=float(value))
            if specs[kind].persistent:
                adversary = Adversary(**(self.adversary or {}))
                specs[kind] = replace(specs[kind], adversary=adversary, steps=adversary.steps)
        changed = {
            "steps": self.pgd_steps,
            "step_size": self.pgd_step_size,
            "init": self.pgd_init,
            "scope": self.pgd_scope,
        }
        changed = {name: value for name, value in changed.items() if value is not None}
        return tuple(
            dataclasses.replace(loss, **changed) if loss.adversarial else loss  # type: ignore[arg-type]
            for loss in specs.values()
            if loss.coeff > 0
        )

    def _modules(self, base: Recipe) -> tuple[tuple[str, int], ...]:
        if self.counts is not None:
            return tuple(self.counts.items())
        count = self.components
        if self.modules is not None:
            return tuple((pattern, count or base.modules[0][1]) for pattern in self.modules)
        return tuple((pattern, count or own) for pattern, own in base.modules)

    @property
    def toy(self) -> bool:
        """Whether the target is a toy."""
        return self.recipe.toy

    @property
    def shares_sources(self) -> bool:
        """Whether an adversarial loss has one source for all positions."""
        return any(loss.adversarial and loss.scope == "shared" for loss in self.recipe.losses)
