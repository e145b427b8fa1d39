"""gRPC programs in other languages, which speak with ours. `make clients-test` builds them, once,
into the cache folder; tests use those that are built.

    python -m tests.rpc.core.interop.programs [LANGUAGE ...]
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.cache_folder import cache_folder

HERE = Path(__file__).parent
FETCHED_JARS = (
    ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libraries"),
    # These and no others: what Maven checks itself is what the same registry says.
    (
        *("env", "LC_ALL=C", "sh", "-c"),
        "cd libraries && sha256sum -- * | diff ../jars.sha256 - >&2",
    ),
)
"""Steps of a program in Java: what its pom.xml names, as jars.sha256 lists it."""


@dataclass(frozen=True)
class Program:
    """What a folder beside this file holds."""

    language: str
    library: str
    needs: tuple[str, ...]
    """Commands; without them it is not built."""
    steps: tuple[tuple[str, ...], ...]
    """Run one after the other in a copy of the folder."""
    command: tuple[str, ...]
    """How it runs; `{}` is the copy."""
    home: Path = HERE
    """Where its folder is, which has the name of its language."""

    @property
    def folder(self) -> Path:
        """Where it is, or will be, built. Other sources have another one."""
        digest = hashlib.sha256()
        for path in sorted(
            path for path in (self.home / self.language).rglob("*") if path.is_file()
        ):
            digest.update(path.name.encode() + path.read_bytes())
        return cache_folder() / self.home.name / f"{self.language}-{digest.hexdigest()[:12]}"

    @property
    def missing(self) -> str:
        """Why it cannot be run; empty if it can."""
        lacking = [command for command in self.needs if shutil.which(command) is None]
        if lacking:
            return f"{self.library} needs {' and '.join(lacking)}, which this machine does not have"
        if not self.folder.is_dir():
            return f"{self.library} is not built here; make clients-test builds it"
        return ""

    def command_line(self, *arguments: str) -> list[str]:
        return [part.format(self.folder) for part in self.command] + list(arguments)

    def build(self) -> None:
        """Does nothing if it is built.

        Raises:
            subprocess.CalledProcessError: a step failed; it has said why.
        """
        folder = self.folder
        if folder.is_dir():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Others may build the same at the same time: the first that is complete counts.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as name:
            building = Path(name) / "whole"
            shutil.copytree(self.home / self.language, building)
            go = {"CGO_ENABLED": "0", "GOFLAGS": "-modcacherw"}
            for step in self.steps:
                subprocess.run(["nice", *step], cwd=building, env={**os.environ, **go}, check=True)
            try:
                building.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise


PROGRAMS = {
    program.language: program
    for program in (
        Program(
            "go",
            "grpc-go",
            ("go",),
            (("go", "build", "-trimpath", "-buildvcs=false", "-o", "interop", "."),),
            ("{}/interop", "client"),
        ),
        Program(
            "node",
            "grpc-js",
            ("node", "npm"),
            (("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),),
            ("node", "{}/client.js"),
        ),
        Program(
            "java",
            "grpc-java",
            ("java", "javac", "mvn"),
            (
                *FETCHED_JARS,
                ("javac", "-Xlint:all", "-cp", "libraries/*", "-d", "classes", "Client.java"),
            ),
            ("java", "-cp", "{0}/classes:{0}/libraries/*", "Client"),
        ),
        Program(
            "rust",
            "tonic",
            ("cargo",),
            (
                ("cargo", "build", "--locked"),
                ("mv", "target/debug/interop", "interop"),
                ("rm", "-rf", "target"),
            ),
            ("{}/interop",),
        ),
    )
}


def main(languages: list[str]) -> int:
    """Build those whose language is here. 1 if a build failed."""
    return build(PROGRAMS, languages)


def build(programs: dict[str, Program], languages: list[str]) -> int:
    """The same of any programs; of all languages if none is named."""
    failed = 0
    for program in programs.values():
        if languages and program.language not in languages:
            continue
        lacking = [command for command in program.needs if shutil.which(command) is None]
        if lacking:
            print(f"{program.library}: skipped, {' and '.join(lacking)} missing", flush=True)
            continue
        print(f"{program.library}: {program.folder}", flush=True)
        try:
            program.build()
        except subprocess.CalledProcessError as error:
            print(f"{program.library}: {error}", flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
