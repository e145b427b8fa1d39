"""The audit as a Spark application: `spark-submit .../run/submit.py --nameserver HOST:PORT ...`.

Takes the arguments of `aerobee audit`, prints the same documents and ends with the same exit code.
Spark's own settings come from `spark-submit`, so `--master` is only for running the program alone.
The rules always run on Spark here.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from aerobee.offset_audit.run.arguments import parse_arguments
from aerobee.offset_audit.run.choosing import ONLY_HERE, keeps_parts
from aerobee.offset_audit.run.exit_codes import exit_code_of, is_understood
from aerobee.offset_audit.run.java import require_packages, silence_pyspark
from aerobee.offset_audit.run.progress import PlainProgress, SilentProgress
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.errors import InvalidArgument

PROGRAM = "aerobee-audit"
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""`spark-submit` sets it for the program that it runs."""


def main(arguments: Sequence[str]) -> int:
    """The exit code of a run with these arguments."""
    try:
        request = parse_arguments(arguments, program=PROGRAM)
        if keeps_parts(request):
            raise InvalidArgument(ONLY_HERE)
        require_packages()
        silence_pyspark()
        return _run(request)
    except KeyboardInterrupt as error:
        return exit_code_of(error)
    except Exception as error:
        if is_understood(error):
            print(f"aerobee: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
        return exit_code_of(error)


def _run(request: AuditRequest) -> int:
    from aerobee.offset_audit.outputs.console import printed
    from aerobee.offset_audit.outputs.summary import Summary
    from aerobee.offset_audit.run.pipeline import run_audit
    from aerobee.offset_audit.run.session import audit_session
    from aerobee.offset_audit.run.spark_run import SparkRun
    from aerobee.offset_audit.run.watch import watch

    def seen(found: Summary | None, reason: str) -> None:
        text = reason + "\n" if found is None else printed(found, request.format)
        sys.stdout.write(text)
        sys.stdout.flush()

    clock, chance = SystemClock(), system_random()
    # `spark-submit` redirects standard error to standard output, which may contain a document.
    is_mixed = SUBMITTED in os.environ and request.format != "text"
    progress = SilentProgress() if is_mixed else PlainProgress(clock)
    with audit_session(request.master, settings=dict(request.spark_settings)) as session:
        engine = SparkRun(session)
        if request.watch_s is not None:
            last = watch(engine, request, seen, clock=clock, chance=chance, progress=progress)
            return last.exit_code if last is not None else 0
        summary = run_audit(engine, request, clock=clock, chance=chance, progress=progress)
        seen(summary, "")
        return summary.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
