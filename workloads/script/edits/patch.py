"""From the levels that won to edits of the user's files, or to a sentence where an edit is not known."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from perfsweep.workloads.script.edits.draft import Changed, Draft, Levels, Patch, Piece
from perfsweep.workloads.script.edits.site import BACK, COPY, FORWARD, LOADER, OPTIMIZER, RESET, Line, Site
from perfsweep.workloads.script.edits.source import Edit, NoEdit, Source
from perfsweep.workloads.script.edits.statements import (
    after_imports,
    assigned,
    imported,
    inside,
    line_after,
    line_before,
    outermost_loop,
    scope_at,
    with_arguments,
)


def patch(levels: Levels, sites: Sequence[Site], script: str, read: Callable[[str], bytes]) -> Patch:
    """Write levels of an arm into the user's files.

    Parameters
    ----------
    levels : those off their baseline
    sites : calls of the script that were seen
    script : its file
    read : gives the content of a file
    """
    if reading := line_that_reads(read(script)):
        wanted = ", ".join(f"{name}={level}" for name, level in levels.items())
        where = f"{Path(script).name}:{reading}"
        return Patch(
            advice=(f"{where} reads the script's own source, which a patch would change. By hand: {wanted}",)
        )
    draft = Draft(levels, sites, script, read)
    for rule in _RULES:
        rule(draft)
    _without_rule(draft)
    return draft.finished()


def _arguments(draft: Draft) -> None:
    """Arguments of loaders, optimisers, `zero_grad` and copies: all of a call at once."""
    for site in draft.sites:
        if values := _values(site, draft.levels):
            listed = ", ".join(f"{name}={value}" for name, value in values.items())
            wanted = f"{site.called}(..., {listed})"
            innermost = site.lines[0] if site.lines else Line(site.file, 0, site.line)
            draft.attempt(
                innermost.file,
                innermost.line,
                wanted,
                lambda site=site, values=values: _call(draft, site, values),
            )


def _call(draft: Draft, site: Site, values: Mapping[str, str]) -> Piece:
    draft.own(site)
    source = draft.source(site.file)
    call = source.call(site.line, site.end)
    if site.what == COPY and any((one.file, one.end) == (site.file, site.end) for one in draft.of(BACK)):
        raise NoEdit("copies to the host too, where nothing may read before the copy has ended")
    edits = with_arguments(source, call, values, site.positions, site.given)
    before = _shown(source, call, {})
    return Piece(Changed(site.file, site.line, before, _shown(source, call, values)), tuple(edits))


def _values(site: Site, levels: Levels) -> dict[str, str]:
    """Arguments that levels give to a call."""
    if site.what == RESET and "zero_grad" in levels:
        return {"set_to_none": str(levels["zero_grad"] == "none")}
    if site.what == COPY and levels.get("non_blocking") == "on":
        return {"non_blocking": "True"}
    if site.what == OPTIMIZER and (level := str(levels.get("optimizer", ""))) in site.options:
        others = [name for name in site.options if name != level and name in site.given]
        return {level: "True", **dict.fromkeys(others, "False")}
    return _of_loader(site, levels) if site.what == LOADER else {}


_OF_WORKERS = {"persistent_workers": "False", "prefetch_factor": "None"}
"""Options that a loader without workers refuses, with the values that it takes."""


def _of_loader(site: Site, levels: Levels) -> dict[str, str]:
    names = ("num_workers", "pin_memory", *_OF_WORKERS)
    values = {name: "True" if levels[name] == "on" else str(levels[name]) for name in names if name in levels}
    if int(levels.get("num_workers", site.workers)):
        return values
    neutral = {name: value for name, value in _OF_WORKERS.items() if name in site.given}
    return {name: value for name, value in values.items() if name not in _OF_WORKERS} | neutral


def _shown(source: Source, call: ast.Call, values: Mapping[str, str]) -> str:
    """A call in short: its arguments by name, with new values for some."""
    named = {one.arg: source.text(one.value) for one in call.keywords if one.arg} | dict(values)
    short = {name: " ".join(text.split()) for name, text in named.items()}
    head = ["..."] if call.args or any(one.arg is None for one in call.keywords) else []
    function = source.text(call.func).rpartition(".")[2]
    return f"{function}({', '.join([*head, *(f'{name}={text}' for name, text in short.items())])})"


def _contexts(draft: Draft) -> None:
    """The forward calls under autocast, with outputs in float32 as they were measured, and one kernel."""
    for site in draft.of(FORWARD):
        if managers := ", ".join(_managers(draft.levels, site, "torch", _ATTENTION)):
            at = site.lines[0] if site.lines else Line(site.file, 0, site.line)
            wanted = f"call {site.called} inside with {managers}:"
            draft.attempt(at.file, at.line, wanted, lambda site=site: _in_contexts(draft, site))


_ATTENTION = "torch.nn.attention"

_KERNELS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
    "cudnn": "CUDNN_ATTENTION",
}
"""What PyTorch calls the levels of the toggle `sdpa`."""


def _managers(levels: Levels, site: Site, torch: str, attention: str) -> Iterator[str]:
    if levels.get("amp") == "bf16":
        yield f'{torch}.autocast("{site.device}", dtype={torch}.bfloat16)'
    if kernel := _KERNELS.get(str(levels.get("sdpa"))):
        yield f"{attention}.sdpa_kernel({attention}.SDPBackend.{kernel})"


def _in_contexts(draft: Draft, site: Site) -> Piece:
    draft.own(site)
    source = draft.source(site.file)
    call = source.call(site.line, site.end)
    casts = draft.levels.get("amp") == "bf16"
    torch, edits = imported(source, "torch") if casts else ("", [])
    attention, more = imported(source, _ATTENTION) if "sdpa" in draft.levels else ("", [])
    manager = ", ".join(_managers(draft.levels, site, torch, attention))
    edits += [*more, *inside(source, source.statement(call), manager)]
    end, whole = source.span(call)[1], ".float()" if casts and site.tensor else ""
    if whole:
        edits.append(Edit(end, end, whole))
    shown = _one_line(source.text(call))
    return Piece(Changed(site.file, site.line, shown, f"with {manager}: {shown}{whole}"), tuple(edits))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _models(draft: Draft) -> None:
    """Lines after a model is made: its memory format, its compilation."""
    lines = []
    if draft.levels.get("channels_last") == "on":
        lines.append("{model}.to(memory_format={torch}.channels_last)")
    if level := draft.levels.get("compile"):
        mode = _MODES.get(str(level), str(level))
        lines.append(f"{{model}}.compile({mode and f'mode={chr(34)}{mode}{chr(34)}'})")
    for text in lines:
        for site in draft.of(FORWARD):
            at = site.lines[0] if site.lines else Line(site.file, 0, site.line)
            wanted = text.format(model="model", torch="torch") + f", once {site.called} is made"
            draft.attempt(
                at.file, at.line, wanted, lambda site=site, text=text: _after_model(draft, site, text)
            )


_MODES = {"default": "", "reduce_overhead": "reduce-overhead", "max_autotune": "max-autotune-no-cudagraphs"}
"""What torch.compile calls the levels of the toggle `compile`."""


def _after_model(draft: Draft, site: Site, text: str) -> Piece:
    """A line after the statement that gives a model its name."""
    for holder in site.holders:
        source = draft.source(holder.at.file)
        scope, line = scope_at(source, holder.at.scope), holder.at.line
        if "." in holder.name:
            owner = next((one for one in source.around(scope) if isinstance(one, ast.ClassDef)), None)
            statement = owner and assigned(source, owner, holder.name)
        else:
            statement = assigned(source, scope, holder.name, line)
        if statement is None:
            continue
        torch, edits = imported(source, "torch") if "{torch}" in text else ("torch", [])
        whole = text.format(model=holder.name, torch=torch)
        edits.append(line_after(source, statement, whole))
        place = statement.end_lineno or statement.lineno
        return Piece(Changed(holder.at.file, place, "", whole), tuple(edits))
    raise NoEdit(f"calls {site.called}, and no line of yours gives it a name")


def _images(draft: Draft) -> None:
    """Inputs of models in the memory format of their weights."""
    if draft.levels.get("channels_last") != "on":
        return
    for site in draft.of(FORWARD):
        if site.images and site.is_users:
            at = site.lines[0]
            wanted = "pass images in channels_last"
            draft.attempt(at.file, at.line, wanted, lambda site=site: _laid_out(draft, site))


def _laid_out(draft: Draft, site: Site) -> Piece | None:
    source = draft.source(site.file)
    call = source.call(site.line, site.end)
    torch, edits = imported(source, "torch")
    shown = _one_line(source.text(call))
    for value in _passed(call, site.images):
        whole = source.text(value)
        inner = (
            whole if isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({whole})"
        )
        edits.append(Edit(*source.span(value), f"{inner}.contiguous(memory_format={torch}.channels_last)"))
    after = "images in channels_last"
    return Piece(Changed(site.file, site.line, shown, after), tuple(edits)) if len(edits) else None


def _passed(call: ast.Call, images: Iterable[int | str]) -> Iterator[ast.expr]:
    """The arguments of a call that are written by themselves."""
    plain = not any(isinstance(one, ast.Starred) for one in call.args)
    named = {one.arg: one.value for one in call.keywords}
    for one in images:
        if isinstance(one, int) and plain and one < len(call.args):
            yield call.args[one]
        elif isinstance(one, str) and one in named:
            yield named[one]


def _settings(draft: Draft) -> None:
    """Settings of the process, after the imports of the script."""
    for name, text in _SETTINGS.items():
        if draft.levels.get(name) == "on":
            draft.attempt(draft.script, 1, text, lambda text=text: _at_start(draft, text))


_SETTINGS = {
    "tf32": 'torch.set_float32_matmul_precision("high")',
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = True",
}


def _at_start(draft: Draft, text: str) -> Piece:
    source = draft.source(draft.script)
    torch, edits = imported(source, "torch")
    edit = after_imports(source, text.replace("torch", torch, 1))
    line = source.bytes[: edit.start].count(b"\n") + 1
    return Piece(Changed(draft.script, line, "", text), (*edits, edit))


def _collector(draft: Draft) -> None:
    """Python's collector, before the outermost loop that trains."""
    if draft.levels.get("gc") != "frozen":
        return
    sites = draft.of(FORWARD)[:1]
    for site in sites:
        at = site.lines[0] if site.lines else Line(site.file, 0, site.line)
        wanted = "gc.collect() and gc.freeze() before the loop that trains"
        draft.attempt(at.file, at.line, wanted, lambda site=site: _frozen(draft, site))


