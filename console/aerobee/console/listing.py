"""One page of a table: searched, sorted and cut on the server.

Whatever a visitor asks for, a page has at most `ROWS_PER_PAGE` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

ROWS_PER_PAGE: Final = 50
SEARCH_CHARACTERS_MAX: Final = 255

T = TypeVar("T")
SortKey = Callable[[T], Any]
"""None sorts as larger than everything: what is unknown may be the worst."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column."""

    name: str
    title: str
    key: SortKey[T] | None = None
    """None: it cannot be sorted by."""
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """What a page of a table shows."""

    rows: Sequence[T]
    columns: Sequence[Column[T]]
    total: int
    """After the search, on all pages."""
    all_rows: int
    page: int
    pages: int
    sort: str
    is_descending: bool
    search: str
    path: str
    kept: Mapping[str, str]
    """Other parameters of the page's address."""

    @property
    def first(self) -> int:
        return (self.page - 1) * ROWS_PER_PAGE + 1 if self.total else 0

    def link(self, *, page: int = 1, sort: str = "") -> str:
        """The address of another page or order of the same table."""
        wanted = sort or ("-" if self.is_descending else "") + self.sort
        query = {**self.kept, "q": self.search, "sort": wanted, "page": str(page)}
        return f"{self.path}?{urlencode({name: value for name, value in query.items() if value})}"

    def sort_link(self, column: Column[T]) -> str:
        """Sorts by it; in the other direction if it is sorted by it already. Numbers begin with the
        largest."""
        descending = not self.is_descending if column.name == self.sort else column.is_number
        return self.link(sort=("-" if descending else "") + column.name)

    def order_of(self, column: Column[T]) -> str:
        """For `aria-sort`."""
        if column.name != self.sort:
            return "none"
        return "descending" if self.is_descending else "ascending"


def listed(
    rows: Sequence[T],
    columns: Sequence[Column[T]],
    query: Mapping[str, str],
    *,
    path: str,
    text: Callable[[T], str],
    sort: str,
    kept: Mapping[str, str] | None = None,
) -> Listing[T]:
    """The page that `query` asks for, by `q`, `sort` and `page`. `text`: what is searched of a row;
    `sort`: the order without a wish, `-name` for descending. Wishes that make no sense are
    ignored."""
    search = query.get("q", "").strip()[:SEARCH_CHARACTERS_MAX]
    wanted = query.get("sort", "") or sort
    keys = {column.name: column.key for column in columns if column.key is not None}
    if wanted.removeprefix("-") not in keys:
        wanted = sort
    name, is_descending = wanted.removeprefix("-"), wanted.startswith("-")
    key = keys[name]
    folded = search.casefold()
    found = [row for row in rows if folded in text(row).casefold()] if search else list(rows)
    found.sort(key=text)
    found.sort(key=lambda row: _order(key(row)), reverse=is_descending)
    pages = max(1, -(-len(found) // ROWS_PER_PAGE))
    page = min(max(_whole(query.get("page", "")), 1), pages)
    return Listing(
        rows=found[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE],
        columns=columns,
        total=len(found),
        all_rows=len(rows),
        page=page,
        pages=pages,
        sort=name,
        is_descending=is_descending,
        search=search,
        path=path,
        kept=kept or {},
    )


def _order(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value is None else (False, value)


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
