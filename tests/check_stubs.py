"""Fails when the committed protobuf stubs are not what protoc makes of the .proto files."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
WELL_KNOWN = files("grpc_tools") / "_proto"


def stale_stubs() -> list[str]:
    """Stubs that differ from a fresh generation, as paths relative to `protos/`."""
    sources = sorted(str(path) for path in PROTOS.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        status = protoc.main(
            [
                "protoc",
                f"-I{PROTOS}",
                f"-I{WELL_KNOWN}",
                f"--python_out={folder}",
                f"--pyi_out={folder}",
                f"--grpc_python_out={folder}",
                *sources,
            ]
        )
        if status != 0:
            raise SystemExit(f"protoc failed with status {status}")
        fresh = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*_pb2*")
        }
    committed = {
        str(path.relative_to(PROTOS)): path.read_bytes()
        for path in PROTOS.rglob("*_pb2*")
        if path.suffix in {".py", ".pyi"}
    }
    return sorted(
        name for name in fresh.keys() | committed.keys() if fresh.get(name) != committed.get(name)
    )


if __name__ == "__main__":
    stale = stale_stubs()
    if stale:
        print("stale stubs, run `make protos`:", *stale, sep="\n  ")
        sys.exit(1)
