"""Programs in C++ and Triton for lists, for choice and move, and for the trunk of the policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Device, Level, Levels, Toggle
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.variants.part import COMPILED, Part, reordered
from perfsweep.workloads.prover.variants.policy_rows import Ragged
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.prover.config import ProverConfig
    from perfsweep.workloads.prover.counters import Tally
    from perfsweep.workloads.prover.kernels.fused_trunk import FusedPolicy
    from perfsweep.workloads.prover.kernels.native import NativeExpander
    from perfsweep.workloads.prover.kernels.triton_expand import TritonExpander
    from perfsweep.workloads.prover.maths.episodes import Rows
    from perfsweep.workloads.prover.maths.packing import Lists

LONGEST_BODY = {"native": 10, "triton": 11}
"""Atoms of a rule's body that a kernel of `expand_kernel` has room for."""


def cannot_expand(kernel: str, arity: int, longest_body: int) -> str | None:
    """Reason why a kernel of `expand_kernel` has no room for the atoms or rules of some data."""
    longest = LONGEST_BODY[kernel]
    if arity == 2 and longest_body <= longest:
        return None
    return (
        f"takes atoms of two arguments and bodies of at most {longest} atoms, and the data have {arity}"
        f" arguments and bodies of {longest_body}: use expand_kernel=torch"
    )


def _no_room(kernel: str) -> Callable[[ProverConfig, Levels], str | None]:
    return lambda config, _: cannot_expand(kernel, config.arity, config.longest_body)


def _needs_cpu_compiler(device: Device) -> str | None:
    """Reason why a kernel in C++ cannot act here."""
    if device.type != "cpu":
        return f"a CPU kernel, and this is {device.type}: use expand_kernel=triton, select_kernel=torch"
    return None if device.compiler else "needs a C++ compiler and none is on PATH"


def _needs_any_compiler(device: Device) -> str | None:
    """Reason why the fused epilogue can be built neither by Triton nor by a C++ compiler."""
    return None if device.type == "cuda" or device.compiler else "needs a C++ compiler and none is on PATH"


EXPAND_KERNEL = Toggle(
    "expand_kernel",
    (
        Level("torch"),
        # Lists have no gaps there, so that softmax adds up in another order.
        *(
            reordered(name, "kernel_rows", unsupported=needs, refused=_no_room(name), conflicts=COMPILED)
            for name, needs in (("triton", shared.needs_cuda), ("native", _needs_cpu_compiler))
        ),
    ),
    "expand a row in one program that skips finished rows",
    "Future 1",
)


class KernelLists(Part):
    """A row's list by one program, which finished rows do not run."""

    expander: NativeExpander | TritonExpander

    def build_expansion(self) -> None:
        """Make the kernel of the level.

        Raises
        ------
        ConfigError
            It has no room for the atoms or rules.
        """
        kernel = str(self.levels["expand_kernel"])
        if reason := cannot_expand(kernel, self.kb.vocabulary.arity, self.kb.longest_body):
            raise ConfigError(f"toggles.expand_kernel={kernel}: {reason}")
        if kernel == "triton":
            from perfsweep.workloads.prover.kernels.triton_expand import TritonExpander as Expander
        else:
            from perfsweep.workloads.prover.kernels.native import NativeExpander as Expander
        self.expander = Expander(self.kb, self.dtype, self.ragged)

    def expand(self, rows: Rows, tally: Tally) -> tuple[Lists, Tensor]:
        """Lists of all rows; none ever has to wait."""
        return self.expander(rows, tally)

    def counted(self) -> dict[str, float]:
        """With rows that had something to do."""
        return {**super().counted(), "kernel_rows": self.expander.rows}


SELECT_KERNEL = Toggle(
    "select_kernel",
    (
        Level("torch"),
        reordered(
            "native",
            "selected_rows",
            unsupported=_needs_cpu_compiler,
            requires={"policy_rows": ("ragged",)},
            conflicts=COMPILED,
        ),
    ),
    "choose and move in one program that skips finished rows",
)


class KernelMoves(Ragged):
    """Rows choose and move in C++, in place."""

    def build(self) -> None:
        """Count rows that moved."""
        super().build()
        self.selected = 0

    def step(self, rows: Rows) -> tuple[Rows, Tally]:
        """Rows one action further, and what was counted."""
        from perfsweep.workloads.prover.kernels.native import move_on

        tally: Tally = {}
        with self.phase("expand"):
            lists, no_room = self.expand(rows, tally)
        with self.phase("policy"):
            scores = self.ragged_scores(rows, lists, tally)
        with self.phase("select"):
            rows, counts = move_on(rows, lists, scores, no_room, self.doubt)
        tally |= {
            "useful_row_steps": counts.live,
            "states_real": counts.successors,
            "overflow": counts.overflow,
            "deferred": counts.deferred,
        }
        self.selected += counts.live
        return rows, tally

    def counted(self) -> dict[str, float]:
        """With rows that moved."""
        return {**super().counted(), "selected_rows": self.selected}


FUSED_TRUNK = Toggle(
    "fused_trunk",
    (Level("off"), reordered("on", "fused_rows", unsupported=_needs_any_compiler, conflicts=COMPILED)),
    "bias, ReLU, normalisation and residual in one pass over a layer; on CPUs all layers block by block",
)


class FusedTrunk(Part):
    """Nothing but products is a call of its own."""

    policy: FusedPolicy

    def network(self, low: bool = False) -> FusedPolicy:
        """The same network."""
        from perfsweep.workloads.prover.kernels.fused_trunk import FusedPolicy

        return FusedPolicy(self.weights, self.shape, self.folded, low)

    def counted(self) -> dict[str, float]:
        """With rows of layers that went through the fused pass."""
        return {**super().counted(), "fused_rows": self.policy.fused_rows}


VARIANTS = (
    Variant(EXPAND_KERNEL, others=KernelLists),
    Variant(SELECT_KERNEL, {"native": KernelMoves}),
    Variant(FUSED_TRUNK, {"on": FusedTrunk}),
)
