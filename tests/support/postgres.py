"""A real PostgreSQL for tests, if the machine has one: Debian's package, or any on the path."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port

USER = "nobody"
"""PostgreSQL refuses to run as root."""


def find_postgres() -> Path | None:
    """The folder with its programs; None: there is none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


@contextmanager
def running_postgres(programs: Path) -> Iterator[str]:
    """Its URL for SQLAlchemy, with psycopg; it listens on 127.0.0.1."""
    # Not below pytest's folder, which only root may enter.
    with tempfile.TemporaryDirectory(prefix="aerobee-postgres-") as name:
        folder, port = Path(name), free_port()
        owner = pwd.getpwnam(USER) if os.geteuid() == 0 else None
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)

        def run(program: str, *arguments: str) -> None:
            done = subprocess.run(
                [programs / program, "--pgdata", str(folder / "data"), *arguments],
                user=owner.pw_uid if owner is not None else None,
                group=owner.pw_gid if owner is not None else None,
                extra_groups=[] if owner is not None else None,
                stdout=subprocess.DEVNULL,  # the server keeps it open
                stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
                text=True,
                cwd=folder,
            )
            assert done.returncode == 0, (program, done.stderr)

        run("initdb", "--username", "app", "--auth", "trust", "--no-sync")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
        run("pg_ctl", "--log", str(folder / "log"), "--wait", "--options", options, "start")
        try:
            yield f"postgresql+psycopg://app@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "--mode", "immediate", "--wait", "stop")
