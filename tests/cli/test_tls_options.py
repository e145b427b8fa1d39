"""The options of TLS that commands share: from flags, from the environment, or neither."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aerobee.cli.target import Target, target_options
from aerobee.rpc.tls_config import TlsConfig

CA = TlsConfig(ca=Path("ca.crt"))
OWN = TlsConfig(ca=Path("ca.crt"), certificate=Path("own.crt"), key=Path("own.key"))
OF_A_SHELL = {"AEROBEE_TLS_CA": "ca.crt"}


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, False),
        (["--tls"], {}, TlsConfig()),
        (["--tls-ca", "ca.crt"], {}, CA),
        ([], OF_A_SHELL, CA),
        ([], {"AEROBEE_TLS": "true"}, TlsConfig()),
        (["--no-tls"], OF_A_SHELL, False),
        (["--tls-certificate", "own.crt", "--tls-key", "own.key"], OF_A_SHELL, OWN),
    ],
)
def test_a_command_gets_what_they_say(
    arguments: list[str], environment: dict[str, str], expected: TlsConfig | bool
) -> None:
    found: list[Target] = []

    @click.command()
    @target_options
    def command(target: Target) -> None:
        found.append(target)

    unset = dict.fromkeys(
        ("AEROBEE_TLS", "AEROBEE_TLS_CA", "AEROBEE_TLS_CERTIFICATE", "AEROBEE_TLS_KEY")
    )
    done = CliRunner().invoke(command, arguments, env={**unset, **environment})
    assert done.exit_code == 0, done.output
    assert [one.tls for one in found] == [expected]


def test_a_certificate_without_its_key_is_refused() -> None:
    @click.command()
    @target_options
    def command(target: Target) -> None:
        raise AssertionError("not called")

    done = CliRunner().invoke(command, ["--tls-certificate", "own.crt"])
    assert done.exit_code == 2
    assert "--tls-certificate and --tls-key belong together" in done.output
