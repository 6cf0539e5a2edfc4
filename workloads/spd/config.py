"""What an SPD training trains: a named recipe with single values changed."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import cached_property

from workloads.errors import ConfigError
from workloads.spd.presets import LOSS_SETS, PRESETS, Recipe

IMPORTANCE_KINDS = ("mlp", "vector_mlp", "shared_mlp")
SIGMOIDS = ("leaky", "normal", "hard", "leaky_hard", "swish_hard")


@dataclass(frozen=True)
class SpdConfig:
    """A recipe by name, and what differs from it. None keeps what the recipe says.

    Attributes
    ----------
    preset : name of the recipe
    target_path : folder of a local GPT-2 (config.json, and model.safetensors or pytorch_model.bin); nothing
        is downloaded
    tokens_path : token file (.bin with its .json beside it, or .npy); None for the recipe's own corpus
    tokenizer_sha256 : of the target's tokeniser; a token file made by another one is refused
    batch_size, seq_len, steps, lr : of the training
    pgd_steps, pgd_scope : of the adversarial losses; scope is shared or datapoint
    losses : another set of terms: layerwise, all or forward
    components : subcomponents of every module, instead of the recipe's numbers
    modules : patterns of module names, instead of the recipe's; they share `components`
    importance : mlp, vector_mlp or shared_mlp
    sigmoid : form of both sigmoids: leaky, normal, hard, leaky_hard or swish_hard
    sampling : of stochastic sources: continuous or binomial
    beta : weight of the log term of the minimality loss
    microbatches : pieces of an iteration's batch whose gradients are summed
    iterable, sharded : tokens as a stream; sharded means that each worker reads its own part
    drop_last : leave out rows that fill no batch
    canonical_draws : masks are drawn module by module in one fixed order, whatever computes them
    frozen_draws : every iteration sees the same masks
    dtype : float32, or float64 for comparisons
    log_every, eval_every, save_every, eval_batches : periods in iterations, and batches of an evaluation
    resume : continue from this checkpoint
    """

    preset: str = "lm_test"
    target_path: str | None = None
    tokens_path: str | None = None
    tokenizer_sha256: str | None = None
    batch_size: int | None = None
    seq_len: int | None = None
    steps: int | None = None
    lr: float | None = None
    pgd_steps: int | None = None
    pgd_scope: str | None = None
    losses: str | None = None
    components: int | None = None
    modules: list[str] | None = None
    importance: str | None = None
    sigmoid: str = "leaky"
    sampling: str = "continuous"
    beta: float | None = None
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
    resume: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be trained.

        Raises
        ------
        ConfigError
            A field is out of range; the message names it.
        """
        self._require("preset", self.preset in PRESETS, f"one of {', '.join(PRESETS)}")
        self._check_whole_numbers()
        self._require("lr", self.lr is None or 0 < self.lr < math.inf, "a number above 0")
        self._require("beta", self.beta is None or 0 <= self.beta < math.inf, "a number from 0")
        named = self.modules is None or len(self.modules) > 0
        self._require("modules", named, "a list of patterns, or null for the recipe's")
        self._choose("pgd_scope", ("shared", "datapoint"))
        self._choose("losses", tuple(LOSS_SETS))
        self._choose("importance", IMPORTANCE_KINDS)
        self._choose("sigmoid", SIGMOIDS)
        self._choose("sampling", ("continuous", "binomial"))
        self._choose("dtype", ("float32", "float64"))
        self._check_together()

    def _check_whole_numbers(self) -> None:
        sizes = ("batch_size", "seq_len", "components", "microbatches")
        self._check_whole(*sizes, "log_every", "eval_every", "save_every", "eval_batches", least=1)
        self._check_whole("steps", "pgd_steps", least=0)

    def _check_whole(self, *names: str, least: int) -> None:
        for name in names:
            value = getattr(self, name)
            whole = value is None or (isinstance(value, int) and value >= least)
            self._require(name, whole, f"a whole number from {least}")

    def _check_together(self) -> None:
        rows = self.recipe.batch
        self._require(
            "microbatches", rows % self.microbatches == 0, f"a divisor of the {rows} rows of an iteration"
        )
        seq = self.seq_len
        if seq is not None:
            context = self.recipe.target.context
            fits = not self.recipe.toy and (self.target_path is not None or seq <= context)
            rule = (
                "left out for a toy target"
                if self.recipe.toy
                else f"at most {context}, the context of the target"
            )
            self._require("seq_len", fits, rule)
        if self.target_path is not None:
            self._require(
                "preset",
                self.recipe.target.kind == "gpt2",
                "one for GPT-2 where workload.target_path is given",
            )
            self._refuse_hub_name(self.target_path)

    def _refuse_hub_name(self, path: str) -> None:
        from pathlib import Path

        if not Path(path).expanduser().is_dir():
            raise ConfigError(
                f"workload.target_path={path} is no folder on this machine: nothing is downloaded from a hub,"
                " so give the folder that holds config.json and model.safetensors"
            )

    def _choose(self, name: str, choices: tuple[str, ...]) -> None:
        value = getattr(self, name)
        self._require(name, value is None or value in choices, f"one of {', '.join(choices)}")

    def _require(self, name: str, holds: bool, rule: str) -> None:
        if not holds:
            raise ConfigError(f"workload.{name}={getattr(self, name)} cannot be used: it must be {rule}")

    @cached_property
    def recipe(self) -> Recipe:
        """The preset with everything that is given here."""
        base = PRESETS[self.preset]
        given = {
            "batch": self.batch_size,
            "seq": self.seq_len,
            "steps": self.steps,
            "lr": self.lr,
            "importance": self.importance,
            "beta": self.beta,
            "log_every": self.log_every,
            "eval_every": self.eval_every,
            "save_every": self.save_every,
            "eval_batches": self.eval_batches,
            "losses": self._losses(base),
            "modules": self._modules(base),
        }
        return replace(base, **{name: value for name, value in given.items() if value is not None})

    def _losses(self, base: Recipe) -> tuple[object, ...]:
        losses = LOSS_SETS[self.losses] if self.losses else base.losses
        changed = {"steps": self.pgd_steps, "scope": self.pgd_scope}
        changed = {name: value for name, value in changed.items() if value is not None}
        return tuple(dataclasses.replace(loss, **changed) if loss.adversarial else loss for loss in losses)

    def _modules(self, base: Recipe) -> tuple[tuple[str, int], ...]:
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
