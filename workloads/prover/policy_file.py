"""Policies as files: tensors of a network, and the relations and entities of its tables' rows.

A file is ``torch.save`` of a mapping with `format`, `version`, `predicates`, `constants`, `tensors` and,
where it is not 1/2, `decay`: what a slot counts of the one before it. With P relations, C entities and r
arguments, the tensors, all float32, are

``predicates.weight`` [1+P+3, E]
    row 0 padding (zeros), relations in the order of `predicates`, then TRUE, FALSE and END
``arguments.I.weight`` [1+C+6r, E], I below r
    row 0 padding (zeros), entities in the order of `constants`, then variables
``trunk.L.linear``, ``trunk.L.norm``
    weight and bias; the first linear is [D, E], the others are [D, D]
``hidden``, ``out``
    weight and bias, [D, D] and [E, D]
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.formats import STATE_ATOMS
from perfsweep.workloads.prover.data.knowledge import Vocabulary
from perfsweep.workloads.prover.maths.policy import PolicyShape, Weights
from perfsweep.workloads.prover.upstream_policy import VARIABLES, UpstreamForm, converted, is_upstream

FORMAT = "perfsweep prover policy"
VERSION = 1
FIELDS = ("format", "version", "predicates", "constants", "tensors")
OPTIONAL = ("decay",)
SPECIAL = 3
"""Rows of TRUE, FALSE and END."""
MODEL = "policy.pth"
"""The policy in an archive of Stable Baselines 3."""
TABLES = ("U", "V", *(f"V{place}" for place in range(2, 8)))
"""What the network calls the tables of arguments."""
FORM = "policy_from_state_dict(names=...) says which of yours it is"
PARTS = {"linear.weight": "weight", "linear.bias": "bias", "norm.weight": "scale", "norm.bias": "shift"}


@dataclass(frozen=True)
class SavedPolicy:
    """A policy network and the names it was made for.

    Attributes
    ----------
    predicates, constants : names in the order of the rows of the tables
    tensors : float32 by the names of the format
    where : what messages call it
    decay : what a slot of a state counts of the one before it, above 0 and at most 1
    """

    predicates: tuple[str, ...]
    constants: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    where: str = "this policy"
    decay: float = PolicyShape.decay

    def __post_init__(self) -> None:
        """Refuse what is no whole policy.

        Raises
        ------
        ConfigError
            A tensor is missing, surplus, or of another shape or type; the message names it.
        """
        if not (isinstance(self.decay, float) and 0 < self.decay <= 1):
            raise self._wrong(f"decay is {self.decay!r} and must be a number above 0 and at most 1")
        for kind in ("predicates", "constants"):
            self._refuse_doubled(kind, getattr(self, kind))
        self._refuse_other_names()
        for name, shape in self._shapes().items():
            self._refuse_unfit(name, shape)
        for name in self._tables():
            if self.tensors[name][0].any():
                raise self._wrong(f"row 0 of {name} is padding and must hold zeros")

    @property
    def arity(self) -> int:
        """Largest number of arguments, r."""
        return sum(name.startswith("arguments.") for name in self.tensors)

    @property
    def shape(self) -> PolicyShape:
        """E, D, L and the decay."""
        layers = sum(bool(re.fullmatch(r"trunk\.\d+\.linear\.weight", name)) for name in self.tensors)
        width, embedding = self._matrix("trunk.0.linear.weight")
        return PolicyShape(embedding, width, layers - 1, self.decay)

    def weights_for(self, vocabulary: Vocabulary) -> Weights:
        """The network's weights, rows in the order of another vocabulary of the same names.

        Raises
        ------
        ConfigError
            The names, or numbers of arguments, are others.
        """
        if self.arity != vocabulary.arity:
            lacks = f"there is no tensor arguments.{self.arity}.weight, for tables are not shared"
            raise self._wrong(
                f"it has tables for {self.arity} arguments, and relations of the data have"
                f" {vocabulary.arity}; "
                + (lacks if self.arity < vocabulary.arity else f"set workload.arity={self.arity}")
            )
        predicates = self._order("relation", self.predicates, vocabulary.predicates, SPECIAL)
        constants = self._order("constant", self.constants, vocabulary.constants, vocabulary.variables)
        rows = {name: predicates if name == "predicates.weight" else constants for name in self._tables()}
        inner = inner_names(self.shape.layers, self.arity)
        return {
            inner[name]: tensor[rows[name]] if name in rows else tensor
            for name, tensor in self.tensors.items()
        }

    def _order(self, kind: str, own: Sequence[str], other: Sequence[str], more: int) -> Tensor:
        """Rows, in a table of `own` names, of padding, of the `other` names and of `more` after them."""
        place = {name: row for row, name in enumerate(own, 1)}
        for names, known, says in (
            (other, place, "it has no row for the {} {!r} of the data"),
            (own, set(other), "the data do not have its {} {!r}"),
        ):
            if lacking := [name for name in names if name not in known]:
                more_of_them = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
                raise self._wrong(
                    f"{says.format(kind, lacking[0])}{more_of_them}; a policy belongs to the relations and"
                    " constants that it was trained on"
                )
        behind = range(len(own) + 1, len(own) + 1 + more)
        return torch.tensor([0, *(place[name] for name in other), *behind])

    def _tables(self) -> list[str]:
        return ["predicates.weight", *(f"arguments.{place}.weight" for place in range(self.arity))]

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shape, arity = self.shape, self.arity
        entities = 1 + len(self.constants) + STATE_ATOMS * arity
        shapes: dict[str, tuple[int, ...]] = {
            "predicates.weight": (1 + len(self.predicates) + SPECIAL, shape.embedding),
            **{f"arguments.{place}.weight": (entities, shape.embedding) for place in range(arity)},
        }
        for layer in range(shape.layers + 1):
            inputs = shape.width if layer else shape.embedding
            shapes |= _linear(f"trunk.{layer}.linear", inputs, shape.width)
            shapes |= {f"trunk.{layer}.norm.{part}": (shape.width,) for part in ("weight", "bias")}
        return {
            **shapes,
            **_linear("hidden", shape.width, shape.width),
            **_linear("out", shape.width, shape.embedding),
        }

    def _refuse_doubled(self, kind: str, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            raise self._wrong(f"a name is twice in {kind}, and each row needs its own")

    def _refuse_other_names(self) -> None:
        shape = self.shape
        expected = inner_names(shape.layers, max(self.arity, 1)).keys()
        if missing := sorted(expected - self.tensors.keys()):
            raise self._wrong(f"there is no tensor {missing[0]}{_among(self.tensors)}; {FORM}")
        if surplus := sorted(self.tensors.keys() - expected):
            raise self._wrong(
                f"the tensor {surplus[0]} is none of the network's and would be ignored; it has"
                " predicates, arguments.I, trunk.L.linear, trunk.L.norm, hidden and out"
            )

    def _refuse_unfit(self, name: str, shape: tuple[int, ...]) -> None:
        tensor = self.tensors[name]
        if tensor.dtype != torch.float32:
            raise self._wrong(f"{name} is {_kind(tensor)}; convert it to float32 first")
        if tuple(tensor.shape) != shape:
            raise self._wrong(
                f"{name} is {list(tensor.shape)} and should be {list(shape)}, with {len(self.predicates)}"
                f" relations and {len(self.constants)} constants named"
            )
        if not tensor.isfinite().all():
            raise self._wrong(f"{name} holds numbers that are not finite")

    def _matrix(self, name: str) -> tuple[int, int]:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise self._wrong(f"there is no tensor {name}{_among(self.tensors)}; {FORM}")
        if tensor.ndim != 2:
            raise self._wrong(f"{name} is {list(tensor.shape)} and should be a matrix")
        return tensor.shape[0], tensor.shape[1]

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{self.where}: {what}")


def inner_names(layers: int, arity: int) -> dict[str, str]:
    """What the network calls each tensor of the format."""
    names = {"predicates.weight": "P"}
    names |= {f"arguments.{place}.weight": TABLES[place] for place in range(arity)}
    for layer in range(layers + 1):
        names |= {f"trunk.{layer}.{outer}": f"trunk.{layer}.{inner}" for outer, inner in PARTS.items()}
    return names | {
        f"{name}.{part}": f"{name}.{part}" for name in ("hidden", "out") for part in ("weight", "bias")
    }


def policy_of(weights: Weights, shape: PolicyShape, vocabulary: Vocabulary) -> SavedPolicy:
    """The network's weights as they are saved."""
    tensors = {
        outer: weights[inner].detach().cpu()
        for outer, inner in inner_names(shape.layers, vocabulary.arity).items()
    }
    return SavedPolicy(vocabulary.predicates, vocabulary.constants, tensors, decay=shape.decay)


