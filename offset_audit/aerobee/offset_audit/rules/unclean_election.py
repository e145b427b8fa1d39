"""UNCLEAN_ELECTION: what is reported about a group whose master began without acknowledged
messages.

Texts of SQL over a row for each group, or for each such epoch of it.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.texts import either, phrase

NAME: Final = "UNCLEAN_ELECTION"
TITLE: Final = "A replica that may lack acknowledged messages became master."
COMMAND: Final = "aerobee cluster show"

IS_PAST: Final = "coalesce(start < log_begin, false)"
"""For one epoch: everything stored before it began has been removed."""
SEVERITY: Final = "if(is_past, 'INFO', 'ERROR')"
EVIDENCE: Final = phrase(
    "{begun} {epochs} of {broker_name}: a replica that may lack acknowledged messages became master"
    "{place}{past}.",
    begun=either(
        "elections = 1", "An unclean election began epoch", "Unclean elections began epochs"
    ),
    place=either("start is not null", "; the last one at byte {start} of the log"),
    past=either("is_past", "; retention has removed everything that was stored until then"),
)
