"""The hand-written CPU kernel: built on first use with the compiler at hand, kept in the cache, called by ctypes."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from workloads.errors import UnsupportedHere
from workloads.probe1d.counts import Counts
from workloads.probe1d.kernels import Sums
from workloads.probe1d.layout import Bucket
from workloads.probe1d.precision import Precision

SOURCE = Path(__file__).with_name("native.cpp")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
)
KINDS = {"gradient": (0, 2), "hessian": (1, 5), "loss": (2, 6)}
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise UnsupportedHere("toggles.fused_kernel=on needs a C++ compiler and neither g++ nor clang++ is on PATH")


def _processor() -> str:
    """What -march=native depends on: code built on one node must not be loaded on another kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _cache_dir() -> Path:
    """Beside the compiled graphs of the sweep, which are as tied to this machine as this is."""
    shared = os.environ.get(CACHE_VARIABLE)
    return Path(shared) if shared else Path(tempfile.gettempdir()) / f"perfsweep-native-{os.getuid()}"


@functools.cache
def library() -> ctypes.CDLL:
    """The built kernel.

    Raises
    ------
    UnsupportedHere
        There is no compiler, or it cannot build the kernel.
    """
    compiler = _compiler()
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join((compiler, *FLAGS, _processor())).encode()).hexdigest()[:16]
    path = _cache_dir() / f"probe1d-{key}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        built = subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(part)], capture_output=True, text=True, check=False)
        if built.returncode:
            raise UnsupportedHere(f"toggles.fused_kernel=on: {compiler} cannot build the kernel: {built.stderr[-300:]}")
        part.replace(path)  # whoever comes second finds a whole file
    return ctypes.CDLL(str(path))


class NativeKernel:
    """One call per bucket over a flat list of pairs; float events are summed in blocks, blocks in float64."""

    def __init__(self, precision: Precision, counts: Counts) -> None:
        self.precision, self.counts = precision, counts
        self.library = library()

    def __call__(self, bucket: Bucket, row: Tensor, b: Tensor, w: Tensor, kind: str) -> Sums:
        """See BucketKernel."""
        number, size = KINDS[kind]
        classes = b.shape[1]
        pairs = (row if classes == 1 else row.repeat_interleave(classes)).contiguous()
        b, w = b.reshape(-1).contiguous(), w.reshape(-1).contiguous()
        out = torch.empty((size, pairs.numel()), dtype=torch.float64)
        weight = ctypes.c_void_p(None if bucket.weight is None else bucket.weight.data_ptr())
        self._function(bucket)(
            ctypes.c_void_p(bucket.x.data_ptr()),
            weight,
            ctypes.c_int64(bucket.width),
            ctypes.c_void_p(pairs.data_ptr()),
            ctypes.c_void_p(b.data_ptr()),
            ctypes.c_void_p(w.data_ptr()),
            ctypes.c_int64(pairs.numel()),
            ctypes.c_int(number),
            ctypes.c_void_p(out.data_ptr()),
        )
        self.counts.add("fused_launches")
        self.counts.add("kernel_launches")
        return tuple(term.view(-1, classes) for term in out.to(self.precision.sums))

    def _function(self, bucket: Bucket) -> Callable[..., None]:
        """The variant for the types of events and of parameters."""
        if self.precision.compute == torch.float32:
            return self.library.sums_f32
        return self.library.sums_f64 if bucket.x.dtype == torch.float64 else self.library.sums_f64_x32
