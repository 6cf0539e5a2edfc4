"""A GPU that is only pretended: ``pytest -p pretend_cuda`` runs code for CUDA devices without one.

Tensors say that they are on ``cuda:0`` and compute on the host, with autograd, autocast, generators and
optimisers as torch has them for CUDA. See `tensors` for what is refused, `surface` for what is answered.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

LIBRARY = os.environ["PRETEND_CUDA_LIBRARY"]
if "torch" in sys.modules and LIBRARY not in Path("/proc/self/maps").read_text():
    raise RuntimeError("pretend_cuda must be loaded before torch")
ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)

from pretend_cuda.surface import install  # noqa: E402

install()
