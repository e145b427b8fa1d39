"""Whole numbers from users: something that is not a number is as wrong as one out of range."""

from __future__ import annotations

from aerobee.runtime.errors import InvalidArgument


def check_whole_number(name: str, value: object, *, minimum: int) -> None:
    """Raises InvalidArgument unless the setting is an int of at least `minimum`.

    >>> check_whole_number("linger_ms", "5", minimum=0)
    Traceback (most recent call last):
    ...
    aerobee.errors.InvalidArgument: linger_ms must be a whole number, not '5'
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} must be a whole number, not {value!r}")
    if value < minimum:
        raise InvalidArgument(f"{name} must be at least {minimum}, not {value}")
