"""What compiling costs a run: graphs, recompiles, breaks and caches, counted without disturbing code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from counted import count, network, rows, train

from perfsweep.pipelines.trial.compiles import CompileCounting, kind_of

pytestmark = pytest.mark.usefixtures("one_thread")


class Compiled:
    """A compiled network whose backend counts how often compiled code ran."""

    def __init__(self, **options: Any) -> None:
        self.runs = 0
        self.model = torch.compile(network(), backend=self._backend, **{"dynamic": False, **options})

    def _backend(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            self.runs += 1
            return graph.forward(*arguments)

        return run


@pytest.fixture
def compiled() -> Iterator[Compiled]:
    torch._dynamo.reset()
    yield Compiled()
    torch._dynamo.reset()


def test_compiled_code_is_still_used_after_counting(compiled: Compiled) -> None:
    compiled.model(rows())
    with CompileCounting() as compiling:
        count(lambda: compiled.model(rows()))
        assert compiled.runs == 1  # counting ran eagerly
        compiled.model(rows())
    assert compiled.runs == 2
    found = compiling.result()
    assert (found["recompiles"], found["compiled_graphs"]) == (0, 0), "it was compiled before"


def test_polling_tells_of_compiles_and_recompiles(compiled: Compiled) -> None:
    with CompileCounting() as compiling:
        polled = []
        for size in (4, 4, 5, 5, 4):
            compiled.model(rows(size))
            polled.append(compiling.poll())
    assert polled == [True, False, True, False, False]
    found = compiling.result()
    assert (found["compiled_graphs"], found["recompiles"]) == (2, 1)
    assert found["compile_s"] and 0 < found["compile_s"] < 60
    assert "size mismatch" in compiling.recompile_reasons[0]
    assert "size mismatch at index 0" in compiling.main_reason and "expected" not in compiling.main_reason


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("2/7: self.groups[0]['lr'] == 0.00125  # (sgd.py:105 in step)", "self.groups[0]['lr']"),
        (
            "0/1: tensor 't' size mismatch at index 1. expected 57, actual 9",
            "tensor 't' size mismatch at index 1",
        ),
        ("0/1_2: len(x) == 3\n0/0: len(x) == 2", "len(x)"),
        ("None", "None"),
    ],
)
def test_reasons_are_of_one_kind_whatever_the_values(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_a_reset_of_dynamo_between_polls_hides_nothing(compiled: Compiled) -> None:
    with CompileCounting() as compiling:
        compiled.model(rows())
        torch._dynamo.reset()  # forgets callbacks and compiled code
        compiled.model(rows())
        assert compiling.poll()
        torch._dynamo.reset()
        compiling.poll()
        compiled.model(rows())
        assert compiling.poll()
    assert compiling.result()["compiled_graphs"] == 3


def test_hitting_the_recompile_limit_is_told(compiled: Compiled) -> None:
    with torch._dynamo.config.patch(recompile_limit=2), CompileCounting() as compiling:
        polled = []
        for size in (2, 3, 4, 5):
            compiled.model(rows(size))
            polled.append(compiling.poll())
    assert polled == [True, True, True, False]
    found = compiling.result()
    assert (found["recompile_limit_hit"], found["compiled_graphs"], found["recompiles"]) == (1, 2, 1)


def test_graph_recordings_are_counted_and_told() -> None:
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    with CompileCounting() as compiling:
        torch._dynamo.reset()  # forgets the callback, which the next poll registers again
        assert not compiling.poll()
        with callback_handler.install_callbacks(CallbackTrigger.CUDAGRAPH_RECORDING, "0/0"):
            pass  # what Inductor does around a recording, of which no counter tells
        assert compiling.poll()
    assert compiling.result()["cudagraph_recordings"] == 1


@pytest.mark.parametrize(
    ("module", "name", "lost"),
    [
        (
            "utils",
            "counters",
            "compiled_graphs graph_breaks cudagraph_skips cache_hits cache_misses recompile_limit_hit",
        ),
        ("utils", "get_compilation_metrics", "recompiles compile_s"),
        ("callback", "callback_handler", "cudagraph_recordings"),
    ],
)
def test_what_a_release_of_torch_lacks_is_none_and_noted(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, lost: str
) -> None:
    import torch._dynamo.callback
    import torch._dynamo.utils

    monkeypatch.delattr(getattr(torch._dynamo, module), name)
    with CompileCounting() as compiling:
        assert not compiling.poll()
        found = compiling.result()
        assert any(name in note for note in compiling.notes)
    assert {key for key, value in found.items() if value is None} == set(lost.split())


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of compiled code in which there is none."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    # Headers compiled ahead take longer than a few kernels. What the processor can do is looked at for the
    # life of the process, so it is not patched: later tests would build vector code without its headers.
    with config.patch("cpp_cache_precompile_headers", False):
        yield


@pytest.mark.slow
def test_inductor_tells_of_caches_lazy_backward_passes_and_graphs_without_a_gpu(empty_cache: None) -> None:
    """Two compiles into one folder, with a kernel for each direction."""
    results = []
    for _ in range(2):
        torch._dynamo.reset()
        with CompileCounting() as compiling:
            train(torch.compile(torch.nn.PReLU(), mode="reduce-overhead"), rows())
            assert compiling.poll()
        results.append(compiling.result())
    cold, warm = results
    assert (cold["cudagraph_skips"] or 0) >= 1
    assert cold["cache_hits"] == 0 and (cold["cache_misses"] or 0) >= 1
    assert (warm["cache_hits"] or 0) >= 1 and warm["cache_misses"] == 0
    assert (warm["compile_s"] or 0) < (cold["compile_s"] or 0)
