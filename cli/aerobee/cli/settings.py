"""KEY=VALUE options."""

from __future__ import annotations

from collections.abc import Iterable

import click


def parse_settings(texts: Iterable[str], *, option: str) -> dict[str, str]:
    """`["flush.mode=sync"]` as a dict; later ones win.

    Raises:
        click.UsageError: one has no `=` or no key.
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{option} takes KEY=VALUE, not {text!r}")
        settings[key.strip()] = value.strip()
    return settings
