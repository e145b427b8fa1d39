"""Names of a module that are imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module


def load_name(namespace: dict[str, object], modules: Mapping[str, str], name: str) -> object:
    """The implementation of a module's `__getattr__`; afterwards the name is an ordinary attribute.

    Args:
        namespace: the module's `globals()`.
        modules: the module that defines each of its names.

    Raises AttributeError: it has no such name; the message suggests the nearest one.
    """
    if name not in modules:
        from difflib import get_close_matches  # only a mistyped name pays for this import

        near = get_close_matches(name, modules, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}{hint}")
    found = namespace[name] = getattr(import_module(modules[name]), name)
    return found
