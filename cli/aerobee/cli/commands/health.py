"""`aerobee health`: check the health of a process, as a probe does."""

from __future__ import annotations

import click

from aerobee.cli.event_loop import run
from aerobee.cli.failures import NEGATIVE, EnvironmentFailure
from aerobee.cli.options import json_option, timeout_option
from aerobee.cli.output import print_json, say
from aerobee.cli.tls_options import tls_options
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime import errors


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--service",
    default="",
    metavar="NAME",
    help="On a health port: startup, liveness or readiness. On a main port: the full name of a "
    "gRPC service.  [default: readiness, or the main port as a whole]",
)
@timeout_option(2_000, "How long to wait for the answer.")
@json_option
@tls_options
def health(
    address: str, service: str, timeout_ms: int, as_json: bool, tls: TlsConfig | bool
) -> None:
    """Check the health of the broker or nameserver at HOST:PORT.

    Exit code 0: it is serving. 1: it is not; the output says why. 2: it has no such service.
    3: it does not answer.
    """
    from aerobee.rpc.health_check import check_health
    from aerobee.rpc.tls import dialled_tls

    dialled = dialled_tls(tls)
    try:
        answer = run(lambda: check_health(address, service, timeout_ms=timeout_ms, tls=dialled))
    except (errors.Unreachable, errors.DeadlineExceeded) as error:
        raise EnvironmentFailure(str(error)) from error
    status = "SERVING" if answer.is_serving else "NOT_SERVING"
    if as_json:
        reason = {"reason": answer.reason} if answer.reason else {}
        print_json({"address": address, "service": service, "status": status, **reason})
    else:
        say(f"{status}: {answer.reason}" if answer.reason else status)
    if not answer.is_serving:
        raise click.exceptions.Exit(NEGATIVE)
