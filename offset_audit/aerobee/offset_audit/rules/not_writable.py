"""NOT_WRITABLE: what is reported about a master that takes no messages.

Texts of SQL over its row of BROKERS.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.texts import phrase

NAME: Final = "NOT_WRITABLE"
TITLE: Final = "A master takes no messages."
COMMAND: Final = "aerobee cluster show"
HOLDS: Final = "answered and role = 'MASTER' and not_writable_reason <> ''"
EVIDENCE: Final = phrase("{broker_name}:{broker_id} takes no messages: {not_writable_reason}.")
"""The reason also says what to do."""
