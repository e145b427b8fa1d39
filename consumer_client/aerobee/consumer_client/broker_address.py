"""Where a broker group's master is now, asked anew before every connection."""

from __future__ import annotations

from aerobee.client_core.routes import Routes


class BrokerAddress:
    """Finds one broker's address through the route of a topic that has queues there.

    Who asks a second time could not use the first answer, so a nameserver is asked again.
    """

    __slots__ = ("_broker_name", "_routes", "_topic", "_was_asked")

    def __init__(self, routes: Routes, topic: str, broker_name: str) -> None:
        self._routes = routes
        self._topic = topic
        self._broker_name = broker_name
        self._was_asked = False

    async def __call__(self) -> str:
        """host:port of the live master.

        Raises:
            NoBrokerAvailable: there is none now.
            MqError: as Routes.route.
        """
        if self._was_asked:
            self._routes.invalidate(self._topic)
        self._was_asked = True
        route = await self._routes.route(self._topic)
        return route.master_address(self._broker_name)
