"""Stage 0: does the driver fit, is the GPU ours alone, and do NVML and torch speak of the same one?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perfsweep.pipelines.gpu_check.answer import Here, Line, judged, needs_gpu
from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.gpus import Gpu, TorchBuild, driver_refusal

NAMES = ("driver", "settings", "neighbours", "order", "architecture")


def examine(here: Here) -> Iterator[Line]:
    """Ask driver, settings, neighbours, the order of GPUs, and what the wheel was compiled for."""
    build = gpus.torch_build()
    yield judged("software", True, f"torch {build.version}, CUDA {build.cuda or 'none'}")
    if not here.on_gpu:
        yield from needs_gpu(*NAMES)
        return
    import torch

    visible = gpus.visible()
    count = range(torch.cuda.device_count())
    yield driver_line(build, gpus.driver_version(), gpus.driver_cuda())
    yield settings_line(visible)
    yield neighbours_line(visible)
    yield order_line(
        [gpu.uuid for gpu in visible[: 1 if visible[0].sliced else None]],
        [str(torch.cuda.get_device_properties(one).uuid) for one in count],
    )
    yield architecture_line(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())


def driver_line(build: TorchBuild, driver: str | None, cuda: tuple[int, int] | None) -> Line:
    """Hold the driver against the wheel."""
    refusal = driver_refusal(build, driver, cuda)
    knows = ".".join(map(str, cuda)) if cuda else "unknown"
    fits = f"driver {driver} knows CUDA {knows}, and torch was built with {build.cuda}"
    return judged("driver", refusal is None, refusal or fits)


def settings_line(visible: Sequence[Gpu]) -> Line:
    """What an administrator set; a mode that keeps a second process out fails: arms may stay side by side."""
    first = visible[0]
    closed = [gpu.compute_mode for gpu in visible if gpu.compute_mode in ("prohibited", "one process")]
    limit = "unknown" if first.power_limit_w is None else f"{first.power_limit_w:.0f} W"
    served = ", shared by MPS, whose other clients are not seen" if any(gpu.mps for gpu in visible) else ""
    text = (
        f"{len(visible)} x {first.name}, power limit {limit}, SM clock at most {first.sm_clock_max_mhz} MHz,"
        f" ECC {_on(first.ecc)}, persistence {_on(first.persistence)}, compute mode {first.compute_mode}"
        f"{served}"
    )
    if closed:
        text += f": the mode '{closed[0]}' keeps a second arm out; ask for Default (nvidia-smi -c 0)"
    return judged("settings", not closed, text, gpus=len(visible), power_limit_w=first.power_limit_w or 0.0)


def _on(setting: bool | None) -> str:
    return {None: "unknown", True: "on", False: "off"}[setting]


def neighbours_line(visible: Sequence[Gpu]) -> Line:
    """No other process computes on our GPUs."""
    foreign = sum(gpu.foreign for gpu in visible)
    return judged("neighbours", not foreign, f"{foreign} processes of others on our GPUs", foreign=foreign)


def order_line(nvml: Sequence[str], torch_uuids: Sequence[str]) -> Line:
    """Whether number i means the same GPU to NVML, which tells of clocks, and to torch, which computes."""
    same = list(map(_bare, nvml)) == list(map(_bare, torch_uuids))
    text = "NVML and torch number the GPUs alike"
    if not same:
        text = (
            f"NVML tells of {', '.join(nvml)} and torch of {', '.join(torch_uuids)}, though both go by"
            " the bus: choose GPUs by their UUIDs (CUDA_VISIBLE_DEVICES=GPU-...)"
        )
    return judged("order", same, text)


def _bare(uuid: str) -> str:
    return re.sub(r"^(GPU|MIG)-", "", uuid)


def architecture_line(capability: tuple[int, int], compiled_for: Sequence[str]) -> Line:
    """Whether the wheel has code for this GPU: machine code of its generation, or PTX of an older one."""
    found = [re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", one) for one in compiled_for]
    pairs = [(one[1], (int(one[2]), int(one[3]))) for one in found if one]
    fits = any(made <= capability and (kind == "compute" or made[0] == capability[0]) for kind, made in pairs)
    here = "sm_" + "".join(map(str, capability))
    text = f"{here}; the wheel was compiled for {', '.join(compiled_for)}"
    return judged("architecture", fits, text if fits else f"{text}: install one that has {here}")
