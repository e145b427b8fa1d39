"""What an operator can set about metrics, of every service alike."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.runtime.addresses import require_address
from aerobee.runtime.config import require


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where metrics are served, and how many series there may be."""

    listen: str = ""
    """host:port on which HTTP GET /metrics answers Prometheus; port 0 lets the system choose;
    empty: no metrics. The page shows the names of topics and groups.

    Unit: host:port
    Costs: a thread, and some time of the event loop at each scrape
    ([measured](monitoring.md#what-a-scrape-costs)).
    """
    tls: bool = False
    """Serve metrics by HTTPS, with the settings of `tls`.

    Costs: a handshake for each scrape, on the thread of metrics.
    """
    topics_max: int = 5_000
    """At most this many topics have their own series; the others are summed under topic `_other`.

    Unit: topics
    Costs: memory here and in Prometheus for each series, and time of each scrape.
    """
    consumers_max: int = 10_000
    """The same limit for pairs of a consumer group and a topic.

    Unit: pairs
    Costs: as above.
    """

    def __post_init__(self) -> None:
        if self.listen:
            require_address("metrics.listen", self.listen)
        for name in ("topics_max", "consumers_max"):
            require(getattr(self, name) > 0, f"metrics.{name} must be > 0", getattr(self, name))
