"""Triton's kernels compiled for GPUs that are not here, and run in its interpreter."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Built:
    """What a kernel takes of a streaming multiprocessor: bytes of shared memory, registers, bytes spilled."""

    shared: int
    registers: int
    spilled: int


def build(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], architecture: int) -> Built:
    """Compile a kernel to machine code and ask the assembler what it takes.

    Parameters
    ----------
    types : of its arguments, as Triton spells them, such as ``*fp32`` and ``i32``
    constants : values of its constexpr arguments
    architecture : 80 for an A100, 90 for an H100, 100 for a B200
    """
    signature = {**types, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(
        fn=kernel, signature={name: signature[name] for name in kernel.arg_names}, constexprs=dict(constants)
    )
    built = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
    said = _assembler(built.asm["ptx"], architecture)
    registers = re.search(r"Used (\d+) registers", said)
    spilled = [int(count) for count in re.findall(r"(\d+) bytes spill", said)]
    assert registers and spilled, said
    return Built(built.metadata.shared, int(registers[1]), max(spilled))


def _assembler(ptx: str, architecture: int) -> str:
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    program = folder / ("ptxas-blackwell" if architecture >= 100 else "ptxas")
    target = re.search(r"\.target (sm_\w+)", ptx)
    assert target
    done = subprocess.run(
        [program, "-v", f"--gpu-name={target[1]}", "-", "-o", os.devnull],
        input=ptx,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def interpreted(code: str, *folders: Path) -> Any:
    """Run code in a process whose kernels are interpreted; what it prints last, read as JSON.

    `folders` are those of tests to import from.
    """
    found = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(
        map(str, (ROOT / "src", ROOT / "tests" / "support", *folders, *filter(None, [found])))
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
