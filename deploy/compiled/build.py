"""Compiles the modules of modules.txt with mypyc: the same Python, as shared libraries beside it.

python deploy/compiled/build.py            beside the sources of this checkout
python deploy/compiled/build.py --quick    the same for tests: sooner built, and slower
python deploy/compiled/build.py --remove   and away again
python deploy/compiled/build.py --into F   below the folder F, as in a wheel

It needs mypy, setuptools and a C compiler. docs/decisions/ has the reasons (0048).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MADE = Path("dist/compiled")
LIBRARY = "aerobee__mypyc"
"""What mypyc calls the library of the group `aerobee`; each module's own file only points to it."""
GUARD = Path("runtime") / f"{LIBRARY}.py"
LENIENT = ("--follow-imports=silent", "--ignore-missing-imports", "--no-warn-return-any")
"""`make check` checks all types. The environment of a build lacks most packages that have some."""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def listed_modules(root: Path) -> list[Path]:
    """The sources to compile, relative to the root."""
    chosen: dict[Path, None] = {}
    for line in (HERE / "modules.txt").read_text("utf-8").splitlines():
        pattern = line.partition("#")[0].strip()
        if not pattern:
            continue
        matched = sorted(path.relative_to(root) for path in root.glob(pattern.removeprefix("!")))
        if not matched:
            raise SystemExit(f"modules.txt names {pattern}, and there is none")
        for path in matched:
            if pattern.startswith("!"):
                chosen.pop(path, None)
            else:
                chosen[path] = None
    return [*chosen]


def compile_into(root: Path, sources: list[Path], folder: Path, optimize: str) -> None:
    """`folder` then has the libraries as below site-packages."""
    from mypyc.build import mypycify  # type: ignore[import-untyped, unused-ignore]
    from setuptools import Distribution

    os.chdir(root)
    extensions = mypycify(
        [*LENIENT, *map(str, sources)],
        group_name=LIBRARY.removesuffix("__mypyc"),
        opt_level=optimize,
        debug_level="0",
        target_dir=str(folder / "c"),
    )
    distribution = Distribution({"name": "aerobee", "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder), str(folder / "c")
    distribution.run_command("build_ext")
    shutil.rmtree(folder / "c")


def name_of(source: Path) -> Path:
    """Where a source is below site-packages: without its source root."""
    return Path(*source.parts[1:])


def put_beside_sources(root: Path, optimize: str) -> int:
    sources = listed_modules(root)
    folder = root / MADE / "new"
    shutil.rmtree(folder, ignore_errors=True)
    note_sources(root, sources)
    compile_into(root, sources, folder, optimize)
    os.replace(folder / f"{LIBRARY}{SUFFIX}", root / MADE / f"{LIBRARY}{SUFFIX}")
    for source in sources:
        made = (folder / name_of(source)).with_suffix(SUFFIX)
        os.replace(made, (root / source).with_suffix(SUFFIX))
    shutil.rmtree(folder)
    return len(sources)


def note_sources(root: Path, sources: list[Path]) -> None:
    """Nothing is compiled from here on until all is, and then only for sources as they are now."""
    remove(root)
    (root / MADE).mkdir(parents=True, exist_ok=True)
    digests = {
        str(each): hashlib.sha256((root / each).read_bytes()).hexdigest() for each in sources
    }
    (root / MADE / "built.json").write_text(json.dumps(digests, indent=1), "utf-8")
    shutil.copy(HERE / "guard.py", root / GUARD)


def remove(root: Path) -> None:
    """The checkout is pure Python again. Programs that run keep what they have loaded."""
    for source_root in root.glob("*/aerobee"):
        for made in source_root.rglob("*.so"):
            made.unlink()
    (root / GUARD).unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--remove", action="store_true")
    parser.add_argument("--into", type=Path, metavar="F")
    arguments = parser.parse_args()
    optimize = "0" if arguments.quick else "2"
    if arguments.remove:
        remove(ROOT)
    elif arguments.into:
        compile_into(ROOT, listed_modules(ROOT), arguments.into.resolve(), optimize)
    else:
        count = put_beside_sources(ROOT, optimize)
        print(f"compiled {count} modules for Python {sys.version_info[0]}.{sys.version_info[1]}")


if __name__ == "__main__":
    main()
