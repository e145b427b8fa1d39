"""What `aerobee message` refuses before it asks anybody: one sentence, exit code 2."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from aerobee.cli.commands.message import message


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("get", "broker-a:9999999999999999999"), "9999999999999999999 is not an offset"),
        (("get", "\udcff:1"), "is not UTF-8 text"),
        (("get", "x", "--topic", "\udcff"), "is not UTF-8 text"),
        (("query", "t", "--key", "\udcff"), "is not UTF-8 text"),
        (("query", "t", "--unique-key", "\udcff"), "is not UTF-8 text"),
        (("query", "\udcff", "--key", "k"), "is not UTF-8 text"),
        (("query", "t", "--key", "k", "--begin", "9" * 20 + "d"), "is not a point in time"),
        (("query", "t", "--key", "k", "--end", "9" * 18 + "d"), "is before 1970"),
        (("query", "t"), "either --key or --unique-key"),
    ],
)
def test_arguments_that_cannot_be_meant_are_usage_errors(
    arguments: tuple[str, ...], sentence: str
) -> None:
    result = CliRunner().invoke(message, arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert isinstance(result.exception, SystemExit)
