"""The solver's step and the certificate's verdict on the CPU: one loop over pairs, not one per operator."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.native import library
from perfsweep.workloads.probe1d.maths import certify, newton
from perfsweep.workloads.probe1d.maths.blocks import Block
from perfsweep.workloads.probe1d.maths.certify import TRUSTED, SumErrors
from perfsweep.workloads.probe1d.maths.derivatives import EventSums
from perfsweep.workloads.probe1d.maths.newton import Limits, NewtonRules, NewtonState, StepResult
from perfsweep.workloads.probe1d.maths.pass_log import PassFacts

SOURCE = Path(__file__).with_name("newton_step.cpp")
_SUMS = ("m0", "m1", "a0", "a1", "a2")
_CONSTANTS = ("count", "zeros", "positives", "ridge_w", "hits", "hit_sum", "scale")
_LIMITS = ("metric", "reach", "least", "additions", "positive")
_STATE = ("b", "w", "lam", "db", "dw", "g0", "g1", "gmax", "done", "sure", "evals")
_RULES = (
    *("tol", "decrement", "tail_loss", "singular", "rows", "step_budget"),
    *("overshoot", "step_limit", "rounding", "steps", "trusted"),
)
_FLAGS = ("pays", "foresees", "certifies")
_TALLY = ("halved", "left", "lam_sum", "lam_max", "gradient")


class _Pairs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in (*_SUMS, *_CONSTANTS, *_LIMITS)]


class _State(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in _STATE]


class _Rules(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_double) for name in _RULES), *((name, ctypes.c_int64) for name in _FLAGS)]


class _Tally(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in _TALLY]


class _Errors(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("zeroth", "first", "second")]


class NativeStep:
    """What `newton.torch_step` and `Certifier` do operator by operator."""

    def __init__(self) -> None:
        self.library = library(SOURCE, "fused_kernel=on")

    def __call__(
        self, block: Block, state: NewtonState, sums: EventSums, limits: Limits, rules: NewtonRules
    ) -> StepResult:
        """Advance in place: the tensors of `state` are the caller's no longer."""
        pairs, kept = _pairs(block, sums, limits, state.b.shape)
        own = _State(*(getattr(state, name).data_ptr() for name in _STATE))
        tally = _Tally()
        self.library.newton_step(
            ctypes.byref(pairs),
            ctypes.byref(own),
            ctypes.byref(_rules(rules, block, limits)),
            ctypes.c_int64(state.b.numel()),
            ctypes.byref(tally),
        )
        del kept
        number = max(1, state.b.numel())
        gradient, mean = _scalar(tally.gradient), _scalar(tally.lam_sum / number)
        facts = PassFacts(None, gradient, torch.zeros_like(gradient), mean, None)
        return StepResult(
            state, _scalar(tally.halved), _scalar(tally.lam_max), torch.tensor(tally.left == 0), facts
        )

    def verdict(
        self,
        block: Block,
        parameters: tuple[Tensor, Tensor],
        sums: EventSums,
        off: SumErrors,
        limits: Limits,
        rules: NewtonRules,
        trusted: float,
    ) -> tuple[Tensor, Tensor]:
        """Scaled gradient of each pair, what it may be `off` by included, and whether it passes, [R, c]."""
        b, w = (part.contiguous() for part in parameters)
        pairs, kept = _pairs(block, sums, limits, b.shape)
        errors = [part.expand(b.shape).contiguous() for part in vars(off).values()]
        gmax, passed = torch.empty_like(b), torch.empty_like(b, dtype=torch.bool)
        self.library.certify_pairs(
            ctypes.byref(pairs),
            ctypes.c_void_p(b.data_ptr()),
            ctypes.c_void_p(w.data_ptr()),
            ctypes.byref(_Errors(*(part.data_ptr() for part in errors))),
            ctypes.byref(_rules(rules, block, limits)),
            ctypes.c_double(trusted),
            ctypes.c_int64(b.numel()),
            ctypes.c_void_p(gmax.data_ptr()),
            ctypes.c_void_p(passed.data_ptr()),
        )
        del kept
        return gmax, passed


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _pairs(block: Block, sums: EventSums, limits: Limits, shape: torch.Size) -> tuple[_Pairs, list[Tensor]]:
    """Pointers to one value per pair, and the tensors that must outlive them."""
    given = [getattr(sums, name) for name in _SUMS] + [getattr(block, name) for name in _CONSTANTS]
    # What a pass does without is never looked at; any address will do.
    given += [block.scale if part is None else part for part in vars(limits).values()]
    kept = [part.expand(shape).contiguous() for part in given]
    return _Pairs(*(part.data_ptr() for part in kept)), kept


def _rules(rules: NewtonRules, block: Block, limits: Limits) -> _Rules:
    return _Rules(
        *(rules.tol, rules.decrement, rules.tail_loss, rules.singular, block.rows),
        *(newton.STEP_BUDGET, newton.OVERSHOOT, newton.STEP_LIMIT, certify.ROUNDING, certify.STEPS, TRUSTED),
        *(limits.least is not None, limits.reach is not None, limits.additions is not None),
    )
