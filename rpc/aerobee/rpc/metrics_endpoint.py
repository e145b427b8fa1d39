"""HTTP GET /metrics, from the process's start to its end.

    HTTP thread -> has `gather` run on the loop -> waits -> writes the text -> answers

Owns: the listening socket, its threads, the current set of sources, and the newest page. Requests
are answered one after another, and those that waited meanwhile get the same page.

Invariant: an HTTP thread touches no state of the loop; what it shows was copied there by
`_on_loop`, the only call that crosses over.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, socket
from typing import Any, NamedTuple

from aerobee.rpc.core.tls import FollowedTls
from aerobee.runtime.clock import Clock, SystemClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.exposition import encode
from aerobee.runtime.metrics.families import Gathered

log = logging.getLogger(__name__)

PATH = "/metrics"
GATHER_TIMEOUT_S = 8.0
"""Below Prometheus's usual ten seconds, so that it receives the reason."""
CONNECTION_TIMEOUT_S = 5.0
"""How long a client may take in total to send its request, and then to read the answer."""
CONNECTIONS_MAX = 8
LONG_S = 0.1
REST = 3
"""A page that took longer than LONG_S answers all scrapes for REST times as long as it took, so
scrapes never take more than a quarter of the process."""

Source = Callable[[], Awaitable[Gathered]]


class _Page(NamedTuple):
    """A page, for those who asked until a time."""

    accept: str
    until_s: float
    answer: tuple[bytes, str]


