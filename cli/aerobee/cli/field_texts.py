"""What the source of a configuration class says of its fields: for help, and for the reference.

The text below a field is its sentence; two labelled parts may follow:

    window_bytes: int = 16 * MIB
    \"\"\"How much of the log may be on its way to a replica without an acknowledgement.

    Unit: bytes
    Costs: as much memory for each replica.
    \"\"\"

The unit is written only where the field's name and type do not say it: names end in it.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
import typing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from aerobee.runtime.config import Key

_LABEL = re.compile(r"(Unit|Costs):\s*(.*)")


@dataclass(frozen=True, slots=True)
class FieldText:
    """The words of one field, each part on one line; empty where nothing is said."""

    sentence: str = ""
    unit: str = ""
    costs: str = ""


def field_texts(kind: type[Any], prefix: str = "") -> dict[str, FieldText]:
    """Dotted key -> what the source says of the field: the text below it, or its comment.

    Empty without the source.
    """
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except OSError:
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    lines = source.splitlines()
    found: dict[str, FieldText] = {}
    for statement, below in itertools.pairwise([*definition.body, ast.Pass()]):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        text = below.value if isinstance(below, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            found[prefix + statement.target.id] = parse_text(text.value)
        else:
            comment = lines[(statement.end_lineno or 1) - 1].partition("  # ")[2]
            found[prefix + statement.target.id] = FieldText(comment)
    annotations = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(annotations[field.name]):
            section = typing.cast("type[Any]", annotations[field.name])
            found.update(field_texts(section, f"{prefix}{field.name}."))
    return found


def parse_text(text: str) -> FieldText:
    """The parts of the text below a field."""
    parts: dict[str, list[str]] = {"sentence": [], "Unit": [], "Costs": []}
    label = "sentence"
    for line in text.split("\n"):
        begun = _LABEL.fullmatch(line.strip())
        if begun is not None:
            label, line = begun.groups()
        parts[label].append(line)
    joined = {name: " ".join(" ".join(lines).split()) for name, lines in parts.items()}
    return FieldText(joined["sentence"], joined["Unit"], joined["Costs"])


def unit_of(key: Key, text: FieldText) -> str:
    """What a value of the key counts or looks like; empty if neither text nor name says."""
    if text.unit:
        return text.unit
    inner = typing.get_args(key.annotation)
    if inner and inner[-1] is Ellipsis:
        single = unit_of(dataclasses.replace(key, annotation=inner[0]), text)
        return f"list: {single}" if single else ""
    if key.annotation is bool:
        return "true or false"
    if key.annotation is Path:
        return "path"
    if isinstance(key.annotation, type) and issubclass(key.annotation, StrEnum):
        return " or ".join(f"`{member.value}`" for member in key.annotation)
    words = key.name.rpartition(".")[2].split("_")
    for word, unit in (
        ("bytes", "bytes"),
        ("ms", "ms"),
        ("us", "µs"),
        ("percent", "%"),
        ("hours", "hours"),
    ):
        if word in words:
            return f"{unit}/s" if words[-2:] == ["per", "s"] else unit
    return ""
