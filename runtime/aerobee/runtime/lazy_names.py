"""Names of a module that are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module


def load_name(namespace: dict[str, object], modules: Mapping[str, str], name: str) -> object:
    """What a module's `__getattr__` answers; from then on the name is simply there.

    Args:
        namespace: the module's `globals()`.
        modules: in which module each of its names is defined.

    Raises AttributeError: it has no such name; the message has the nearest that it has.
    """
    if name not in modules:
        from difflib import get_close_matches  # only who mistypes a name waits for it

        near = get_close_matches(name, modules, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}{hint}")
    found = namespace[name] = getattr(import_module(modules[name]), name)
    return found
