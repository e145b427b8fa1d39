"""The numbers and names of the demo, in one place."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC = "flights"
REFUNDS_TOPIC = "refunds"
BOOKINGS_TOPIC = "bookings"
TRANSACTION_SETTINGS = {
    "transactions.timeout_ms": "1000",
    "transactions.check_interval_ms": "1000",
}
"""Of the brokers, so that nobody waits half a minute for a check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What the demo does, as far as it can be chosen."""

    brokers: int = 2
    replicas: int = 1
    """Of each broker group; with more than one, a master is killed, too."""
    queues: int = 8
    consumers: int = 3
    """In the group that reads everything; one of them is killed."""
    carriers: tuple[str, ...] = ("AA", "VX")
    """What the second group reads, by tag."""
    flights_max: int | None = None
    """At most this many flights; None: all."""
    master_kill_at_share: float = 0.2
    """With replicas: a master is killed when the group has seen this share of all flights."""
    kill_at_share: float = 0.5
    """The consumer is killed when the group has seen this share of all flights."""
    session_timeout_ms: int = 3_000
    """How long the queues of the killed consumer wait for it."""
    replicas_session_timeout_ms: int = 6_500
    """The same with replicas: queues outlive the change of a master when 0.65 of this is longer
    than the registration of a broker (3 s) and a second."""
    commit_interval_ms: int = 1_000
    """What a consumer saw since its last commit comes again when it dies."""
    batch_messages: int = 1_000
    refunds: int = 4
    """So many cancelled flights go to the group that has a message fail."""
    retries_max: int = 2
    back_off_ms: int = 200
    """After the first failure; twice as long after the second one."""
    transactions: bool = False
    """A clerk also books flights in transactions."""
    bookings: int = 300
    bookings_left: int = 30
    """So many of them are open when the clerk is killed."""
    send_timeout_ms: int = 15_000
    """Longer than a broker group may be without a master."""
    patience_s: float = 60.0
    """Without any news for this long the demo gives up and says what is missing."""

    all_group: str = "all-flights"
    carriers_group: str = "two-carriers"
    refunds_group: str = "refund-desk"

    @property
    def member_session_timeout_ms(self) -> int:
        """Of the demo's consumers."""
        return self.session_timeout_ms if self.replicas == 1 else self.replicas_session_timeout_ms
