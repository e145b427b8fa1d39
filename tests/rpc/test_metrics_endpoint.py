"""HTTP GET /metrics: what it shows, what it refuses, and that the loop decides."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)

from aerobee.rpc.metrics_endpoint import CONNECTIONS_MAX, MetricsEndpoint, serve_metrics
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.metrics.config import MetricsConfig
from aerobee.runtime.metrics.families import (
    Gathered,
    HistogramFamily,
    counter,
    gauge,
    one_counter,
    one_gauge,
)
from aerobee.runtime.metrics.histogram import Histogram
from aerobee.runtime.metrics.page_limit import PAGE_BYTES_MAX
from tests.support.ports import free_port
from tests.support.scrapes import Scrape, fetch

LABELS = {"cluster": "c"}


@pytest.fixture
async def endpoint() -> AsyncIterator[MetricsEndpoint]:
    endpoint = MetricsEndpoint(gather_timeout_s=0.5)
    yield endpoint
    await endpoint.stop()


async def scrape(address: str) -> Scrape:
    return await asyncio.to_thread(Scrape.of, address)


def status_of(address: str, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    return answer.status, said


async def test_values_of_the_loop_are_shown_with_the_service_s_labels(
    endpoint: MetricsEndpoint,
) -> None:
    sizes = Histogram((1, 10))
    for value in (0.5, 1, 3, 100):
        sizes.observe(value)

    async def source() -> Gathered:
        family = gauge("a_gauge", "Help with \\ and\nlines.", "who")
        family.add(1.5, 'quo"te')
        family.add(None, "unknown")
        histogram = HistogramFamily("a_size", "Sizes.")
        histogram.add(sizes.copy())
        return Gathered(
            LABELS, [family, histogram, one_counter("things_total", "Things.", 7),
                     one_gauge("unknown_gauge", "Nobody knows.", None), counter("no_total", "")]
        )  # fmt: skip

    endpoint.show("one", source)
    found = await scrape(endpoint.start("127.0.0.1:0"))
    assert found.get("a_gauge", who='quo"te', cluster="c") == 1.5
    assert found.get("things_total") == 7
    assert found.kinds["things_total"] == "counter"
    assert len(found.rows("a_gauge")) == 1
    assert not found.rows("unknown_gauge")
    assert not any("no" in name.split("_") for name in found.names())
    assert [found.get("a_size_bucket", le=le) for le in ("1.0", "10.0", "+Inf")] == [2, 3, 4]
    assert (found.get("a_size_count"), found.get("a_size_sum")) == (4, 104.5)
    assert found.get("process_resident_memory_bytes")


async def test_prometheus_own_format_is_spoken_to_those_who_ask_for_it(
    endpoint: MetricsEndpoint,
) -> None:
    async def source() -> Gathered:
        return Gathered(LABELS, [one_counter("things_total", "Things.", 7)])

    endpoint.show("one", source)
    address = endpoint.start("127.0.0.1:0")
    text, kind = await asyncio.to_thread(
        fetch, address, accept="application/openmetrics-text;version=1.0.0"
    )
    assert kind.startswith("application/openmetrics-text")
    samples = {one.name: one.value for each in parse_openmetrics(text) for one in each.samples}  # type: ignore[no-untyped-call]
    assert samples["things_total"] == 7


async def test_a_source_that_is_hidden_is_asked_no_more(endpoint: MetricsEndpoint) -> None:
    async def source() -> Gathered:
        return Gathered(LABELS, [one_gauge("it", "", 1)])

    address = endpoint.start("127.0.0.1:0")
    assert "it" not in (await scrape(address)).names()
    endpoint.show("one", source)
    assert "it" in (await scrape(address)).names()
    endpoint.hide("one")
    endpoint.hide("one")
    assert "it" not in (await scrape(address)).names()


async def test_scrapes_at_the_same_time_share_one_page_and_the_next_gets_a_new_one(
    endpoint: MetricsEndpoint,
) -> None:
    gathered = 0

    async def source() -> Gathered:
        nonlocal gathered
        gathered += 1
        await asyncio.sleep(0.05)
        return Gathered(LABELS, [one_gauge("it", "", gathered)])

    endpoint.show("one", source)
    address = endpoint.start("127.0.0.1:0")
    found = await asyncio.gather(*(scrape(address) for _ in range(5)))
    assert gathered < 5
    assert {each.get("it") for each in found} <= {1, 2}
    assert (await scrape(address)).get("it") == gathered


async def test_a_page_that_took_long_answers_for_three_times_as_long() -> None:
    clock = ManualClock()
    endpoint = MetricsEndpoint(clock=clock)
    gathered = 0

    async def source() -> Gathered:
        nonlocal gathered
        gathered += 1
        clock.advance_ms(1_000)
        return Gathered(LABELS, [one_gauge("it", "", gathered)])

    endpoint.show("one", source)
    address = endpoint.start("127.0.0.1:0")
    assert (await scrape(address)).get("it") == 1
    clock.advance_ms(2_900)
    assert (await scrape(address)).get("it") == 1
    clock.advance_ms(200)
    assert (await scrape(address)).get("it") == 2
    await endpoint.stop()


async def test_pages_of_different_forms_share_one_rest() -> None:
    clock = ManualClock()
    rests_s: list[float] = []

    def rest(seconds: float) -> None:
        rests_s.append(seconds)
        clock.advance_ms(round(seconds * 1_000))

    endpoint = MetricsEndpoint(clock=clock, rest=rest)

    async def source() -> Gathered:
        clock.advance_ms(1_000)
        return Gathered(LABELS, [one_gauge("it", "", 1)])

    endpoint.show("one", source)
    endpoint.start("127.0.0.1:0")
    for accept in ("text/plain", "application/openmetrics-text", "text/plain"):
        await asyncio.to_thread(endpoint.answer, accept)
        clock.advance_ms(500)
    assert rests_s == [2.5, 2.5]
    await endpoint.stop()


async def test_a_page_is_bounded_in_bytes_counts_what_it_leaves_out_and_keeps_the_first() -> None:
    large, small = gauge("large", "", "name", "topic"), gauge("small", "", "name")
    latencies = HistogramFamily("latency", "", ("name",))
    histogram = Histogram((1.0, 2.0))
    for number in range(40_000):
        large.add(number, f"group-{number}-{'x' * 80}", "t" * 100)
    for number in range(3_000):
        latencies.add(histogram.copy(), f"{number}-{'y' * 200}")
    small.add(1, "one")

    async def source() -> Gathered:
        return Gathered({**LABELS, "node_id": "n" * 40}, [large, small, latencies])

    endpoint = MetricsEndpoint()
    endpoint.show("one", source)
    text, _ = await asyncio.to_thread(fetch, endpoint.start("127.0.0.1:0"))
    await endpoint.stop()
    assert PAGE_BYTES_MAX * 0.8 < len(text) < PAGE_BYTES_MAX * 1.2
    assert "\nsmall{" in text
    kept = text.count("\nlarge{")
    assert f"group-{kept - 1}-" in text
    assert f"group-{kept}-" not in text
    left_out = f'aerobee_metrics_left_out_series{{cluster="c",metric="large",node_id="{"n" * 40}"}}'
    assert f"{left_out} {40_000 - kept}" in text.replace(".0\n", "\n")
    assert 'metric="latency"' in text
    assert 'metric="small"' not in text


async def test_a_loop_that_does_not_answer_makes_the_scrape_fail_and_no_more(
    endpoint: MetricsEndpoint,
) -> None:
    async def source() -> Gathered:
        await asyncio.sleep(3_600)
        raise AssertionError

    address = endpoint.start("127.0.0.1:0")
    endpoint.show("one", source)
    status, said = await asyncio.to_thread(status_of, address)
    assert (status, said) == (503, "the event loop did not answer within 0.5 s\n")
    endpoint.hide("one")
    assert (await asyncio.to_thread(status_of, address))[0] == 200


async def test_a_bug_of_a_source_is_logged_and_answered(
    endpoint: MetricsEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    async def source() -> Gathered:
        raise ZeroDivisionError("bug")

    endpoint.show("one", source)
    address = endpoint.start("127.0.0.1:0")
    assert (await asyncio.to_thread(status_of, address))[0] == 500
    assert "metrics failed because of a bug" in caplog.text


async def test_there_is_nothing_but_metrics_and_they_are_only_read(
    endpoint: MetricsEndpoint,
) -> None:
    address = endpoint.start("127.0.0.1:0")
    assert (await asyncio.to_thread(status_of, address, "/"))[0] == 404
    assert (await asyncio.to_thread(status_of, address, "/metrics/../etc/passwd"))[0] == 404
    assert (await asyncio.to_thread(status_of, address, "/metrics?name=x"))[0] == 200
    assert (await asyncio.to_thread(status_of, address, "/metrics", "POST"))[0] == 501


async def test_the_loop_runs_on_while_many_lines_are_written() -> None:
    """Writing takes the interpreter for short pieces only: the loop's thread gets its turns."""
    family = gauge("it", "", "name")
    for number in range(20_000):
        family.add(number, str(number))

    async def source() -> Gathered:
        return Gathered(LABELS, [family])

    endpoint = MetricsEndpoint()
    endpoint.show("one", source)
    address = endpoint.start("127.0.0.1:0")
    task = asyncio.create_task(asyncio.to_thread(fetch, address))
    late_s = []
    while not task.done():
        began_s = time.perf_counter()
        await asyncio.sleep(0.001)
        late_s.append(time.perf_counter() - began_s - 0.001)
    text, _ = await task
    await endpoint.stop()
    assert text.count("\nit{") == 20_000
    assert len(late_s) > 50
    assert sorted(late_s)[len(late_s) // 2] < 0.004, "below the interpreter's switch interval"


async def test_clients_that_drip_their_requests_do_not_keep_others_out() -> None:
    """However often they send a byte: a request has one deadline for all of it."""
    endpoint = MetricsEndpoint(connection_timeout_s=0.5)
    address = endpoint.start("127.0.0.1:0")
    host, _, port = address.rpartition(":")
    dripping = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS_MAX)]
    try:
        began_s = time.monotonic()
        open_ones = set(dripping)
        while open_ones and time.monotonic() < began_s + 5:
            for one in list(open_ones):
                try:
                    one.send(b"G")
                except OSError:
                    open_ones.discard(one)
            await asyncio.sleep(0.1)
        assert not open_ones
        assert (await asyncio.to_thread(status_of, address))[0] == 200
    finally:
        for one in dripping:
            one.close()
        await endpoint.stop()


async def test_a_busy_port_is_told_in_one_sentence(endpoint: MetricsEndpoint) -> None:
    address = endpoint.start("127.0.0.1:0")
    with pytest.raises(InvalidArgument, match=r"cannot listen on 127\.0\.0\.1:\d+ for metrics"):
        async with serve_metrics(address):
            pass


async def test_without_an_address_nothing_is_served() -> None:
    async with serve_metrics("") as nowhere:
        nowhere.hide("anything")


async def test_the_port_is_free_again_afterwards() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with serve_metrics(address):
        assert (await asyncio.to_thread(status_of, address))[0] == 200
    with pytest.raises(urllib.error.URLError):
        await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/metrics", None, 5)


@pytest.mark.parametrize("listen", ["5557", ":5557", "host:", "host:99999", "a b:1"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(InvalidArgument, match=r"metrics\.listen"):
        MetricsConfig(listen=listen)
