"""From levels to paths: every choice of an arm is read here, once, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.api import Levels, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.knowledge import ATOMS, PREDICATE_RULES, KnowledgeBase
from perfsweep.workloads.prover.maths.clause_pairing import fact_pairing, rule_pairing
from perfsweep.workloads.prover.maths.episodes import RowFactory
from perfsweep.workloads.prover.maths.greedy_choice import FLOAT32_DOUBT
from perfsweep.workloads.prover.maths.job import Machinery
from perfsweep.workloads.prover.maths.packing import Packer
from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, Weights, constant_states
from perfsweep.workloads.prover.maths.schedule import (
    AllRows,
    CompactRows,
    ExitTest,
    MaskedRows,
    Slab,
    StepFunction,
    queue_fed,
    slab_by_slab,
)
from perfsweep.workloads.prover.maths.scoring import SCORERS, RaggedScorer, Scorer, Screen
from perfsweep.workloads.prover.maths.slab_size import SlabMemory
from perfsweep.workloads.prover.maths.state_values import EveryState, OncePerJob, OncePerStep, Untallied
from perfsweep.workloads.prover.maths.step import Expander, Phase, Step, TorchExpander
from perfsweep.workloads.prover.maths.unify import Unifier
from perfsweep.workloads.prover.toggles import cannot_expand

STORE_STATES = 2**17
"""States whose values are kept for a whole job at most: 134 MB at full width."""
ROUNDED_DOUBT = 10 * FLOAT32_DOUBT
"""Of products in TF32 or bfloat16."""
DTYPES = {"int64": torch.int64, "int32": torch.int32, "int16": torch.int16}
WIDE_BODIES = 10
"""Bodies' worth of padding that upstream packed: A + 10 Bmax slots, 26 for bodies of two atoms."""


@dataclass(frozen=True)
class Choices:
    """How an arm evaluates: names follow the toggles."""

    slab_size: int | str
    pad_to_slab: str
    warmup_exact: bool
    early_exit: str
    skip_done: str
    refill: bool
    compile: str
    corruptions: str
    indexed: bool
    tight: bool
    rule_pairs: str
    dtype: torch.dtype
    policy_rows: str
    obs_reuse: bool
    const_states: bool
    forced_skip: bool
    fold: bool
    dedup: str
    tf32: bool
    scan: bool
    screen16: bool
    expand_kernel: str
    select_kernel: str
    fused_trunk: bool

    @classmethod
    def of(cls, levels: Levels) -> Choices:
        """The choices of a complete, legal set of levels."""
        on = {name: value == "on" for name, value in levels.items()}
        slab = levels["slab_size"]
        return cls(
            slab_size=slab if slab in ("all", "auto") else int(slab),
            pad_to_slab=str(levels["pad_to_slab"]),
            warmup_exact=levels["warmup"] == "exact",
            early_exit=str(levels["early_exit_all"]),
            skip_done=str(levels["skip_done"]),
            refill=levels["refill"] == "queue",
            compile=str(levels["compile"]),
            corruptions=str(levels["corruptions"]),
            indexed=levels["fact_index"] == "csr",
            tight=levels["pack_width"] == "tight",
            rule_pairs=str(levels["rule_pairs"]),
            dtype=DTYPES[str(levels["index_dtype"])],
            policy_rows=str(levels["policy_rows"]),
            obs_reuse=on["obs_reuse"],
            const_states=on["const_states"],
            forced_skip=on["forced_skip"],
            fold=on["fold"],
            dedup=str(levels["dedup"]),
            tf32=on["tf32"],
            scan=levels["compaction"] == "scan",
            screen16=on["screen16"],
            expand_kernel=str(levels["expand_kernel"]),
            select_kernel=str(levels["select_kernel"]),
            fused_trunk=on["fused_trunk"],
        )

    @property
    def ragged(self) -> bool:
        """Whether lists are joined end to end, and not kept in grids."""
        return self.policy_rows == "ragged"

    @property
    def static(self) -> bool:
        """Whether shapes must not depend on the data."""
        return self.compile != "off"

    def slots(self, kb: KnowledgeBase) -> int:
        """W: slots of a raw successor."""
        return kb.raw_atoms if self.tight else ATOMS + WIDE_BODIES * max(kb.longest_body, 2)

    def rules(self, kb: KnowledgeBase) -> int:
        """Rules a row is paired with at most."""
        return kb.largest_group if self.rule_pairs != "pad100" else max(PREDICATE_RULES, kb.largest_group)


