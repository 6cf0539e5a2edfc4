"""Hand-written C++ kernels for the CPU: built on first use by the compiler here, kept for the next trial."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from perfsweep.workloads import snapshot
from perfsweep.workloads.errors import UnsupportedHere

FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp-simd"),
    *("-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"),
)
HEADERS = Path(__file__).parent
"""Where headers lie that kernels share."""
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Next to the compiled graphs of a sweep, which are as tied to this machine as a kernel is."""


@functools.cache
def library(source: Path, toggle: str, flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The kernels in `source`, built with `flags` and `FLAGS`, for a level such as ``fused_kernel=on``.

    Raises
    ------
    UnsupportedHere
        There is no compiler, or it cannot build them.
    """
    return ctypes.CDLL(str(_built(source, toggle, flags)))


def filled(name: str, text: str) -> str:
    """Fill ``{built:FILE}`` in a variable of a level by what is built from a source of this folder.

    Empty where it cannot be built: the trial says why its level cannot act, or that it changed nothing.
    """
    try:
        return re.sub(r"\{built:([\w.]+)\}", lambda found: str(_built(HEADERS / found[1], name)), text)
    except UnsupportedHere:
        return ""


def _built(source: Path, toggle: str, flags: tuple[str, ...] = ()) -> Path:
    """Where the library lies that is built from a source, by now."""
    compiler = compiler_here()
    if compiler is None:
        raise UnsupportedHere(f"toggles.{toggle} needs a C++ compiler and neither g++ nor clang++ is on PATH")
    kept = snapshot.current()
    source = kept.copies.get(source.resolve(), source) if kept else source
    command = [compiler, *FLAGS, *flags, "-I", str(HEADERS)]
    code = b"".join(path.read_bytes() for path in (source, *sorted(HEADERS.glob("*.h"))))
    key = hashlib.sha256(code + " ".join((compiler, *FLAGS, *flags, _processor())).encode()).hexdigest()[:16]
    path = _folder() / f"{source.parent.name}-{source.stem}-{key}.so"
    if not path.exists():
        _build([*command, str(source)], path, toggle)
    return path


def _build(command: list[str], path: Path, toggle: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    built = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True, check=False)
    if built.returncode:
        raise UnsupportedHere(
            f"toggles.{toggle}: {command[0]} cannot build the kernel: {_first_error(built.stderr)}"
        )
    part.replace(path)  # the process that comes second finds a whole file


def _first_error(text: str) -> str:
    """The line of a compiler's output that says what is wrong: the others follow from it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), " ".join(lines[-1:]))


def compiler_here() -> str | None:
    """Path of the C++ compiler at hand, None without one."""
    names = (os.environ.get("CXX"), "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _processor() -> str:
    """What -march=native depends on: code built on one node must not be loaded on another kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _folder() -> Path:
    """Where built kernels are kept: code that this process loads, so nowhere that another user can write."""
    if shared := os.environ.get(CACHE_VARIABLE):
        return Path(shared)
    kept = Path(tempfile.gettempdir()) / f"perfsweep-native-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        kept.mkdir(mode=0o700)
    found = kept.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return kept if own else _of_this_process()


@functools.cache
def _of_this_process() -> Path:
    return Path(tempfile.mkdtemp(prefix="perfsweep-native-"))
