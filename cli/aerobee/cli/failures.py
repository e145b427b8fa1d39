"""How a command ends when it does not end well: one sentence and an exit code.

Invariants: what a user or the environment caused is a `Failure` and shows no traceback; anything
else is a bug and does show one.
"""

from __future__ import annotations

import sys
from typing import IO, Any

import click

from aerobee.runtime import errors
from aerobee.runtime.printable import printable

NEGATIVE = 1
"""The command worked and the answer is no."""
USAGE = 2
ENVIRONMENT = 3
FAILED = 4
PARTIAL = 5
"""The command worked, and broker groups that do not answer may have more than it shows."""
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


class Failure(click.ClickException):
    """The operation was tried and failed."""

    exit_code = FAILED

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            # click declares it per class; an error that crossed the wire decides per instance.
            self.__dict__["exit_code"] = exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"aerobee: {printable(self.format_message())}", file=file or sys.stderr)


class UsageFailure(Failure):
    """The command line is wrong."""

    exit_code = USAGE

    @classmethod
    def of(cls, error: click.UsageError) -> UsageFailure:
        """click's error in our words: one sentence, and where to read the right usage."""
        sentence = error.format_message().removesuffix(".").replace(". Did you", "; did you")
        end = " See" if sentence.endswith("?") else "; see"
        command = error.ctx.command_path if error.ctx is not None else "aerobee"
        # `aerobee audit` has a code of its own for it.
        return cls(
            f"{sentence[:1].lower()}{sentence[1:]}{end} `{command} --help`",
            exit_code=error.exit_code,
        )


class EnvironmentFailure(Failure):
    """Something outside is in the way: no connection, a port in use, a folder locked."""

    exit_code = ENVIRONMENT


# The first class that fits decides: subclasses stand before their bases.
_EXIT_CODES: tuple[tuple[type[errors.AerobeeError], int], ...] = (
    (errors.InvalidArgument, USAGE),
    (errors.MessageIllegal, USAGE),
    (errors.TopicNotFound, NEGATIVE),
    (errors.QueueNotFound, NEGATIVE),
    (errors.GroupNotFound, NEGATIVE),
    (errors.MessageNotFound, NEGATIVE),
    (errors.GroupInUse, NEGATIVE),
    (errors.LeaseHeld, NEGATIVE),
    (errors.TopicExists, NEGATIVE),
    (errors.ScheduleExists, NEGATIVE),
    (errors.ScheduleNotFound, NEGATIVE),
    (errors.NoBrokerAvailable, ENVIRONMENT),
    (errors.RegistryUnavailable, ENVIRONMENT),
    (errors.TierUnavailable, ENVIRONMENT),
    (errors.TierDamaged, NEGATIVE),
    (errors.Unreachable, ENVIRONMENT),
    (errors.DeadlineExceeded, ENVIRONMENT),
    (errors.ShuttingDown, ENVIRONMENT),
    (errors.DuplicateBroker, ENVIRONMENT),
    (errors.DuplicateClient, ENVIRONMENT),
)


def exit_code_of(error: errors.AerobeeError) -> int:
    """The exit code for a typed error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILED)


def failure_from(error: BaseException) -> Failure | None:
    """What the user shall see of an error; None when it is a bug.

    Task groups wrap errors in groups: the first leaf that a user can understand is shown, unless
    the group also holds a bug, which must not be hidden.
    """
    if isinstance(error, Failure):
        return error
    if isinstance(error, errors.AerobeeError):
        return Failure(str(error), exit_code=exit_code_of(error))
    if isinstance(error, BaseExceptionGroup):
        found = [failure_from(inner) for inner in error.exceptions]
        return None if None in found else found[0]
    return None
