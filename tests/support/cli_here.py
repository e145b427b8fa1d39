"""Client commands in the test's own process, without the half second that starting one takes."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

from click.testing import CliRunner, Result

from aerobee.cli.__main__ import main


class CliHere:
    """For one cluster. Commands that read standard input need a process."""

    def __init__(self, nameservers: str) -> None:
        self._environment = {"AEROBEE_NAMESERVER": nameservers}

    def __call__(self, *arguments: str, code: int = 0) -> Result:
        with _own_logging():
            result = CliRunner().invoke(main, arguments, env=self._environment)
        assert result.exit_code == code, f"{arguments}: {result.exit_code} {result.output}"
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code).stdout)


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """A command takes over the logging of its process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
