"""CLOCK: what is reported about a broker whose clock is wrong now.

A broker stamps its reading with its own clock between the moments at which the reader asked and was
answered, so a stamp outside of them is wrong by at least the distance. Texts of SQL over a row of
BROKERS, with how many were judged (`brokers`) and found `wrong`.
"""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.rules.texts import either, phrase

NAME: Final = "CLOCK"
COMMAND: Final = "aerobee cluster show"

BEHIND: Final = "try_subtract(asked_at_ms, least(commits_read_at_ms, ends_read_at_ms))"
AHEAD: Final = "try_subtract(greatest(commits_read_at_ms, ends_read_at_ms), answered_at_ms)"
OFF: Final = "if(ahead_ms > behind_ms, ahead_ms, -behind_ms)"
"""After the columns `behind_ms` and `ahead_ms`."""
SIZE: Final = "if(off_ms < 0, -off_ms, off_ms)"
IS_WRONG: Final = (
    f"{SIZE} > {{clock_skew_ms}} and greatest(behind_ms, ahead_ms) > {{clock_skew_ms}}"
)
EVIDENCE: Final = phrase(
    "The clock of {broker_name}:{broker_id} is at least {size} ms {way}: it read "
    "{coalesce(ends_read_at_ms, commits_read_at_ms)|instant} between {asked_at_ms|instant} and "
    "{answered_at_ms|instant} here{everybody}.",
    size=SIZE,
    way=either("off_ms > 0", "ahead", "behind"),
    everybody=either(
        "brokers > 1 and wrong = brokers",
        "; the clocks of all brokers are wrong: check this machine's clock first",
    ),
)
