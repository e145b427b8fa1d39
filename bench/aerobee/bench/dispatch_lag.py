"""How far consumers' view of the log is behind its end while messages arrive at full speed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from aerobee.bench.grpcio_client import grpcio_channel
from aerobee.bench.measure import Stopwatch
from aerobee.v1 import broker_pb2, broker_pb2_grpc

SAMPLE_INTERVAL_S = 0.01


@dataclass(slots=True)
class DispatchLag:
    """Samples of a broker's log: (seconds, appended end, dispatched end)."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def bytes_max(self) -> int:
        """The most that was appended and not yet dispatched."""
        return max((appended - dispatched for _, appended, dispatched in self.samples), default=0)

    @property
    def ms_max(self) -> float:
        """The longest time from when bytes were seen appended until they were seen dispatched; as
        coarse as the samples, and 0 if they were already dispatched when first seen."""
        longest_s = 0.0
        later = 0
        for seen_s, appended, _ in self.samples:
            while later < len(self.samples) and self.samples[later][2] < appended:
                later += 1
            if later == len(self.samples):
                break
            longest_s = max(longest_s, self.samples[later][0] - seen_s)
        return longest_s * 1_000


@contextlib.asynccontextmanager
async def watching_dispatch(broker: str) -> AsyncIterator[DispatchLag]:
    """Sample a broker while the context is open."""
    lag = DispatchLag()
    watch = Stopwatch()
    async with grpcio_channel(broker) as channel:
        stub = broker_pb2_grpc.AdminServiceStub(channel)

        async def sample() -> None:
            while True:
                stats = await stub.GetStats(broker_pb2.GetStatsRequest())
                lag.samples.append(
                    (watch.elapsed_s(), stats.log_appended_end, stats.log_dispatched_end)
                )
                await asyncio.sleep(SAMPLE_INTERVAL_S)

        sampling = asyncio.create_task(sample(), name="dispatch-lag")
        try:
            yield lag
        finally:
            # The last messages are dispatched soon.
            await asyncio.sleep(5 * SAMPLE_INTERVAL_S)
            sampling.cancel()
            await asyncio.wait((sampling,))
