"""`aerobee health`: ask a process how it is, as a probe does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from aerobee.cli.event_loop import run
from aerobee.cli.failures import NEGATIVE, EnvironmentFailure
from aerobee.cli.output import json_option, print_json, say
from aerobee.runtime import errors

if TYPE_CHECKING:
    from aerobee.runtime.health_check import HealthAnswer


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--service",
    default="",
    metavar="NAME",
    help="startup, liveness or readiness on a health port; on a main port the full name of a gRPC "
    "service. Without it: readiness, or the main port as a whole.",
)
@click.option("--timeout-ms", type=click.IntRange(min=1), default=2_000, show_default=True)
@json_option
def health(address: str, service: str, timeout_ms: int, as_json: bool) -> None:
    """Ask the health port of a broker or nameserver at HOST:PORT.

    Exit code 0: it is serving. 1: it is not, and the output says why. 2: nobody tells of such a
    service there. 3: nobody answers.
    """
    from aerobee.runtime.health_check import check_health

    async def main() -> HealthAnswer:
        return await check_health(address, service, timeout_ms=timeout_ms)

    try:
        answer = run(main)
    except (errors.Unreachable, errors.DeadlineExceeded) as error:
        raise EnvironmentFailure(str(error)) from error
    status = "SERVING" if answer.is_serving else "NOT_SERVING"
    if as_json:
        print_json({"address": address, "service": service, "status": status, **_reason(answer)})
    else:
        say(f"{status}: {answer.reason}" if answer.reason else status)
    if not answer.is_serving:
        raise click.exceptions.Exit(NEGATIVE)


def _reason(answer: HealthAnswer) -> dict[str, str]:
    return {"reason": answer.reason} if answer.reason else {}
