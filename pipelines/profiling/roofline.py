"""FLOPs and bytes of each phase, against the time it takes and against what the device can do.

Counting and timing never share a repetition: operators are counted under a dispatch mode at several times
the cost, and the phases' times are those of the repetitions without it.

Bytes are the least that a cold cache would move. Views move nothing. An operator reads each tensor it is
given once and writes each it returns once, an expanded tensor only as far as it is stored. What gathers or
scatters touches as much of its table as it selects. Fusing operators, as compiled code does, moves less, and
caches that hold what was just written do too: the count is of the program, not of the chip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from perfsweep.pipelines.profiling.tool import Findings, Measured, Tick, Tool, nothing
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost
from perfsweep.pipelines.trial.counters import OperatorCalls, tensors_in
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.timing.clock import HostClock, clock_for
from perfsweep.workloads.peaks import peak
from perfsweep.workloads.training.precision import tf32_is_on

OUTSIDE = "(outside phases)"

RECORDED = (
    "profile.hook=off does not hold for a roofline, which needs the times of phases: they were recorded"
)

_HALVES = (torch.bfloat16, torch.float16)


@dataclass
class _Phase:
    """Totals of one phase."""

    calls: int = 0
    flops: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class Ceiling:
    """What the device can do at best, and where the figures are from."""

    dtype: str
    flops_per_s: float
    bytes_per_s: float
    source: str

    @property
    def ridge(self) -> float:
        """FLOPs for each byte from which on arithmetic, and no longer memory, is the limit."""
        return self.flops_per_s / self.bytes_per_s


class PhaseCalls(OperatorCalls):
    """Counts operators as counting trials do, and bills each to the innermost phase that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: dict[str, _Phase] = {}
        self.dtypes: Counter[str] = Counter()
        self._open: list[str] = []

    def count(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Add one call that returned `out`."""
        before = self.flops or 0.0
        super().count(operator, args, kwargs, out)
        billed = self.phases.setdefault("/".join(self._open) or OUTSIDE, _Phase())
        billed.calls += operator.works
        flops = (self.flops or 0.0) - before
        billed.flops += flops
        billed.bytes += moved(operator.name, args, kwargs, out) if operator.works else 0
        if flops:
            self.dtypes[product_type(args)] += int(flops)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Bill what is called inside to `name`."""
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()


class Roofline(Tool):
    """Arithmetic intensity and rates of each phase that the workload marks."""

    needs_phases = True

    def __init__(self, options: ProfileConfig, folder: Path) -> None:
        super().__init__(options, folder)
        self._calls = PhaseCalls()

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Tick]:
        with torch.compiler.set_stance("force_eager"), self._calls.mode():
            yield nothing

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self._calls.phase(name)

    def finish(self, measured: Measured) -> Findings:
        ceiling = ceiling_here(self._calls.dtypes.most_common(1)[0][0] if self._calls.dtypes else "float32")
        costs = tuple(phase_costs(self._calls.phases, measured))
        facts = (
            ("flops_per_s", ceiling.flops_per_s),
            ("bytes_per_s", ceiling.bytes_per_s),
            ("dtype", ceiling.dtype),
            ("ceiling", ceiling.source),
        )
        limits = (
            f"the device does {ceiling.flops_per_s / 1e9:,.4g} GFLOP/s in {ceiling.dtype} and moves"
            f" {ceiling.bytes_per_s / 1e9:,.4g} GB/s ({ceiling.source}); below {ceiling.ridge:.3g} FLOP for"
            " each byte memory is the limit"
        )
        notes = (
            "operators are counted as eager code runs them: what compilation fuses moves less",
            *([RECORDED] if self.options.hook == "off" else ()),
            *self._calls.notes,
        )
        return Findings(costs, facts, (limits,), notes)


def phase_costs(phases: dict[str, _Phase], measured: Measured) -> Iterator[Cost]:
    """Phases by time, without those inside them; times of one iteration are scaled to those counted."""
    own = own_times(measured)
    names = sorted({*phases, *own}, key=lambda name: own.get(name, 0.0), reverse=True)
    for name in names:
        found = phases.get(name, _Phase())
        yield Cost(
            name=name,
            self_ns=own.get(name, 0.0) * measured.iterations,
            calls=float(found.calls),
            flops=found.flops,
            bytes=float(found.bytes),
        )


def own_times(measured: Measured) -> dict[str, float]:
    """Time of each phase without those inside it (``outer/inner`` in ``outer``), and what none covers."""
    own = {OUTSIDE: measured.iteration_ns, **measured.phases}
    for name, time_ns in measured.phases.items():
        own[_around(name, measured.phases)] -= time_ns
    return own


