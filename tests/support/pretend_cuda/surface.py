"""What of `torch.cuda` the workloads ask, answered as one H100 would."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from pretend_cuda.graphs import CUDAGraph, captured, graphed_steps
from pretend_cuda.tensors import Pretending, held, waits

NAME = "NVIDIA H100 80GB HBM3"
UUID = "00000000-0000-0000-0000-000000000001"
MEMORY = 80 * 2**30
CYCLES_PER_S = 1.98e9


class Stream:
    """One of the device's queues; all of them are the host's own order."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)

    def wait_stream(self, other: Any) -> None:
        """Nothing runs late here."""

    def wait_event(self, event: Any) -> None:
        """Nothing runs late here."""

    def synchronize(self) -> None:
        """Nothing runs late here."""


class Event:
    """A mark of the time when it was recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        """Now."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """It has passed."""

    def wait(self, stream: Any = None) -> None:
        """It has passed."""

    def query(self) -> bool:
        """It has passed."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between two marks."""
        return 1e3 * (end._at - self._at)


_OF_ANY_ACCELERATOR = (
    *("synchronize", "device_count", "memory_allocated", "max_memory_allocated", "max_memory_reserved"),
    *("reset_peak_memory_stats", "memory_stats"),
)
"""Questions that `torch.accelerator` answers as `torch.cuda` does."""


@contextlib.contextmanager
def _on(stream: Any) -> Iterator[None]:
    yield


def _device_synchronize(*_: Any) -> None:
    waits.note("torch.cuda.synchronize")


def install() -> None:
    """Answer for `torch.cuda` from now on, and let operators make tensors there."""
    own = Stream()
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda *_: NAME,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: SimpleNamespace(
            name=NAME, uuid=UUID, major=9, minor=0, total_memory=MEMORY, multi_processor_count=132
        ),
        "synchronize": _device_synchronize,
        "Stream": Stream,
        "Event": Event,
        "stream": _on,
        "current_stream": lambda *_: own,
        "default_stream": lambda *_: own,
        "empty_cache": lambda: None,
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "memory_reserved": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "max_memory_allocated": lambda *_: held.most_bytes,
        "reset_peak_memory_stats": lambda *_: None,
        "memory_stats": lambda *_: defaultdict(int),
        "utilization": lambda *_: 0,
        "_sleep": lambda cycles: time.sleep(cycles / CYCLES_PER_S),
        "get_rng_state": lambda *_: torch.default_generator.get_state(),
        "set_rng_state": lambda state, *_: None,
        "set_sync_debug_mode": lambda mode: setattr(waits, "mode", mode),
        "get_sync_debug_mode": lambda: waits.mode,
        "CUDAGraph": CUDAGraph,
        "graph": captured,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name in _OF_ANY_ACCELERATOR:
        setattr(torch.accelerator, name, answers[name])
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    torch.accelerator.current_device_index = lambda: 0
    torch.Event = Event  # type: ignore[misc,assignment]
    torch.compiler.cudagraph_mark_step_begin = graphed_steps.begin
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    # A parameter that is moved stays the same parameter, as on a real device.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)  # as torch's own fake tensors do: made on the host, then moved
    Pretending().__enter__()
