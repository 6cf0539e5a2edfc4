"""From levels to the objects that do the work. Every choice between paths is made here, once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from workloads.api import NullClock
from workloads.errors import ConfigError
from workloads.prover.choices import Choices
from workloads.prover.data.knowledge import KnowledgeBase
from workloads.prover.maths.packing import Packer
from workloads.prover.maths.pairs import fact_pairing, rule_pairing
from workloads.prover.maths.policy import Policy, PolicyShape, Weights, constant_states
from workloads.prover.maths.rows import RowFactory
from workloads.prover.maths.scoring import SCORERS, Scorer, Screen
from workloads.prover.maths.selection import FLOAT32_DOUBT
from workloads.prover.maths.slab_memory import SlabMemory
from workloads.prover.maths.step import Expander, Phase, Step, TorchExpander
from workloads.prover.maths.unify import Unifier
from workloads.prover.maths.values import EveryState, OncePerJob, OncePerStep, Untallied

STORE_STATES = 2**17
"""States whose values are kept for a whole job at most: 134 MB at full width."""
ROUNDED_DOUBT = 10 * FLOAT32_DOUBT
"""Of products in TF32 or bfloat16."""


@dataclass(frozen=True)
class Machinery:
    """One arm, ready to run.

    Attributes
    ----------
    values : evaluates states in float32 (or the arm's type); `screen` is there where 16 bits come first
    """

    kb: KnowledgeBase
    choices: Choices
    policy: Policy
    values: EveryState
    scorer: Scorer
    factory: RowFactory
    step: Step
    screen: Screen | None
    memory: SlabMemory

    def begin_job(self) -> None:
        """Forget what the last job kept."""
        self.values.forget()
        self.scorer.begin()


def assemble(
    kb: KnowledgeBase, weights: Weights, shape: PolicyShape, choices: Choices, phase: Phase
) -> Machinery:
    """Everything an arm needs, on the device of the knowledge base.

    Raises
    ------
    ConfigError
        Ids do not fit the arm's integer type.
    """
    if kb.largest_id > torch.iinfo(choices.dtype).max:
        narrow = str(choices.dtype).removeprefix("torch.")
        raise ConfigError(
            f"toggles.index_dtype={narrow}: ids reach {kb.largest_id}; use toggles.index_dtype=int32"
        )
    device = kb.facts.device
    weights = {name: tensor.to(device) for name, tensor in weights.items()}
    policy = make_policy(weights, shape, choices, low=choices.amp)
    values = _values(policy, choices, kb, device)
    constants = constant_states(kb.vocabulary).to(device, choices.dtype)
    scorer = SCORERS[choices.policy_rows](
        policy,
        values,
        constants,
        reuse=choices.obs_reuse,
        once=choices.const_states,
        skip=choices.forced_skip,
    )
    scorer.screen = screen = _screen(weights, shape, choices, values)
    doubt = ROUNDED_DOUBT if choices.amp or choices.tf32 else FLOAT32_DOUBT
    # compiled code cannot hold a clock's marks
    marks = NullClock.phase if choices.static else phase
    step = Step(expander(kb, choices), scorer, choices.ragged, doubt, marks)
    memory = SlabMemory.of(
        kb,
        rules=choices.rules(kb),
        indexed=choices.indexed,
        slots=choices.slots(kb),
        item=choices.dtype.itemsize,
        states=121 if choices.policy_rows == "padded" else 16,
        width=max(shape.width, shape.embedding),
    )
    return Machinery(kb, choices, policy, values, scorer, _factory(kb, choices, values), step, screen, memory)


def make_policy(weights: Weights, shape: PolicyShape, choices: Choices, low: bool) -> Policy:
    """The network in the arm's form."""
    if choices.fused_trunk:
        from workloads.prover.kernels.fused_trunk import FusedPolicy

        return FusedPolicy(weights, shape, choices.fold, low)
    return Policy(weights, shape, choices.fold, low)


def _values(policy: Policy, choices: Choices, kb: KnowledgeBase, device: torch.device) -> EveryState:
    if choices.static:
        return Untallied(policy.values)
    if choices.dedup == "global":
        return OncePerJob(policy.values, kb.vocabulary.base, policy.width, STORE_STATES, device)
    if choices.dedup == "step":
        return OncePerStep(policy.values, kb.vocabulary.base)
    return EveryState(policy.values)


def _screen(weights: Weights, shape: PolicyShape, choices: Choices, values: EveryState) -> Screen | None:
    if not choices.screen16:
        return None
    return Screen(make_policy(weights, shape, choices, low=True), values)


def expander(kb: KnowledgeBase, choices: Choices) -> Expander:
    """The lists of successors of the level of `expand_kernel`."""
    if choices.expand_kernel == "native":
        from workloads.prover.kernels.native import NativeExpander

        return NativeExpander(kb, choices.dtype, choices.ragged)
    if choices.expand_kernel == "triton":
        from workloads.prover.kernels.triton_expand import TritonExpander

        return TritonExpander(kb, choices.dtype, choices.ragged)
    return TorchExpander(
        rule_pairing(kb, choices.rule_pairs),
        fact_pairing(kb, "csr" if choices.indexed else "dense", choices.static),
        Unifier(kb, choices.slots(kb), choices.dtype),
        Packer(kb, choices.scan, choices.ragged),
        budget=choices.static and choices.indexed,
    )


def _factory(kb: KnowledgeBase, choices: Choices, values: EveryState) -> RowFactory:
    def kept(states: Tensor) -> Tensor:
        return values(states).clone()

    def nothing(states: Tensor) -> Tensor:
        return torch.zeros(len(states), 0, device=states.device)

    return RowFactory(kb, choices.dtype, kept if choices.obs_reuse else nothing)
