"""Filling the templates that lie beside this module; what they are given is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2


def render(template: str, **values: Any) -> str:
    """Fill a template, such as ``report.html.j2``."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("pipelines.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