def _frozen(draft: Draft, site: Site) -> Piece:
    for at in reversed(site.lines):
        source = draft.source(at.file)
        loop = outermost_loop(source, scope_at(source, at.scope), at.line)
        if loop is not None:
            gc, edits = imported(source, "gc")
            edits += [
                line_before(source, loop, f"{gc}.collect()"),
                line_before(source, loop, f"{gc}.freeze()"),
            ]
            return Piece(Changed(at.file, loop.lineno, "", f"{gc}.collect(); {gc}.freeze()"), tuple(edits))
    raise NoEdit("is in no loop of yours")


_RULES: tuple[Callable[[Draft], None], ...] = (_arguments, _contexts, _models, _images, _collector, _settings)
"""In the order in which what they put into one place comes."""

_OF_LOADERS = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")

_KNOWN: Mapping[str, str | None] = {
    **dict.fromkeys(_OF_LOADERS, LOADER),
    "optimizer": OPTIMIZER,
    "zero_grad": RESET,
    "non_blocking": COPY,
    **dict.fromkeys(("amp", "sdpa", "compile", "channels_last", "gc"), FORWARD),
    **dict.fromkeys(_SETTINGS),
}
"""Toggles with an edit, and the kind of call that it changes; None: it is a line of its own."""

_BY_HAND = {
    "amp=fp16": 'the call inside with torch.autocast("{device}", dtype=torch.float16): scaler ='
    ' torch.amp.GradScaler("{device}"), scaler.scale(loss).backward(), scaler.unscale_(optimizer) before'
    " gradients are clipped, scaler.step(optimizer), scaler.update()",
    "grad_checkpointing=on": "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for block(x),"
    " in each block",
}
"""Changes of several places that are not known from the calls that were seen."""


