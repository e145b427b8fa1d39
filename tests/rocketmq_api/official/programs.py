"""Apache's own clients, each as a program that is told what to do line by line. `make interop`
builds them, once, into the cache folder; tests use those that are built.

They run in processes of their own: their protobuf descriptors have the names of ours.

    python -m tests.rocketmq_api.official.programs [LANGUAGE ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.grpc_core.interop.programs import Program, build

HERE = Path(__file__).parent

PROGRAMS = {
    program.language: program
    for program in (
        Program(
            "python",
            "rocketmq-python-client 5.1.2",
            ("python3",),
            (
                ("python3", "-m", "venv", "venv"),
                ("venv/bin/pip", "install", "-q", "-r", "requirements.txt"),
            ),
            ("{0}/venv/bin/python", "{0}/client.py"),
            HERE,
        ),
        Program(
            "node",
            "rocketmq-client-nodejs 1.0.8",
            ("node", "npm"),
            (("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),),
            ("node", "{}/client.js"),
            HERE,
        ),
    )
}


if __name__ == "__main__":
    sys.exit(build(PROGRAMS, sys.argv[1:]))
