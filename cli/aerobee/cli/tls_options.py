"""How a command's calls are encrypted: the options that all commands with calls share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from aerobee.rpc.tls_config import (
    CA_VARIABLE,
    CERTIFICATE_VARIABLE,
    KEY_VARIABLE,
    TLS_VARIABLE,
    TlsConfig,
)
from aerobee.runtime import errors

_FILE = click.Path(dir_okay=False, path_type=Path)


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --tls, --tls-ca, --tls-certificate and --tls-key; the command gets them as `tls`, which
    is False without any of them."""

    @click.option(
        "--tls/--no-tls",
        "is_on",
        envvar=TLS_VARIABLE,
        default=None,
        help=f"Connect by TLS; implied by the options for files (environment: {TLS_VARIABLE}).",
    )
    @click.option(
        "--tls-ca",
        envvar=CA_VARIABLE,
        type=_FILE,
        help=f"PEM file of the authorities to trust, instead of the system's ({CA_VARIABLE}).",
    )
    @click.option(
        "--tls-certificate",
        envvar=CERTIFICATE_VARIABLE,
        type=_FILE,
        help=f"PEM file of your certificate, if the cluster asks for one ({CERTIFICATE_VARIABLE}).",
    )
    @click.option(
        "--tls-key",
        envvar=KEY_VARIABLE,
        type=_FILE,
        help=f"PEM file of its private key ({KEY_VARIABLE}).",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        is_on: bool | None,
        tls_ca: Path | None,
        tls_certificate: Path | None,
        tls_key: Path | None,
        **kwargs: Any,
    ) -> Any:
        try:
            files = TlsConfig(ca=tls_ca or "", certificate=tls_certificate or "", key=tls_key or "")
        except errors.InvalidArgument:
            raise click.UsageError(
                "--tls-certificate and --tls-key belong together: give both or neither"
            ) from None
        if is_on is None:
            is_on = files != TlsConfig()
        return command(*args, tls=files if is_on else False, **kwargs)

    return wrapped
