"""Examples in docstrings, found and run: what is shown to users works."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_BLOCK = re.compile(r"Example::\n\n((?:[ \t]+\S.*\n?|[ \t]*\n)+)")


def modules_of(package: str) -> list[ModuleType]:
    """The package and all its modules."""
    root = importlib.import_module(package)
    names = [info.name for info in pkgutil.walk_packages(root.__path__, f"{package}.")]
    return [root, *(importlib.import_module(name) for name in names if "__main__" not in name)]


def check_doctests(module: ModuleType) -> int:
    """Runs the `>>>` examples of a module; returns how many there were."""
    result = doctest.testmod(module, raise_on_error=False)
    assert result.failed == 0, f"examples of {module.__name__} do not hold; see the output"
    return result.attempted


def example_blocks(package: str) -> Iterator[tuple[str, str]]:
    """(where, code) of each block that follows `Example::` in a docstring."""
    for module in modules_of(package):
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            documented = [(name, value)]
            if inspect.isclass(value):
                documented += [(f"{name}.{key}", each) for key, each in vars(value).items()]
            for where, each in documented:
                for found in _BLOCK.finditer(inspect.getdoc(each) or ""):
                    yield f"{module.__name__}.{where}", textwrap.dedent(found.group(1))


async def run_async(code: str, names: dict[str, Any]) -> None:
    """Runs a block as the body of a coroutine."""
    scope = dict(names)
    exec(f"async def example():\n{textwrap.indent(code, '    ')}", scope)
    await scope["example"]()