class MetricsEndpoint:
    """All methods are to be called on the loop."""

    def __init__(
        self,
        *,
        gather_timeout_s: float = GATHER_TIMEOUT_S,
        connection_timeout_s: float = CONNECTION_TIMEOUT_S,
        clock: Clock | None = None,
        rest: Callable[[float], object] | None = None,
    ) -> None:
        """`rest` waits on the HTTP thread for so many seconds."""
        self._clock = SystemClock() if clock is None else clock
        self._rest = threading.Event().wait if rest is None else rest
        self._page: _Page | None = None
        self.connection_timeout_s = connection_timeout_s
        self._gather_timeout_s = gather_timeout_s
        self._sources: dict[str, Source] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self._turn = threading.Lock()

    def show(self, name: str, source: Source) -> None:
        """From now on `source` is awaited on the loop at each scrape; it replaces another one of
        that name."""
        self._sources[name] = source
        self._page = None

    def hide(self, name: str) -> None:
        """The source of that name is no longer used; does nothing if there is none."""
        self._sources.pop(name, None)
        self._page = None

    def start(self, listen: str, tls: FollowedTls | None = None) -> str:
        """Answer from now on, over HTTPS with `tls`; returns host:port.

        Raises:
            InvalidArgument: the address is in use or not of this machine.
        """
        host, _, port = listen.rpartition(":")
        self._loop = asyncio.get_running_loop()
        try:
            self._server = _Server(host.strip("[]"), int(port), self, tls)
        except OSError as error:
            raise InvalidArgument(
                f"cannot listen on {listen} for metrics: {error.strerror or error}; stop the other "
                "process or choose another metrics.listen"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="metrics",
            daemon=True,
        )
        self._thread.start()
        address = f"{host}:{self._server.server_address[1]}"
        log_event(log, "metrics are served", address=address, path=PATH)
        return address

    async def stop(self) -> None:
        """Close the port; running requests may finish."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.get_running_loop().run_in_executor(None, server.shutdown)
            server.server_close()

    async def _gather(self) -> list[Gathered]:
        return [await source() for source in list(self._sources.values())]

    # ------------------------------------------------------------------------------ HTTP thread

    def _on_loop(self) -> list[Gathered]:
        """[HTTP thread] Have everything copied on the loop, and wait for it.

        Raises:
            TimeoutError: the loop is too busy, or is ending.
        """
        loop = self._loop
        if loop is None or not loop.is_running():
            raise TimeoutError("the service is stopping")
        gathering = self._gather()
        try:
            copied = asyncio.run_coroutine_threadsafe(gathering, loop)
        except RuntimeError as error:  # closed in the meantime
            gathering.close()
            raise TimeoutError("the service is stopping") from error
        try:
            return copied.result(self._gather_timeout_s)
        except concurrent.futures.CancelledError as error:
            raise TimeoutError("the service is stopping") from error
        except TimeoutError as error:
            copied.cancel()
            raise TimeoutError(
                f"the event loop did not answer within {self._gather_timeout_s:g} s"
            ) from error

    def answer(self, accept: str) -> tuple[bytes, str]:
        """[HTTP thread] The whole text and its content type. Scrapes at the same time share one
        page; one that wants another form waits while the page rests. Raises TimeoutError."""
        asked_s = self._clock.monotonic_s()
        while True:
            if not self._turn.acquire(timeout=self._gather_timeout_s):
                raise TimeoutError("another scrape is under way")
            try:
                resting_s = self._other_form_rests_s(accept)
                if resting_s == 0:
                    page = self._page
                    if page is None or page.accept != accept or page.until_s < asked_s:
                        page = self._page = self._new_page(accept)
                    return page.answer
            finally:
                self._turn.release()
            self._rest(resting_s)

    def _other_form_rests_s(self, accept: str) -> float:
        """How long the present page still rests, if it is of another form; 0: it does not."""
        page = self._page
        if page is None or page.accept == accept:
            return 0.0
        return max(0.0, page.until_s - self._clock.monotonic_s())

    def _new_page(self, accept: str) -> _Page:
        began_s = self._clock.monotonic_s()
        answer = encode(self._on_loop(), accept)
        ended_s = self._clock.monotonic_s()
        took_s = ended_s - began_s
        until_s = ended_s + (REST * took_s if took_s > LONG_S else 0)
        return _Page(accept, until_s, answer)


@asynccontextmanager
async def serve_metrics(
    listen: str, tls: FollowedTls | None = None
) -> AsyncIterator[MetricsEndpoint]:
    """Answer on `listen` within the block, over HTTPS with `tls`. Without an address nothing is
    served.

    Raises:
        InvalidArgument: the address is in use or not of this machine.
    """
    endpoint = MetricsEndpoint()
    if listen:
        endpoint.start(listen, tls)
    try:
        yield endpoint
    finally:
        await endpoint.stop()


class _Server(ThreadingHTTPServer):
    """At most CONNECTIONS_MAX clients at a time; more are turned away."""

    daemon_threads = True
    allow_reuse_port = False  # two processes must not share one by accident
    # A client that is slow to leave must not keep the process alive.
    block_on_close = False

    def __init__(
        self, host: str, port: int, endpoint: MetricsEndpoint, tls: FollowedTls | None
    ) -> None:
        self._tls = tls
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.endpoint = endpoint
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # The base class resolves this machine's name, which may take long.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def finish_request(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        if self._tls is None or isinstance(request, tuple):
            super().finish_request(request, client_address)
            return
        request.settimeout(self.endpoint.connection_timeout_s)
        # It takes over the caller's socket, so it is closed here.
        with self._tls.newest.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def process_request_thread(
        self, request: socket | tuple[bytes, socket], client_address: Any
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """A client that went away or took too long is not an error of ours."""


class _Request(io.RawIOBase):
    """What a client sends until a deadline, however slowly: a socket timeout alone would start
    again with each byte."""

    def __init__(self, connection: socket, timeout_s: float, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._deadline_s = clock.monotonic_s() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError("the client took too long to ask")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server_version = "aerobee"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        assert isinstance(self.server, _Server)
        self._timeout_s = self.server.endpoint.connection_timeout_s
        self.rfile = io.BufferedReader(_Request(self.connection, self._timeout_s, SystemClock()))

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._send(HTTPStatus.NOT_FOUND, f"only {PATH} is served here\n".encode())
            return
        assert isinstance(self.server, _Server)
        try:
            body, content_type = self.server.endpoint.answer(self.headers.get("Accept", ""))
        except TimeoutError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode())
            return
        except Exception as bug:
            log_event(log, "metrics failed because of a bug", level=logging.ERROR, error=bug)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed; the log says why\n")
            return
        self._send(HTTPStatus.OK, body, content_type)

    def _send(
        self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        self.connection.settimeout(self._timeout_s)  # for everything that is sent
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A scrape every few seconds is not worth a line."""
