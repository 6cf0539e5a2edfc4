"""Kernels written by hand are compiled outside of torch.compile: their seconds count all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from perfsweep.pipelines.store.trial_schema import Kind
from perfsweep.pipelines.trial.compiles import CompileCounting
from perfsweep.pipelines.trial.scratch import compile_cache


@triton.jit
def double(x_ptr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    tl.store(x_ptr + place, 2 * tl.load(x_ptr + place))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    before = triton.knobs.compilation.listener
    yield
    assert triton.knobs.compilation.listener is before  # as it was found


def compile_for_h100(count: int) -> None:
    source = ASTSource(double, {"x_ptr": "*fp32", "COUNT": "constexpr"}, {"COUNT": count})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))


@pytest.mark.workloads
def test_a_kernel_counts_once_with_its_seconds_and_a_poll_tells_of_it() -> None:
    with CompileCounting() as compiling:
        assert not compiling.poll()
        compile_for_h100(64)
        assert compiling.poll()
        compile_for_h100(64)  # found on disk
        assert not compiling.poll()
        compile_for_h100(128)
        assert compiling.poll()
    found = compiling.result()
    assert found["compiled_kernels"] == 2
    assert 0.01 < (found["compile_s"] or 0) < 100


@pytest.mark.workloads
def test_a_kernel_that_was_compiled_once_is_found_by_later_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    with monkeypatch.context() as patch:
        patch.setattr(triton.knobs.compilation, "listener", lambda **told: found.append(told["cache_hit"]))
        for kind in (Kind.COUNTING, Kind.TIMING):
            with compile_cache(kind, tmp_path / "shared", tmp_path / kind.value):
                compile_for_h100(64)
    assert found == [False, True]


def tell(module: str, cache_hit: bool = False) -> None:
    listener: Any = triton.knobs.compilation.listener
    source = SimpleNamespace(fn=SimpleNamespace(__module__=module))
    times = SimpleNamespace(total=2_500_000)
    listener(src=source, metadata={"a": 1}, metadata_group={"b": 2}, times=times, cache_hit=cache_hit)


def test_kernels_of_inductor_are_part_of_its_graphs_and_none_of_ours() -> None:
    with CompileCounting() as compiling:
        tell("torch._inductor.runtime.compile_tasks.abc")
        tell("perfsweep.workloads.prover.kernels.triton_expand", cache_hit=True)
        assert compiling.result()["compiled_kernels"] == 0
        tell("perfsweep.workloads.prover.kernels.triton_expand")
        assert compiling.result()["compiled_kernels"] == 1
        assert compiling.result()["compile_s"] == 2.5


def test_whoever_listened_before_still_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(triton.knobs.compilation, "listener", lambda **told: heard.append(told))
    with CompileCounting():
        tell("mine", cache_hit=True)
    tell("mine", cache_hit=True)  # by itself
    assert heard[0] == heard[1]
    monkeypatch.undo()
