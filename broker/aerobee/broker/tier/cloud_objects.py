"""An object store of a cloud, through `obstore`, the extra `aerobee[tier]`.

Owns: the translation of its errors. Only FileNotFoundError is an answer about an object; an error
of any other kind leaves open what happened. obstore repeats requests only for a short time, because
the caller repeats the whole step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from aerobee.runtime.errors import InvalidArgument, TierUnavailable
from aerobee.store.tier.objects import CHUNK_BYTES, ObjectInfo, ObjectMissing

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_UPLOADS_AT_ONCE: Final = 4
_CLIENT: Final[Any] = {"timeout": "30s", "connect_timeout": "5s"}
_RETRIES: Final[Any] = {"max_retries": 1, "retry_timeout": timedelta(seconds=10)}

Raised = list[BaseException]


class CloudObjects:
    """[any thread] `Objects` in `place` below a URL."""

    def __init__(self, store: ObjectStore, text: str) -> None:
        import obstore

        self._obstore = obstore
        self._store = store
        self._text = text

    @classmethod
    def at(cls, url: str, place: str) -> CloudObjects:
        """Raises InvalidArgument: obstore is not installed, or does not know the URL."""
        try:
            from obstore.store import from_url
        except ImportError:
            raise InvalidArgument(
                f"the tier {url} needs obstore: pip install 'aerobee[tier]'"
            ) from None
        whole = f"{url.rstrip('/')}/{place}"
        try:
            store = from_url(whole, client_options=_CLIENT, retry_config=_RETRIES)
        except Exception as error:
            raise InvalidArgument(f"tier.url cannot be used: {_first_line(error)}") from error
        return cls(store, whole)

    def __str__(self) -> str:
        return self._text

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        raised: Raised = []
        with self._translated(f"writing {name}", raised):
            self._obstore.put(
                self._store,
                name,
                _noting(chunks, raised),
                chunk_size=2 * CHUNK_BYTES,
                max_concurrency=_UPLOADS_AT_ONCE,
            )

    def create(self, name: str, data: bytes) -> bool:
        with self._translated(f"creating {name}"):
            try:
                self._obstore.put(self._store, name, data, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def read(self, name: str, start: int, size: int) -> bytes:
        with self._translated(f"reading {name}"):
            try:
                wanted: Any = {"range": (start, start + size)}
                return bytes(self._obstore.get(self._store, name, options=wanted).bytes())
            except FileNotFoundError:
                raise ObjectMissing(name) from None
            except (self._obstore.exceptions.BaseError, OSError, ValueError):
                # A range after the end is an error like any other.
                if start >= self._obstore.head(self._store, name)["size"]:
                    return b""
                raise

    def list(self, prefix: str) -> list[ObjectInfo]:
        with self._translated(f"listing {prefix}"):
            found = [
                ObjectInfo(str(each["path"]), int(each["size"]))
                for page in self._obstore.list(self._store, prefix.rstrip("/"))
                for each in page
            ]
        return sorted(found, key=lambda each: each.name)

    def remove(self, name: str) -> None:
        with self._translated(f"removing {name}"), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, name)

    @contextlib.contextmanager
    def _translated(self, doing: str, raised: Raised | None = None) -> Iterator[None]:
        try:
            yield
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            if raised:
                raise raised[0] from None
            raise TierUnavailable(
                f"{doing} in the tier {self._text} failed: {_first_line(error)}; check the URL, "
                "its credentials and the network"
            ) from error


def _noting(chunks: Iterable[bytes], raised: Raised) -> Iterator[bytes]:
    """The same; what they raise is kept, because it comes back as an error of another kind."""
    try:
        yield from chunks
    except BaseException as error:
        raised.append(error)
        raise


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
