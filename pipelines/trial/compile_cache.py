"""Compiled code on disk, under the plan's control.

Every process compiles into a folder of its own. A counting trial starts with an empty one: what its arm costs
when nothing is compiled yet is its column. It leaves what it compiled to the sweep; evidence trials take from
there and add to it, and timing trials take and never add, so that a round finds what the round before found.
Autotuned code is a draw, since kernels are chosen by timing them: each fork server has its own, which its
first timing trial compiles.
The sweep's folder is kept by torch build, device and code, because compiled code of another of these is
either useless or wrong. An arm that is to compile anew neither takes nor leaves anything.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perfsweep.pipelines.store.trial_schema import Kind

VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}
"""Where torch.compile and Triton keep compiled code, and which part of a process's folder is theirs."""


def shared_folder(cache_dir: Path, torch_version: str, device_name: str, code: str) -> Path:
    """Where the trials of a sweep find compiled code that fits them."""
    key = hashlib.sha256("\n".join((torch_version, device_name, code)).encode()).hexdigest()[:12]
    return cache_dir / "compiled" / key


@contextmanager
def compile_cache(
    kind: Kind, shared: Path, own: Path, anew: bool = False, draw: int | None = None
) -> Iterator[None]:
    """Point torch.compile and Triton at a folder of this process, filled and kept as its kind of trial asks.

    `draw` is what autotuned code is kept apart by in timing trials; None: it is compiled once for all.
    """
    if drawn := kind is Kind.TIMING and draw is not None:
        shared = shared.with_name(f"{shared.name}-draw-{draw}")  # beside it: others would link all draws
    own.mkdir(parents=True, exist_ok=True)
    if kind is not Kind.COUNTING and not anew:
        link_files(shared, own)
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update({name: str(own / part) for name, part in VARIABLES.items()})
    try:
        yield
        if (drawn or kind in (Kind.COUNTING, Kind.EVIDENCE)) and not anew:
            link_files(own, shared)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        shutil.rmtree(own, ignore_errors=True)


def link_files(source: Path, target: Path) -> None:
    """Link every file of `source` that `target` lacks; files are complete or absent.

    Inductor replaces files and never writes into one, so that a linked file cannot change under another
    process.
    """
    for file in sorted(source.rglob("*")) if source.is_dir() else ():
        place = target / file.relative_to(source)
        if not file.is_file() or file.suffix in (".lock", ".tmp"):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            _link(file, place)


def _link(file: Path, place: Path) -> None:
    try:
        os.link(file, place)
    except FileExistsError:
        raise
    except OSError:  # another file system, or one without links
        if not place.exists():
            partial = place.with_name(f".{os.getpid()}.{place.name}")
            shutil.copy2(file, partial)
            partial.replace(place)
