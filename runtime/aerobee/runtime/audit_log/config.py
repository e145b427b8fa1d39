"""Settings of the audit log, the same for brokers and nameservers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aerobee.runtime.config import require

FILE_BYTES_MIN = 64 * 1024


class OnFailure(StrEnum):
    """What happens to an administrative call whose line cannot be written."""

    CONTINUE = "continue"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLogConfig:
    """Who changed what, and who was refused."""

    file: str = ""
    """Append a line of JSON for each administrative call and each refusal to this file. Each node
    has a file of its own. See [audit log](audit-log.md).

    Unit: path; empty: no audit log
    Costs: each administrative call waits for its line to be on the disk; about 600 bytes each.
    """
    on_failure: OnFailure = OnFailure.CONTINUE
    """What happens while the file cannot be written. `continue`: administrative calls are carried
    out, and counted in `aerobee_audit_log_lines_lost_total`. `refuse`: they are refused before they
    begin; to make that possible, each call writes two lines, one of them before it begins.

    Costs: `refuse`: a full disk of the audit log stops all administration of this node, and no
    broker registers at this nameserver.
    """
    file_bytes_max: int = 64 * 1024 * 1024
    """A file of this size is renamed, and the next one begins.

    Costs: smaller: more files.
    """
    files_max: int = 16
    """How many files are kept, including the current one; the oldest is removed first. Copy them
    elsewhere if you must keep them longer.

    Unit: files
    Costs: disk: this many times `file_bytes_max`.
    """

    def __post_init__(self) -> None:
        require(
            self.file_bytes_max >= FILE_BYTES_MIN,
            f"audit_log.file_bytes_max must be >= {FILE_BYTES_MIN}",
            self.file_bytes_max,
        )
        require(self.files_max >= 2, "audit_log.files_max must be >= 2", self.files_max)
