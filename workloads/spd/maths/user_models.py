"""Anybody's network as a target: imported by name, wrapped so that its modules keep their names, tried once.

Dimensions: B rows, S positions, f features of a vector, v vocabulary.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.sites import Site
from perfsweep.workloads.spd.maths.target import Target


class UserModel(Target):
    """A user's module. Its sub-modules keep their names; no stages and no head are known.

    Parameters
    ----------
    module : called with a batch, token ids [B, S] or vectors [B, f]
    output_part : attribute, or number of a tuple's part, that holds the output; None where that is a tensor
    """

    def __init__(self, module: nn.Module, output_part: str | None = None) -> None:
        super().__init__()
        self.module, self.output_part = module, output_part

    def forward(self, batch: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The output for a batch; toggles that begin or end elsewhere are refused for such a target."""
        whole = self.module(batch)
        if self.output_part is None:
            return whole
        return (
            whole[int(self.output_part)] if self.output_part.isdigit() else getattr(whole, self.output_part)
        )

    def get_submodule(self, target: str) -> nn.Module:
        """A sub-module by the name it has in the user's network."""
        return self.module.get_submodule(target)

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Generator[tuple[str, nn.Module], None, None]:
        """The sub-modules by the names they have in the user's network."""
        return self.module.named_modules(memo, prefix, remove_duplicate)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The values by the names they have in the user's network."""
        return self.module.state_dict(*args, **kwargs)


def source_of(target: str) -> Path | None:
    """The file that ``place:factory`` is in; None where it cannot be told without importing it."""
    place = target.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place).expanduser()
    _look_here()
    try:
        spec = importlib.util.find_spec(place)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and spec.has_location else None


def make(target: str) -> nn.Module:
    """The network that the factory in ``package.module:factory`` or ``file.py:factory`` makes.

    Raises
    ------
    ConfigError
        It cannot be imported or fails, or what it makes is no module.
    """
    place, _, name = target.rpartition(":")
    module = _imported(target, place)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ConfigError(f"workload.target={target}: {place} has no function {name}")
    try:
        made = factory()
    except Exception as error:  # the factory is the user's: whatever it raises is theirs to read, in one line
        raise ConfigError(
            f"workload.target={target}: {name}() fails: {type(error).__name__}: {_first(error)}"
        ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"workload.target={target}: {name}() returns {type(made).__name__}, no nn.Module")
    return made


def _look_here() -> None:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def _imported(target: str, place: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _from_file(Path(place).expanduser())
        _look_here()
        return importlib.import_module(place)
    except Exception as error:  # as above
        raise ConfigError(
            f"workload.target={target}: {place} cannot be imported: {type(error).__name__}: {_first(error)}"
        ) from error


def _from_file(file: Path) -> ModuleType:
    if str(file.parent.resolve()) not in sys.path:
        sys.path.append(str(file.parent.resolve()))  # for modules next to it
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def try_out(target: UserModel, sites: Sequence[Site], batch: Tensor) -> None:
    """Run the network once, and look at what it returns and how its decomposed modules are called.

    Raises
    ------
    ConfigError
        It fails, returns no tensor whose leading dimensions are the batch's positions, or a site is not
        called exactly once with all positions, or is called with anything but one tensor.
    """
    calls: dict[str, list[Any]] = {site.name: [] for site in sites}
    handles = [
        target.get_submodule(site.name).register_forward_pre_hook(
            partial(_note, calls[site.name]), with_kwargs=True
        )
        for site in sites
    ]
    try:
        with torch.no_grad():
            output = target(batch)
    except Exception as error:  # the network is the user's
        raise ConfigError(
            f"workload.target: the network fails on a batch {list(batch.shape)} of {batch.dtype}:"
            f" {type(error).__name__}: {_first(error)}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    lead = batch.shape[:-1] if batch.is_floating_point() else batch.shape
    _check_output(output, lead)
    for site in sites:
        _check_calls(site, calls[site.name], lead)


def _note(calls: list[Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    calls.append(args[0] if len(args) == 1 and not kwargs else None)


def _check_output(output: Any, lead: torch.Size) -> None:
    if not isinstance(output, Tensor):
        values = getattr(output, "__dict__", {})
        parts = sorted(name for name, value in values.items() if isinstance(value, Tensor))
        hint = f"its tensors are {', '.join(parts)}" if parts else "name its attribute or number"
        raise ConfigError(
            f"workload.output_part: the network returns {type(output).__name__}, and a tensor is needed:"
            f" {hint}"
        )
    if output.dim() != len(lead) + 1 or output.shape[:-1] != lead:
        raise ConfigError(
            f"workload.output_part: the network returns {list(output.shape)} for positions {list(lead)}; it"
            " must return a vector for each, such as logits"
        )


def _check_calls(site: Site, calls: Sequence[Any], lead: torch.Size) -> None:
    if len(calls) != 1:
        raise ConfigError(
            f"workload.modules: {site.name} is called {len(calls)} times in a pass of the network, and a"
            " decomposed module must be called once; leave it out"
        )
    (x,) = calls
    if not isinstance(x, Tensor) or site.positions(x) != lead:
        shape = list(x.shape) if isinstance(x, Tensor) else "not one tensor"
        raise ConfigError(
            f"workload.modules: {site.name} reads {shape}, and a decomposed module must read one tensor with"
            f" the batch's positions {list(lead)}; leave it out"
        )


def _first(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else "no message"
