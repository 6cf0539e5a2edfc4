"""What a training trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from perfsweep.workloads.errors import ConfigError

ACTS_ON = {"grad_checkpointing": "blocks", "gc": "evaluate_every", "checkpoint": "save_every"}
"""Toggles that need an optional part: without the part, their levels do nothing."""


def _no_loss(*_: Any) -> Tensor:
    """The default loss of `Parts`: refuses to be called."""
    raise ConfigError("build() returns Parts without a loss")


class Stateful(Protocol):
    """An object whose state a checkpoint saves and restores."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state to save."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Go on where `state` was taken."""
        ...


@dataclass(frozen=True)
class Parts:
    """What is trained.

    A batch that is a tuple or list of tensors is spread over the arguments of `loss` and `evaluate`; any
    other batch is one argument. The rows of a batch are the first dimension of its first tensor.

    Attributes
    ----------
    model : as built on the host; it is moved to the device, compiled and so on by the loop
    data : rows: tensors, or nested tuples or mappings of tensors and numbers. Either by number (`__getitem__`
        and `__len__`): full batches, in another order for each epoch. Or iterable, in its own order: then
        each worker reads all rows and makes every n-th batch
    loss : gives the mean loss [] of the rows of a batch: called with the model, as the arm runs it, and a
        batch [rows, ...]. Or gives terms [] by name, whose sum is the loss: each term is logged too
    optimizer : makes the optimiser: called with the parameters and with the keywords `foreach` and `fused`,
        which go to a class of torch.optim
    groups : groups of parameters, as torch.optim takes them, instead of all of the model in one:
        ``{"params": model.head.parameters(), "lr": 1e-3, "clip_norm": 0.1}``. `clip_norm` is the largest norm
        of the gradients of this group. A parameter in no group is not trained
    loader : makes a loader of your own instead of `data`: called with the keywords `num_workers`,
        `pin_memory`, `persistent_workers`, `multiprocessing_context` and `generator`, which go to a
        DataLoader; its batches are used unchanged, whatever their size. An epoch must depend on its number
        only: samplers get a generator of their own for each epoch, and `set_epoch` is called where loader,
        data set or sampler has it
    sampler : numbers of the rows of `data`, one epoch for each pass, instead of a permutation of all rows
    collate : makes a batch from a list of rows, instead of stacking them; for `data` and `held_out`
    accumulate : batches of the loader whose gradients make one update, as the mean over all their rows; one
        iteration is one update
    clip_norm : largest norm of all gradients together; a larger norm is scaled down before the update
    clip_value : largest absolute value of each gradient; others are clamped before the update
    schedule : makes the scheduler of the learning rate from the optimiser: any of
        torch.optim.lr_scheduler. It is part of the saved state
    schedule_every : the scheduler is stepped after each iteration, epoch or evaluation. ReduceLROnPlateau
        uses the first figure of each evaluation
    autocast : makes the context of the forward pass and of evaluations, if the training sets its own
        precision; with fp16, losses are scaled. The toggle `amp` is refused then. Use
        `contextlib.nullcontext` if the loss enters autocast by itself
    blocks : parts of the model whose activations `grad_checkpointing=on` recomputes
    held_out : rows that are not trained on, for `evaluate`: copied to the device once, all together
    evaluate : gives figures that are logged with every loss, such as an accuracy: called with the uncompiled
        model and a batch of `held_out`. It calls `model.eval()` and `model.train()` itself where that matters
    evaluate_every : iterations between evaluations; 0: no evaluation
    evaluate_batch : rows of a batch of the evaluation, loaded again each time; figures are averaged over
        rows. 0: all rows at once
    save_every : iterations between checkpoints; 0: no checkpoint
    state : further parts of a checkpoint, by name: anything with `state_dict` and `load_state_dict`, such as
        an average of weights
    fullgraph : whether compiled code must be one graph, so that a graph break is an error. With `ddp=on` the
        exchange of gradients always breaks it

    Raises
    ------
    ConfigError
        A field is out of range, or two of them exclude one another.
    """

    model: nn.Module
    data: Dataset[Any] | Iterable[Any] | None = None
    loss: Callable[..., Tensor | Mapping[str, Tensor]] = _no_loss
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    loader: Callable[..., Iterable[Any]] | None = None
    sampler: Iterable[int] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    accumulate: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None
    schedule_every: Literal["iteration", "epoch", "evaluation"] = "iteration"
    autocast: Callable[[], AbstractContextManager[Any]] | None = None
    blocks: Sequence[nn.Module] = ()
    held_out: Dataset[Any] | Iterable[Any] | None = None
    evaluate: Callable[..., Mapping[str, float]] | None = None
    evaluate_every: int = 0
    evaluate_batch: int = 0
    save_every: int = 0
    fullgraph: bool = False
    groups: Sequence[Mapping[str, Any]] = ()
    state: Mapping[str, Stateful] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # `parameters()` is an iterator, which is read more than once here
        groups = tuple({**group, "params": list(group.get("params", ()))} for group in self.groups)
        object.__setattr__(self, "groups", groups)
        for problem, holds in self._problems().items():
            if holds:
                raise ConfigError(f"build() returns Parts that cannot be trained: {problem}")

    def _problems(self) -> dict[str, bool]:
        """Each possible problem, with whether it is present."""
        of_groups = [group["clip_norm"] for group in self.groups if group.get("clip_norm") is not None]
        of_all = [limit for limit in (self.clip_norm, self.clip_value) if limit is not None]
        limits = [*of_all, *of_groups]
        moments = ("iteration", "epoch", "evaluation")
        return {
            "loss is missing; name the function from model and batch to the mean loss": self.loss is _no_loss,
            "one of data and loader must be named, and not both": (
                (self.data is None) == (self.loader is None)
            ),
            "sampler names rows of data, and a loader has a sampler of its own": (
                self.sampler is not None and self.loader is not None
            ),
            "collate puts rows of data together, and a loader has a collate_fn of its own": (
                self.collate is not None and self.loader is not None and self.held_out is None
            ),
            f"accumulate={self.accumulate} must be a whole number from 1": (
                not isinstance(self.accumulate, int) or self.accumulate < 1
            ),
            "clip_norm, clip_value and the clip_norm of groups exclude one another; name one": (
                len(of_all) + bool(of_groups) > 1
            ),
            "a group has no params; leave it out": any(not group["params"] for group in self.groups),
            f"clip_norm and clip_value must be above 0, not {limits}": any(not limit > 0 for limit in limits),
            f"schedule_every={self.schedule_every!r} must be one of {', '.join(moments)}": (
                self.schedule_every not in moments
            ),
            "schedule_every says when, and schedule what; name both": (
                self.schedule_every != "iteration" and self.schedule is None
            ),
            "schedule_every='evaluation' needs evaluate and evaluate_every": (
                self.schedule_every == "evaluation" and not (self.evaluate and self.evaluate_every)
            ),
            f"evaluate_batch={self.evaluate_batch} must be a number of rows, or 0": self.evaluate_batch < 0,
            "evaluate_batch needs held_out": self.evaluate_batch > 0 and self.held_out is None,
        }
