"""Shell lines that complete the command line: they ask click, which has the list of commands, at every TAB.

They are not click's own: bash splits words at ``=`` and ``:``, and overrides and workloads hold both. Toggles
and levels are not completed: knowing them means importing the workload, and with it torch.
"""

from __future__ import annotations

from click.shell_completion import ShellComplete, split_arg_string

from perfsweep.workloads.errors import ConfigError

_BASH = """_perfsweep() {
    local IFS=$'\\n'
    COMPREPLY=($(perfsweep complete-line "${COMP_LINE:0:$COMP_POINT}" 2>/dev/null))
    local word="${COMP_LINE:0:$COMP_POINT}"; word="${word##* }"
    # bash splits words at = and :, and replaces only the last piece
    if [[ "$word" == *[=:]* ]]; then
        local head="${word%"${word##*[=:]}"}"; COMPREPLY=("${COMPREPLY[@]#"$head"}")
    fi
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[=/] ]] && compopt -o nospace
}
complete -o default -F _perfsweep perfsweep
"""
_ZSH = """(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
_perfsweep() {
    local -a found
    found=("${(@f)$(perfsweep complete-line "$LBUFFER" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -S '' -- "${found[@]}"
}
compdef _perfsweep perfsweep
"""
_FISH = """complete -c perfsweep -f -a '(perfsweep complete-line (commandline -cp))'
"""
SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str) -> str:
    """The lines that switch completion on.

    Raises
    ------
    ConfigError
        The shell is not known.
    """
    if shell not in SHELLS:
        raise ConfigError(f"{shell} is no shell with completion; choose from: {', '.join(SHELLS)}")
    return SHELLS[shell]


def completion(shell: str) -> int:
    """Print the lines that switch completion on."""
    print(script(shell), end="")
    return 0


def complete_line(line: str) -> int:
    """Print what the end of a line may become, one word a line."""
    print("\n".join(candidates(line)))
    return 0


def candidates(line: str) -> list[str]:
    """Words that the last word of `line` may become; `line` is what was typed up to the cursor."""
    from perfsweep.pipelines.commands.catalog import COMMANDS

    words = split_arg_string(line)
    last = "" if line.endswith(" ") or not words else words.pop()
    if words[1:] and words[1] not in COMMANDS.commands:
        return []
    option = last.partition("=")[0] if last.startswith("--") and "=" in last else ""
    before, typed = ([*words[1:], option], last.partition("=")[2]) if option else (words[1:], last)
    offered = ShellComplete(COMMANDS, {}, "perfsweep", "").get_completions(before, typed)
    return [f"{option}={item.value}" if option else item.value for item in offered]
