"""Kernels in C++ are built once per source, flags and processor, and obstacles are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.workloads import native
from perfsweep.workloads.errors import UnsupportedHere

TWO = 'extern "C" int two() { return 2; }\n'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(native.CACHE_VARIABLE, str(tmp_path / "cache"))
    file = tmp_path / "kernel.cpp"
    file.write_text(TWO)
    native.library.cache_clear()
    return file


def built(source: Path) -> list[Path]:
    return sorted((source.parent / "cache").glob("*.so"))


def test_a_kernel_is_built_once_and_found_by_the_next_process(source: Path) -> None:
    assert native.library(source, "kernel=on").two() == 2
    (first,) = built(source)
    written = first.stat().st_mtime_ns
    native.library.cache_clear()
    assert native.library(source, "kernel=on").two() == 2
    assert first.stat().st_mtime_ns == written
    assert built(source) == [first]


def test_another_source_and_other_flags_are_other_kernels(source: Path) -> None:
    native.library(source, "kernel=on")
    native.library(source, "kernel=on", ("-DMORE",))
    source.write_text(TWO.replace("2;", "3;"))
    native.library.cache_clear()
    assert native.library(source, "kernel=on").two() == 3
    assert len(built(source)) == 3


def test_a_header_that_kernels_share_is_found_and_its_edits_make_another_kernel(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "HEADERS", tmp_path)
    source.write_text('#include "number.h"\nextern "C" int two() { return NUMBER; }\n')
    for number in (2, 3):
        (tmp_path / "number.h").write_text(f"#define NUMBER {number}\n")
        native.library.cache_clear()
        assert native.library(source, "kernel=on").two() == number
    assert len(built(source)) == 2


def test_a_node_without_a_compiler_is_unsupported(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(source.parent))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UnsupportedHere, match=r"toggles\.kernel=on needs a C\+\+ compiler"):
        native.library(source, "kernel=on")


def test_a_compiler_that_cannot_build_it_is_quoted_and_leaves_nothing(source: Path) -> None:
    source.write_text("int two( {")
    first = r"kernel\.cpp:1:\d+: error: expected .*$"
    with pytest.raises(UnsupportedHere, match=rf"^toggles\.kernel=on: .* cannot build the kernel: .*{first}"):
        native.library(source, "kernel=on")
    assert built(source) == []
