"""Whether a module runs in compiled form (`make compiled`), and tests that need the other one."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

import pytest


def is_compiled(module: ModuleType) -> bool:
    return (module.__file__ or "").endswith(EXTENSION_SUFFIXES[0])


def replaces_what_is_compiled(module: ModuleType) -> pytest.MarkDecorator:
    """For tests that put something of their own where compiled code does not look."""
    return pytest.mark.skipif(is_compiled(module), reason=f"{module.__name__} is compiled")