def policy_from_state_dict(
    state: Mapping[str, Any],
    predicates: Sequence[str],
    constants: Sequence[str],
    names: Mapping[str, str] | None = None,
    *,
    arity: int = 2,
    atom_embedder: str | None = None,
    state_embedder: str | None = None,
    variables: int = VARIABLES,
) -> SavedPolicy:
    """Make a policy of the ``state_dict()`` of a network of yours, or of upstream's ActorCriticPolicy.

    Parameters
    ----------
    state : tensors by name
    predicates, constants : names in the order of the tables' rows, from row 1 on
    names : the format's name of each tensor that has another name in `state`
    arity, atom_embedder, state_embedder, variables : of upstream's network alone: number of arguments, transe
        or sum, mean or sum, and rows of its table of constants that are for variables

    Raises
    ------
    ConfigError
        A tensor is missing, surplus, or of another shape or type; the message names it.
    """
    where, names = "this state_dict", names or {}
    if unknown := [name for name in names if name not in state]:
        raise ConfigError(f"{where}: it has no tensor {unknown[0]}{_among(state)}")
    renamed = {names.get(name, name): value for name, value in state.items()}
    if len(renamed) < len(state):
        raise ConfigError(f"{where}: names gives two tensors one name")
    form = UpstreamForm(atom_embedder, state_embedder, variables)
    return _policy(_tensors(renamed, where), predicates, constants, arity, form, where)


