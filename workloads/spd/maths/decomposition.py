"""What is trained: V and U of every site, and the importance functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.importance import (
    READS_ACTIVATIONS,
    ImportanceSet,
    StackedImportanceSet,
    TransformerImportance,
)
from perfsweep.workloads.spd.maths.masked_products import FORMS, shaken
from perfsweep.workloads.spd.maths.sites import (
    Components,
    Names,
    Operands,
    Site,
    Stacks,
    by_width,
    each,
    one_by_one,
)
from perfsweep.workloads.spd.presets import Recipe


class Decomposition:
    """The trainable part.

    Attributes
    ----------
    groups : modules whose importances, and so masks, share one tensor
    """

    def __init__(
        self,
        sites: Sequence[Site],
        recipe: Recipe,
        seed: int,
        dtype: torch.dtype,
        stacked: bool = False,
        sigmoid: str = "leaky_hard",
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.sites = tuple(sites)
        self.components = nn.ModuleDict({site.key: Components(site, generator, dtype) for site in sites})
        self.groups: tuple[Names, ...] = by_width(sites) if stacked else one_by_one(sites)
        self.importance = self._functions(recipe, generator, dtype, stacked)
        self._lower, self._upper = FORMS[sigmoid]

    def _functions(
        self, recipe: Recipe, generator: torch.Generator, dtype: torch.dtype, stacked: bool
    ) -> ImportanceSet | StackedImportanceSet | TransformerImportance:
        if recipe.transformer is not None:
            sizes = recipe.transformer, recipe.hidden, self.groups
            return TransformerImportance(self.sites, *sizes, generator, dtype)
        single = ImportanceSet(self.sites, recipe.importance, recipe.hidden, generator, dtype)
        return StackedImportanceSet(single, self.groups) if stacked else single

    def to(self, device: torch.device) -> Decomposition:
        """Move everything to a device."""
        self.components.to(device)
        self.importance.to(device)
        return self

    def operands(self, deltas: Mapping[str, Tensor] | None = None) -> dict[str, Operands]:
        """V, U and where given D, by module."""
        found = {}
        for site in self.sites:
            pair: Components = self.components[site.key]  # type: ignore[assignment]
            found[site.name] = Operands(pair.V, pair.U, deltas[site.name] if deltas else None)
        return found

    def importances(self, inputs: Mapping[str, Tensor], noise: Stacks | None = None) -> tuple[Stacks, Stacks]:
        """Importances for masks and for minimality, of what modules read in the target.

        Parameters
        ----------
        noise : u in [0, 1] [..., C] that shakes the masks' importances, for binomial sources
        """
        g = self.importance(self._read(inputs))
        # Products may be in 16 bit; powers and masks are not.
        g = each(lambda t: t if t.dtype == torch.float64 else t.float(), g)
        moved = g if noise is None else each(shaken, g, noise)
        return each(self._lower, moved), each(self._upper, g)

    def _read(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self.importance.kind in READS_ACTIVATIONS:
            activated = self.sites
        elif isinstance(self.importance, TransformerImportance):
            activated = [site for site in self.sites if site.kind == "embedding"]
        else:
            return inputs
        return {**inputs, **{site.name: self._activations(site, inputs[site.name]) for site in activated}}

    def _activations(self, site: Site, x: Tensor) -> Tensor:
        pair: Components = self.components[site.key]  # type: ignore[assignment]
        return site.read(x, pair.V)

    def component_parameters(self) -> list[nn.Parameter]:
        """V and U of all modules."""
        return list(self.components.parameters())

    def importance_parameters(self) -> list[nn.Parameter]:
        """All weights and biases of importance functions."""
        return list(self.importance.parameters())

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """What an optimiser updates, by name; stacks of importance functions are one parameter each."""
        parts = {"components": self.components, "importance": self.importance}
        return {
            f"{part}.{name}": parameter
            for part, module in parts.items()
            for name, parameter in module.named_parameters()
        }

    def named_tensors(self) -> dict[str, Tensor]:
        """Every trained value under a name that no toggle changes; parts of stacks are views."""
        own = {
            f"components.{site.key}.{part}": getattr(self.components[site.key], part)
            for site in self.sites
            for part in ("V", "U")
        }
        return {**own, **self.importance.named_tensors()}

    def named_gradients(self) -> dict[str, Tensor]:
        """Copies of gradients, named and ordered as `named_tensors`; zeros where nothing flowed."""
        views = self.named_views(lambda one: torch.zeros_like(one.data) if one.grad is None else one.grad)
        return {name: view.clone() for name, view in sorted(views.items())}

    def named_views(self, of: Callable[[nn.Parameter], Tensor]) -> dict[str, Tensor]:
        """`named_tensors` of what `of` gives for each parameter, in its shape: gradients or moments."""
        parameters = [*self.component_parameters(), *self.importance_parameters()]
        values = [parameter.data for parameter in parameters]
        try:
            for parameter in parameters:
                parameter.data = of(parameter)
            # The named views are views of whatever the parameters hold.
            return {name: tensor.detach() for name, tensor in self.named_tensors().items()}
        finally:
            for parameter, value in zip(parameters, values, strict=True):
                parameter.data = value

    @property
    def frequencies(self) -> Tensor | None:
        """Of the rotary positions of importances, where these have some."""
        one = self.importance
        return one.frequencies if isinstance(one, TransformerImportance) else None

    def state(self) -> dict[str, Tensor]:
        """Values for a checkpoint."""
        return {name: tensor.detach() for name, tensor in self.named_tensors().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take values from a checkpoint.

        Raises
        ------
        ConfigError
            They belong to another architecture.
        """
        own = self.named_tensors()
        for name in sorted(own.keys() | state.keys()):
            here, there = own.get(name), state.get(name)
            if here is None or there is None or here.shape != there.shape:
                shapes = ["no such tensor" if one is None else list(one.shape) for one in (there, here)]
                raise ConfigError(
                    f"workload.resume or workload.values_path: {name} of the checkpoint is {shapes[0]} and"
                    f" this decomposition needs {shapes[1]}: the checkpoint belongs to another architecture"
                )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])