def _without_rule(draft: Draft) -> None:
    """A sentence for each level that no rule knows, and for each that found no call to change."""
    forward = next((site for site in draft.of(FORWARD) if site.lines), None)
    at = forward.lines[0] if forward else Line(draft.script, 0, 1)
    where = f"{Path(at.file).name}:{at.line} {'calls the model: ' if forward else ''}"
    for name, level in draft.levels.items():
        choice, kind = f"{name}={level}", _KNOWN.get(name)
        if by_hand := _BY_HAND.get(choice):
            hand = by_hand.format(device=forward.device if forward else "cuda")
            draft.advice.setdefault(f"{where}no edit is known for {choice}. By hand: {hand}")
        elif name not in _KNOWN or (kind and not draft.of(kind)):
            why = f"no call that {choice} changes was seen" if kind else f"no edit is known for {choice}"
            draft.advice.setdefault(f"{where}{why}; perfsweep describe script says what it does")


_READERS = frozenset(("open", "getsource", "getsourcelines", "read_text", "read_bytes", "fileinput"))
_FOLDERS = frozenset(("parent", "parents", "dirname", "with_name", "with_suffix", "joinpath", "stem", "name"))
"""What makes of the script's path another one."""


def line_that_reads(data: bytes) -> int:
    """The line that reads the source of the script itself, or of its functions; 0 where none is seen."""
    try:
        tree = Source(data).tree
    except NoEdit:
        return 0
    names = {"__file__", *_named_paths(tree)}
    reads = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and _reads(node, names)]
    return min(reads, default=0)


def _named_paths(tree: ast.AST) -> set[str]:
    """Names that are given the path of the script."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_path(node.value, {"__file__"}):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return found


def _reads(call: ast.Call, names: set[str]) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in _READERS:
        return False
    if name.startswith("getsource"):
        return True
    of = [*call.args[:1], *([function.value] if isinstance(function, ast.Attribute) else [])]
    return any(_is_path(one, names) for one in of)


def _is_path(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is the script's path: its name, or what keeps a path the same around it."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr not in _FOLDERS and _is_path(node.value, names)
    if isinstance(node, ast.Call):
        return _is_path(node.func, names) or (
            _called(node) not in _FOLDERS and any(_is_path(one, names) for one in node.args)
        )
    return False


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
