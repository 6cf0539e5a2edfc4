"""Policies of upstream's networks, ``state_dict()`` of its ActorCriticPolicy, as policies of this workload.

Upstream is DeepProofLog/Batched_Env. It has one table T for all arguments: a goal is ``P[p] + T[a] - T[b]``
(transe) or ``P[p] - T[a] - T[b]`` (sum), and a state the sum or the mean of its slots. Body, head and logits
are this workload's. Its tensors do not tell these forms from one another, so they are given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.formats import STATE_ATOMS

SIGNS = {"transe": (1, -1), "sum": (-1,)}
"""Of T for the first argument and, where the last is meant for all that follow, the others."""
SLOTS = {"mean": 1 / STATE_ATOMS, "sum": 1.0}
"""What every slot of a state counts."""
VARIABLES = 1000
"""Rows of T for variables, as upstream's builder makes them."""
TERMS = "arguments.weight"
UNREAD = re.compile(r"(^|\.)(value_\w+|action_net)\.")
"""Estimates of the value, which no action depends on, and a layer that upstream makes and does not call."""
RENAMED = (
    (r"predicate_embedder\.embedder\.weight", lambda found: "predicates.weight"),
    (r"constant_embedder\.embedder\.weight", lambda found: TERMS),
    (r"shared_body\.input_transform\.(?:0\.)?(weight|bias)", lambda found: f"trunk.0.linear.{found[1]}"),
    (r"shared_body\.input_transform\.(?:ln_|2\.)(weight|bias)", lambda found: f"trunk.0.norm.{found[1]}"),
    (
        r"shared_body\.res_blocks\.(\d+)\.(?:0\.)?(weight|bias)",
        lambda found: f"trunk.{int(found[1]) + 1}.linear.{found[2]}",
    ),
    (
        r"shared_body\.res_blocks\.(\d+)\.(?:ln_|2\.)(weight|bias)",
        lambda found: f"trunk.{int(found[1]) + 1}.norm.{found[2]}",
    ),
    (
        r"policy_head(?:_fused)?(?:\.out_transform)?(?:\.0)?\.(weight|bias)",
        lambda found: f"hidden.{found[1]}",
    ),
    (r"policy_head(?:_final|(?:\.out_transform)?\.2)\.(weight|bias)", lambda found: f"out.{found[1]}"),
)


@dataclass(frozen=True)
class UpstreamForm:
    """What upstream's tensors do not say, as its configuration calls it.

    Attributes
    ----------
    atom_embedder : transe or sum
    state_embedder : mean, over six slots, or sum
    variables : rows of the table of constants that are for variables
    option : what messages write before these names
    """

    atom_embedder: str | None = None
    state_embedder: str | None = None
    variables: int = VARIABLES
    option: str = ""

    def __post_init__(self) -> None:
        """Refuse forms that are not computed here.

        Raises
        ------
        ConfigError
            The message names the field.
        """
        for name, known in (("atom_embedder", SIGNS), ("state_embedder", SLOTS)):
            if (value := getattr(self, name)) is not None and value not in known:
                raise ConfigError(
                    f"{self.option}{name}={value}: is not computed here. Give one of: {', '.join(known)}."
                )

    @property
    def given(self) -> list[str]:
        """Names of the fields that are not as they are by default."""
        names = ("atom_embedder", "state_embedder", "variables")
        return [name for name in names if getattr(self, name) != getattr(UpstreamForm, name)]

    def signs(self, where: str, arity: int) -> list[int]:
        """Of each argument's table.

        Raises
        ------
        ConfigError
            The form is not given, or is one of two arguments.
        """
        signs = SIGNS[self.chosen(where, "atom_embedder", SIGNS)]
        if len(signs) > 1 and arity != len(signs):
            raise ConfigError(
                f"{where}: atom_embedder={self.atom_embedder} is about two arguments, and not {arity}."
            )
        return [signs[min(place, len(signs) - 1)] for place in range(arity)]

    def slots(self, where: str) -> float:
        """What every slot counts.

        Raises
        ------
        ConfigError
            The form is not given.
        """
        return SLOTS[self.chosen(where, "state_embedder", SLOTS)]

    def chosen(self, where: str, name: str, known: Mapping[str, Any]) -> str:
        """The value of a field that has to be given."""
        if (value := getattr(self, name)) is None:
            choices = " or ".join(f"{self.option}{name}={choice}" for choice in known)
            raise ConfigError(
                f"{where}: is a policy of upstream's, whose tensors do not say its {name}. Give {choices}."
            )
        return value


def is_upstream(state: Mapping[str, Any]) -> bool:
    """Whether tensors have upstream's names."""
    return any(str(name).endswith("constant_embedder.embedder.weight") for name in state)


def converted(
    state: Mapping[str, torch.Tensor], constants: int, arity: int, form: UpstreamForm, where: str
) -> dict[str, torch.Tensor]:
    """Upstream's tensors by the names of `policy_file`; slots count alike, decay 1.

    Raises
    ------
    ConfigError
        A tensor has no place, two copies differ, or `form` does not fit; the message names it.
    """
    found = _renamed(state, where)
    terms, predicates = found.pop(TERMS), found.get("predicates.weight")
    rows = 1 + constants + form.variables
    if terms.ndim != 2 or len(terms) != rows or form.variables < STATE_ATOMS * arity:
        raise ConfigError(
            f"{where}: the table of constants is {list(terms.shape)}, and rows for padding, {constants}"
            f" constants of the data and {form.option}variables={form.variables} are {rows}; give its number"
            f" of variables, at least {STATE_ATOMS * arity}, and the data that it was trained on."
        )
    terms, signs = terms[: 1 + constants + STATE_ATOMS * arity], form.signs(where, arity)
    slots = form.slots(where)
    found |= {f"arguments.{place}.weight": terms * (sign * slots) for place, sign in enumerate(signs)}
    return found if predicates is None else {**found, "predicates.weight": predicates * slots}


def _renamed(state: Mapping[str, torch.Tensor], where: str) -> dict[str, torch.Tensor]:
    """The tensors that actions depend on; upstream names one extractor three times."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        if UNREAD.search(name):
            continue
        own = _own_name(name, where)
        if not torch.equal(found.setdefault(own, tensor), tensor):
            raise ConfigError(f"{where}: {name} differs from another tensor for {own}. Keep one of the two.")
    return found


def _own_name(name: str, where: str) -> str:
    for pattern, renamed in RENAMED:
        if match := re.search(rf"(?:^|\.){pattern}$", name):
            return renamed(match)
    raise ConfigError(
        f"{where}: the tensor {name} belongs to a form of upstream's network that is not computed here."
    )
