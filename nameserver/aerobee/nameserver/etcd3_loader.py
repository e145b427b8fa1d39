"""Lets the package etcd3 0.12.0 run with current protobuf versions.

etcd3's generated stubs are older than protobuf 4 and fail on import: they build their descriptors
by hand. But each `*_pb2.py` carries its file descriptor in serialized form. This file extracts
those bytes from the source text without running it, builds the modules with the installed protobuf,
and places them in `sys.modules`, where `import etcd3` finds them instead of its own.

Invariant: nothing happens at import; `load_etcd3` may be called any number of times.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import types
import warnings
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.internal import builder

_STUB_PACKAGE = "etcd3.etcdrpc"
_STUBS_IN_ORDER_OF_DEPENDENCY = ("kv_pb2", "auth_pb2", "rpc_pb2")


def load_etcd3() -> Any:
    """The imported package etcd3. Reads files: not for the event loop.

    Raises:
        ImportError: etcd3 is missing, or its stubs do not look like those of 0.12.0.
    """
    if "etcd3" not in sys.modules:
        folder = _stub_folder()
        for stub in _STUBS_IN_ORDER_OF_DEPENDENCY:
            name = f"{_STUB_PACKAGE}.{stub}"
            module = _build_module(name, _serialized_descriptor(folder / f"{stub}.py"))
            # A second caller, on another thread, uses the modules built by the first.
            sys.modules.setdefault(name, module)
    with warnings.catch_warnings():
        # The package is from 2020: its warnings are known, and no user can act on them.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", SyntaxWarning)
        return importlib.import_module("etcd3")


def _stub_folder() -> Path:
    found = importlib.util.find_spec("etcd3")
    if found is None or found.origin is None:
        raise ImportError("the package etcd3 is not installed")
    return Path(found.origin).parent / "etcdrpc"


def _serialized_descriptor(stub: Path) -> bytes:
    """The bytes after `serialized_pb=_b('...')`, where `_b` encodes Latin-1."""
    for node in ast.walk(ast.parse(stub.read_text("utf-8"), str(stub))):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            call = node.value
            if isinstance(call, ast.Call) and isinstance(call.args[0], ast.Constant):
                text = call.args[0].value
                if isinstance(text, str):
                    return text.encode("latin-1")
    raise ImportError(f"{stub} holds no serialized descriptor; is this etcd3 0.12.0?")


def _build_module(name: str, serialized: bytes) -> types.ModuleType:
    module = types.ModuleType(name)
    descriptor = descriptor_pool.Default().AddSerializedFile(serialized)
    members = vars(module)
    members["DESCRIPTOR"] = descriptor
    builder.BuildMessageAndEnumDescriptors(descriptor, members)
    builder.BuildTopDescriptorsAndMessages(descriptor, name, members)
    return module
