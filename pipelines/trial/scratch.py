"""The scratch folder of a trial: on the node's own disk where its job has one; and compiled code, kept in it.

Compiled code is under the plan's control. Every process compiles into a folder of its own. A counting trial
starts with an empty one: what its arm costs when nothing is compiled yet is its column. It leaves what it
compiled to the sweep. Timing trials take that and never add, so that a round finds what the round before
found. Evidence trials take and add; of what torch keys by determinism they find nothing.
Autotuned code is a draw, since kernels are chosen by timing them: each fork server has its own, which its
first timing trial compiles.
The sweep's folder is kept by torch build, device and code, because compiled code of another of these is
either useless or wrong. An arm that is to compile again neither takes nor leaves anything.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perfsweep.pipelines.store.trial_schema import Kind


def make(folder: Path) -> Path:
    """Make the scratch folder of the trial in `folder`, in any of its processes, on any of its nodes.

    If it is on a node's own disk, `folder` has a link to it. The batch script says where that disk is.
    """
    place = folder / "scratch"
    if root := os.environ.get("PERFSWEEP_SCRATCH"):
        folder = folder.absolute()
        with suppress(FileExistsError):  # another rank was first
            place.symlink_to(Path(root, f"{folder.parent.name}-{folder.name}"))
    place.resolve().mkdir(parents=True, exist_ok=True)
    return place


def remove(folder: Path) -> None:
    """Remove it with what it holds."""
    place = folder / "scratch"
    shutil.rmtree(place.resolve(), ignore_errors=True)
    if place.is_symlink():
        place.unlink(missing_ok=True)


VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "", "TRITON_CACHE_DIR": "triton"}
"""Where torch.compile and Triton keep compiled code, and which part of a process's folder is theirs."""


def shared_folder(cache_dir: Path, torch_version: str, device_name: str, code: str) -> Path:
    """Where the trials of a sweep find compiled code that fits them."""
    key = hashlib.sha256("\n".join((torch_version, device_name, code)).encode()).hexdigest()[:12]
    return cache_dir / "compiled" / key


@contextmanager
def compile_cache(
    kind: Kind, shared: Path, own: Path, fresh: bool = False, draw: int | None = None
) -> Iterator[None]:
    """Point torch.compile and Triton at a folder of this process, filled and kept as its kind of trial asks.

    `draw` is what autotuned code is kept apart by in timing trials; None: it is compiled once for all.
    """
    if drawn := kind is Kind.TIMING and draw is not None:
        shared = shared.with_name(f"{shared.name}-draw-{draw}")  # next to it: others would link all draws
    own.mkdir(parents=True, exist_ok=True)
    if kind is not Kind.COUNTING and not fresh:
        link_files(shared, own)
    try:
        with _variables(own):
            yield
        if (drawn or kind in (Kind.COUNTING, Kind.EVIDENCE)) and not fresh:
            link_files(own, shared)
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextmanager
def _variables(folder: Path) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update({name: str(folder / part) for name, part in VARIABLES.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def learn(cache_dir: Path) -> None:
    """Compile an addition: a process's first compilation asks much that holds for all of them.

    What the processor can do, which compiler there is, and digests of torch's own code take a second or two,
    however much is found on disk. Processes that are forked afterwards know it. Nothing here may start
    threads, which a fork does not take along.
    """
    import torch
    from torch._inductor import config
    from torch.hub import tqdm  # pyright: ignore[reportPrivateImportUsage]: torch's own where there is none

    own = cache_dir / "compiler"
    for compiled in (cache_dir / "compiled").iterdir():
        link_files(compiled, own)  # small programs among them, which tell what the processor can do
    torch.set_num_threads(1)  # every trial sets its own number
    interval, tqdm.monitor_interval = getattr(tqdm, "monitor_interval", 0), 0  # bars would start a thread
    with _variables(own), config.patch(compile_threads=1), torch.no_grad():
        torch.compile(lambda tensor: tensor + 1)(torch.zeros(1))
    tqdm.monitor_interval = interval
    torch.compiler.reset()


def link_files(source: Path, target: Path) -> None:
    """Link every file of `source` that `target` lacks; files are complete or absent.

    Inductor replaces files and never writes into one, so that a linked file cannot change under another
    process. Triton lists a kernel's files in a JSON file next to them, by paths, and compiles again what is
    not there: such a list is written with the paths of its new folder.
    """
    for file in sorted(source.rglob("*")) if source.is_dir() else ():
        place = target / file.relative_to(source)
        if not file.is_file() or file.suffix in (".lock", ".tmp"):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        _link(file, place)


def _link(file: Path, place: Path) -> None:
    text = _moved_list(file, place)
    if text is None:
        try:
            os.link(file, place)
        except FileExistsError:
            return
        except OSError:  # another file system, or one without links
            pass
        else:
            return
    if not place.exists():
        partial = place.with_name(f".{os.getpid()}.{place.name}")
        partial.write_bytes(file.read_bytes() if text is None else text)
        partial.replace(place)


def _moved_list(file: Path, place: Path) -> bytes | None:
    """What a list of a kernel's files says in its new place; None of other files."""
    here, there = (os.fsencode(one.parent) for one in (file, place))
    text = file.read_bytes() if file.suffix == ".json" else b""
    return text.replace(here, there) if here in text else None
