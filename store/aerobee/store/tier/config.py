"""What an operator can set about the tier."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.runtime.config import require

SCHEMES = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "azure", "https", "http")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """Copies of full log segments in an object store, see [tier](operations/tier.md)."""

    url: str = ""
    """Where they go: `file:///mnt/tier`, `s3://bucket/path`, `gs://bucket/path` or
    `az://container/path`; empty: nowhere. A folder must exist; other stores need the extra
    `aerobee[tier]` and take credentials from the environment. Each broker group uses a place of
    its own below it, by cluster and name. All replicas of a group need the same value.

    Unit: URL
    Costs: a segment stays on the disk until it is in the tier, so an object store that is away
    fills the disk.
    """
    bytes_per_s: int = 200 * 1024 * 1024
    """How fast segments are uploaded, and read back to verify them; 0: without a limit.

    Costs: higher: CPU, disk and network beside the senders; lower than what is sent: the disk
    fills.
    """
    local_delay_ms: int = 600_000
    """How long a segment that is in the tier stays on the disk at least, unless the disk is too
    full.

    Costs: longer: disk space.
    """

    def __post_init__(self) -> None:
        if self.url:
            scheme, found, rest = self.url.partition("://")
            require(
                bool(found) and bool(rest) and scheme in SCHEMES,
                f"tier.url must begin with one of {', '.join(SCHEMES)}, and ://",
                self.url,
            )
        if self.url.startswith("file:"):
            require(
                self.url.startswith("file:///"),
                "tier.url of a folder must be file:// and an absolute path",
                self.url,
            )
        for name in ("bytes_per_s", "local_delay_ms"):
            require(getattr(self, name) >= 0, f"tier.{name} must be >= 0", getattr(self, name))

    @property
    def is_on(self) -> bool:
        return bool(self.url)
