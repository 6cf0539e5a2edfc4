"""Filling the templates that lie beside this module; what they are given is escaped."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape


def render(template: str, **values: Any) -> str:
    """Fill a template, such as ``report.html.j2``."""
    return _environment().get_template(template).render(**values)


def breakable(text: str) -> Markup:
    """Let a name or a path go on in the next line after its separators, rather than anywhere."""
    return Markup(re.sub(r"(=(?=\w)|[_,/](?=[^\W\d]))", r"\1<wbr>", str(escape(unbroken(text)))))


_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|[GM]i?B|[num]?s|J)(?!\w))|(?<=\dx) (?=(?:less|more)\b)|(?<=\d) (?=\.\. )"
)
_PAIR = re.compile(r"(\[[-+\d.e]+x?,) (?=[-+\d.e]+x?\])|(?<=\d\xa0\.\.) ")


def unbroken(text: str) -> str:
    """Keep a quantity with its unit in one line, and the two ends of an interval."""
    return _PAIR.sub("\\1\xa0", _UNIT.sub("\xa0", text))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("perfsweep.pipelines.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = breakable
    environment.filters["unbroken"] = unbroken
    return environment