def assemble(
    kb: KnowledgeBase, weights: Weights, shape: PolicyShape, choices: Choices, phase: Phase
) -> Machinery:
    """Everything an arm needs, on the device of the knowledge base.

    Raises
    ------
    ConfigError
        Ids do not fit the arm's integer type.
    """
    _refuse_wide_ids(kb, choices)
    device = kb.facts.device
    weights = {name: tensor.to(device) for name, tensor in weights.items()}
    policy = make_policy(weights, shape, choices, low=False)
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
    step = _step(kb, choices, scorer, phase)
    factory = _factory(kb, choices, values)
    return Machinery(
        policy,
        values,
        scorer,
        factory,
        step,
        screen,
        _memory(kb, shape, choices),
        choices.corruptions,
        choices.pad_to_slab,
        choices.static,
        lambda slab, step: _schedule(choices, factory, slab, step),
    )


def _refuse_wide_ids(kb: KnowledgeBase, choices: Choices) -> None:
    if kb.largest_id > torch.iinfo(choices.dtype).max:
        narrow = str(choices.dtype).removeprefix("torch.")
        raise ConfigError(
            f"toggles.index_dtype={narrow}: ids reach {kb.largest_id}; use toggles.index_dtype=int32"
        )


def _memory(kb: KnowledgeBase, shape: PolicyShape, choices: Choices) -> SlabMemory:
    return SlabMemory.of(
        kb,
        rules=choices.rules(kb),
        indexed=choices.indexed,
        slots=choices.slots(kb),
        item=choices.dtype.itemsize,
        states=121 if choices.policy_rows == "padded" else 16,
        width=max(shape.width, shape.embedding),
    )


def _schedule(choices: Choices, factory: RowFactory, slab: Slab, step: StepFunction) -> Iterator[None]:
    """The steps of a slab: candidates in turn or from a queue, finished rows stepped on or left out."""
    if choices.refill:
        return queue_fed(slab, AllRows(step))
    iterate = {"none": AllRows(step), "where_mask": MaskedRows(step), "compact": CompactRows(step, factory)}[
        choices.skip_done
    ]
    return slab_by_slab(slab, iterate, ExitTest(choices.early_exit))


def make_policy(weights: Weights, shape: PolicyShape, choices: Choices, low: bool) -> Policy:
    """The network in the arm's form."""
    if choices.fused_trunk:
        from perfsweep.workloads.prover.kernels.fused_trunk import FusedPolicy

        return FusedPolicy(weights, shape, choices.fold, low)
    return Policy(weights, shape, choices.fold, low)


def _step(kb: KnowledgeBase, choices: Choices, scorer: Scorer, phase: Phase) -> Step:
    doubt = ROUNDED_DOUBT if choices.tf32 else FLOAT32_DOUBT
    if choices.select_kernel == "native":
        from perfsweep.workloads.prover.kernels.native_step import NativeStep

        assert isinstance(scorer, RaggedScorer)  # the level requires its lists
        return NativeStep(expander(kb, choices), scorer, doubt, phase)
    # compiled code cannot hold a clock's marks
    marks = NullClock.phase if choices.static else phase
    return Step(expander(kb, choices), scorer, choices.ragged, doubt, marks)


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
    """The lists of successors of the level of `expand_kernel`.

    Raises
    ------
    ConfigError
        The kernel has no room for the atoms or rules.
    """
    if reason := cannot_expand(choices.expand_kernel, kb.vocabulary.arity, kb.longest_body):
        raise ConfigError(f"toggles.expand_kernel={choices.expand_kernel}: {reason}")
    if choices.expand_kernel == "native":
        from perfsweep.workloads.prover.kernels.native import NativeExpander

        return NativeExpander(kb, choices.dtype, choices.ragged)
    if choices.expand_kernel == "triton":
        from perfsweep.workloads.prover.kernels.triton_expand import TritonExpander

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
