"""Options of a source that would protect its calls: where to set that instead."""

from __future__ import annotations

from aerobee.runtime.errors import InvalidArgument


def refused_protection(name: str) -> InvalidArgument:
    """The message for an option about TLS or credentials."""
    kind, variables = "credentials", "AEROBEE_CREDENTIALS_FILE"
    if name.lower().startswith("tls."):
        kind = "TLS"
        variables = "AEROBEE_TLS_CA, AEROBEE_TLS_CERTIFICATE and AEROBEE_TLS_KEY"
    return InvalidArgument(
        f"option {name} is not supported: set {kind} by the environment, {variables}, of executors "
        "too, and leave it out"
    )