def _around(name: str, phases: Collection[str]) -> str:
    """The phase that another is in; a name that itself holds a slash is not cut at it."""
    while name := name.rpartition("/")[0]:
        if name in phases:
            return name
    return OUTSIDE


def product_type(args: Any) -> str:
    """The type of a product's operands, as peaks are listed."""
    dtypes = [value.dtype for value in args if isinstance(value, torch.Tensor) and value.dim() >= 2]
    first = dtypes[0] if dtypes else torch.float32
    if first in _HALVES:
        return "half"
    if first is torch.float64:
        return "float64"
    return "tf32" if torch.cuda.is_available() and tf32_is_on() else "float32"


def ceiling_here(dtype: str) -> Ceiling:
    """The maker's figures where known, else what a large product and a large copy reach here and now."""
    device = environment.device_facts()
    known = peak(device.name) if device.type == "cuda" else None
    if known is not None and (rate := known.flops_per_s(dtype)) is not None:
        return Ceiling(dtype, rate, known.bytes_per_s, f"peak of {device.name}")
    how = f"a product and a copy on this {device.type}, {torch.get_num_threads()} threads"
    clock = clock_for(device)
    return Ceiling(dtype, _product_rate(dtype, device.type, clock), _copy_rate(device.type, clock), how)


def _product_rate(dtype: str, device: str, clock: HostClock, size: int = 768) -> float:
    """FLOP/s of a square product, by the faster of the libraries that PyTorch has for it.

    On CPUs a float32 product goes to MKL, which takes vectors half as wide as they are on some makers'
    processors; oneDNN, which goes by what the processor can do, takes tensors of its own layout alone.
    """
    kind = {"half": torch.bfloat16, "float64": torch.float64}.get(dtype, torch.float32)
    matrix = torch.ones(size, size, dtype=kind, device=device)
    ways = [lambda: matrix @ matrix]
    if device == "cpu" and kind is torch.float32 and torch.backends.mkldnn.is_available():
        blocked = matrix.to_mkldnn()
        ways.append(lambda: F.linear(blocked, blocked))
    return 2 * size**3 / min(_shortest_s(way, clock) for way in ways)


def _copy_rate(device: str, clock: HostClock, elements: int = 2**24) -> float:
    """Bytes read and written per second by a copy that no cache holds."""
    source = torch.ones(elements, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _shortest_s(lambda: target.copy_(source), clock)


def _shortest_s(work: Any, clock: HostClock, times: int = 5) -> float:
    """The shortest of several runs: a ceiling is what was reached once."""
    found = []
    for _ in range(times):
        start = clock.now_ns()
        work()
        clock.synchronize()
        found.append((clock.now_ns() - start) * 1e-9)
    return min(found)


_GATHERS = frozenset({"index", "index_select", "gather", "embedding", "take", "take_along_dim"})
_SCATTERING = ("index_put", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy")
_SCATTERS = frozenset(
    {"_index_put_impl_", "embedding_dense_backward", *_SCATTERING, *(f"{name}_" for name in _SCATTERING)}
)
_ALLOCATES = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "set_"}
)
_OVERWRITES = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
)


def moved(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> int:
    """Bytes that one call of the operator `name` reads and writes."""
    if name in _ALLOCATES:
        return 0
    given = [value for keyword, value in kwargs.items() if keyword != "out"]
    inputs = list(tensors_in([*args[name in _OVERWRITES :], *given]))
    outputs = list(tensors_in([out]))
    if name in _GATHERS and inputs:
        table, others = inputs[0], inputs[1:]
        selected = sum(map(stored, outputs))
        return min(stored(table), selected) + sum(map(stored, others)) + selected
    if name in _SCATTERS and inputs:
        return sum(map(stored, inputs[1:])) + 2 * min(
            stored(inputs[0]), max(map(stored, inputs[1:]), default=0)
        )
    return sum(map(stored, inputs)) + sum(map(stored, outputs))


def stored(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements: of an expanded one once, of a sparse one its values and indices."""
    if tensor.layout is torch.strided:
        distinct = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            distinct *= size if stride or not size else 1
        return distinct * tensor.element_size()
    if tensor.layout is torch.sparse_coo:
        return stored(tensor._values()) + stored(tensor._indices())
    if tensor.layout is torch.sparse_csr:
        return sum(map(stored, (tensor.values(), tensor.crow_indices(), tensor.col_indices())))
    return 0
