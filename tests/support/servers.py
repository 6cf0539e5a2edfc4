"""Fork servers that the sweeps of one test process share: each takes seconds to import torch."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from perfsweep.pipelines.execution.forks import ForkServer

TAKEN = (
    "perfsweep.pipelines.execution.servers",
    "perfsweep.pipelines.check.checked",
    "perfsweep.pipelines.profiling.profile_trials",
)
"""Modules that start one."""
FEW_KERNELS = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
"""Arms that compile begin with an empty cache, where precompiled headers take longer than a few kernels."""


class Shared(ForkServer):
    """A server that is the next one too, and so never rests."""

    def work_on(self, cores: Collection[int]) -> None: ...

    def rest(self) -> None: ...


def shared_server(
    modules: Sequence[str], env: Mapping[str, str] | None = None, early: bool = False, shared: str = ""
) -> ForkServer:
    """One server for all that would start with the same allocator and paths, in the same folder.

    Draws of addresses are one here, and what else is to be imported is the children's business: the tests'
    workloads are small.
    """
    kept = {name: value for name, value in (env or {}).items() if name.startswith("MALLOC_")}
    return _server(tuple(sorted(kept.items())), os.environ.get("PYTHONPATH", ""), Path.cwd())


@functools.lru_cache(maxsize=2)
def _server(env: tuple[tuple[str, str], ...], path: str, folder: Path) -> ForkServer:
    return Shared([], {**dict(env), "PYTHONHASHSEED": "0", **FEW_KERNELS})