def _policy(
    tensors: Mapping[str, Tensor],
    predicates: Sequence[str],
    constants: Sequence[str],
    arity: int,
    form: UpstreamForm,
    where: str,
) -> SavedPolicy:
    """A policy of tensors without names for its rows; `form` is about upstream's."""
    named = tuple(predicates), tuple(constants)
    if is_upstream(tensors):
        return SavedPolicy(*named, converted(tensors, len(constants), arity, form, where), where, decay=1.0)
    _refuse_form(form, where)
    return SavedPolicy(*named, tensors, where)


def _refuse_form(form: UpstreamForm, where: str) -> None:
    if form.given:
        raise ConfigError(
            f"{where}: is no policy of upstream's, which {form.option}{form.given[0]} is about; leave it out"
        )


def save_policy(policy: SavedPolicy, file: str | os.PathLike[str]) -> None:
    """Write a policy into a new file.

    Raises
    ------
    ConfigError
        The file exists, or cannot be written.
    """
    path = Path(file)
    if path.exists():
        raise ConfigError(f"{path} exists; give another name, or remove it first")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "predicates": list(policy.predicates),
        "constants": list(policy.constants),
        "tensors": {name: tensor.clone() for name, tensor in policy.tensors.items()},
        **({"decay": policy.decay} if policy.decay != PolicyShape.decay else {}),
    }
    part = path.with_name(path.name + ".partial")
    try:
        torch.save(content, part)
        part.replace(path)
    except (OSError, RuntimeError) as error:  # torch says RuntimeError where the folder is missing
        raise ConfigError(f"{path} cannot be written: {_first_line(error)}") from None


def read_policy(
    file: str | os.PathLike[str],
    where: str = "",
    vocabulary: Vocabulary | None = None,
    form: UpstreamForm | None = None,
) -> SavedPolicy:
    """Read a policy.

    Parameters
    ----------
    where : what messages call the file; empty: its path
    vocabulary, form : what a file of upstream's, a ``state_dict()`` of its ActorCriticPolicy, does not say:
        names in the order that it sorts them, and how it combines rows of its tables

    Raises
    ------
    ConfigError
        The file is missing, damaged, of another kind or version, or holds no whole policy.
    """
    where, form = where or str(file), form or UpstreamForm()
    content = _loaded(Path(file), where)
    if vocabulary is not None and isinstance(content, Mapping) and is_upstream(content):
        names = vocabulary.predicates, vocabulary.constants
        return _policy(_tensors(content, where), *names, vocabulary.arity, form, where)
    _refuse_form(form, where)
    if not isinstance(content, Mapping) or content.get("format") != FORMAT:
        raise ConfigError(
            f"{where}: the file is no policy of this workload{_among(content)}; make one of a state_dict with"
            " perfsweep.workloads.prover.policy_from_state_dict and save_policy"
        )
    if content.get("version") != VERSION:
        raise ConfigError(
            f"{where}: the file has version {content.get('version')} and only {VERSION} can be read; save it"
            " again with perfsweep.workloads.prover.save_policy"
        )
    for name in FIELDS:
        if name not in content:
            raise ConfigError(
                f"{where}: the file has no {name}; save it again with perfsweep.workloads.prover.save_policy"
            )
    if surplus := sorted(map(str, content.keys() - {*FIELDS, *OPTIONAL})):
        raise ConfigError(f"{where}: the file has a field {surplus[0]}, which would be ignored; remove it")
    names = {kind: _names(content[kind], kind, where) for kind in ("predicates", "constants")}
    decay = content.get("decay", PolicyShape.decay)
    return SavedPolicy(tensors=_tensors(content["tensors"], where), where=where, decay=decay, **names)


def _loaded(file: Path, where: str) -> Any:
    if not file.is_file():
        raise ConfigError(f"{where}: there is no such file")
    try:
        return torch.load(_unpacked(file), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  torch.load has no error of its own for a damaged or foreign file
        raise ConfigError(
            f"{where}: the file is damaged or was not written by torch.save with tensors alone"
            f" ({_first_line(error)}); write it with perfsweep.workloads.prover.save_policy"
        ) from None


def _unpacked(file: Path) -> Path | io.BytesIO:
    """The file of tensors: a model of Stable Baselines is an archive in which it is one of several."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            if MODEL in archive.namelist():
                return io.BytesIO(archive.read(MODEL))
    return file


def _names(values: Any, kind: str, where: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{where}: {kind} must be a list of names, in the order of the rows")
    return tuple(values)


def _tensors(values: Any, where: str) -> dict[str, Tensor]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: tensors must be a mapping from names to tensors")
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{where}: {name} is a {type(value).__name__} and must be a tensor")
    return {name: value.detach().cpu() for name, value in values.items()}


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _among(content: Any) -> str:
    """The first names of a mapping, for a reader who wonders what it is."""
    names: Iterable[Any] = content.keys() if isinstance(content, Mapping) else ()
    first = ", ".join(map(str, list(names)[:4]))
    return f" (it has {first}{', ...' if len(list(names)) > 4 else ''})" if first else ""


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120].rstrip(".")
