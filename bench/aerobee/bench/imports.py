"""What a program pays before its first line: time and memory of imports, and a client's size.

    python -m aerobee.bench.imports            # of the Python that runs it, in its environment

Owns: a sequence of interpreters. Statements take turns, so that a slow moment of the machine does
not count against one of them; the median of all rounds is shown. `-I` keeps the user's own files
out.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

ROUNDS = 11
STATEMENTS = {
    "Python itself": "pass",
    "asyncio and ssl": "import asyncio, ssl",
    "those and protobuf": "import asyncio, ssl, google.protobuf.descriptor_pool",
    "import aerobee": "import aerobee",
    "from aerobee import Producer": "from aerobee import Producer",
    "from aerobee import PushConsumer": "from aerobee import PushConsumer",
    "from aerobee import *": "from aerobee import *",
}
RSS_OF = "\nimport resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


def measured(statement: str) -> tuple[float, int]:
    """Milliseconds from the start of the process to its end, and KiB of its memory."""
    began_s = time.perf_counter()
    words = [sys.executable, "-I", "-c", statement + RSS_OF]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return (time.perf_counter() - began_s) * 1_000, int(done.stdout)


def client_distributions(name: str = "aerobee") -> dict[str, int]:
    """What `pip install aerobee` installs, without extras: bytes of each, by name."""
    found: dict[str, int] = {}
    open_names = [name]
    while open_names:
        name = open_names.pop()
        if name in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another Python or another system
        paths = [path.locate() for path in distribution.files or ()]
        found[name] = sum(path.stat().st_size for path in map(Path, paths) if path.is_file())
        always = [each for each in distribution.requires or () if "extra ==" not in each]
        open_names += [re.split(r"[^\w.-]", each)[0] for each in always]
    return found


def main() -> None:
    rounds: dict[str, list[tuple[float, int]]] = {title: [] for title in STATEMENTS}
    for _ in range(ROUNDS):
        for title, statement in STATEMENTS.items():
            rounds[title].append(measured(statement))
    for title, figures in rounds.items():
        times, memory = zip(*figures, strict=True)
        middle, kib = statistics.median(times), statistics.median(memory)
        print(f"{title:34}{middle:8.0f} ms{kib / 1024:8.1f} MiB")
    sizes = client_distributions()
    for name, size in sorted(sizes.items(), key=lambda each: -each[1]):
        print(f"{name:34}{size / 1e6:8.1f} MB")
    print(f"{'a client without extras':34}{sum(sizes.values()) / 1e6:8.1f} MB")


if __name__ == "__main__":
    main()
