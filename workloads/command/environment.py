"""The variables a command sees: the user's own, and variables that the levels of an arm name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfsweep.workloads.command.command_line import filled
from perfsweep.workloads.custom_toggles import Change
from perfsweep.workloads.declarations import Level
from perfsweep.workloads.user_environment import at_start, user_environment


def of_arm(
    levels: Iterable[Level],
    changes: Iterable[Change],
    values: Mapping[str, str],
    started: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Build the environment of an arm's command.

    Parameters
    ----------
    levels : with variables of their own, such as those of the toggle `allocator`
    changes : variables of the command's toggles; an empty one is taken away
    values : what ``{name}`` in a variable stands for
    started : the environment that this process was executed with, by default
    """
    environment = user_environment(at_start() if started is None else started)
    for level in levels:
        environment |= level.env
    for change in changes:
        for name, text in change.env.items():
            environment.pop(name, None)
            if text:
                environment[name] = filled(text, values)
    return environment
