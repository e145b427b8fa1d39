"""Tables are searched, sorted and cut on the server, whatever the address asks for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.client_core.offsets import QueueBounds
from aerobee.cluster_view.route import MessageQueue
from aerobee.console.listing import ROWS_PER_PAGE, Column, Listing, listed
from aerobee.console.rates import Rates

COLUMNS: list[Column[tuple[str, int | None]]] = [
    Column("name", "Name", lambda row: row[0]),
    Column("size", "Size", lambda row: row[1], is_number=True),
    Column("note", "Note"),
]


def page(rows: list[tuple[str, int | None]], **query: str) -> Listing[tuple[str, int | None]]:
    return listed(rows, COLUMNS, query, path="/p", text=lambda row: row[0], sort="-size")


def test_what_is_unknown_comes_before_the_largest() -> None:
    assert [row[0] for row in page([("a", 1), ("b", None), ("c", 2)]).rows] == ["b", "c", "a"]


def test_equal_rows_are_in_the_order_of_their_names() -> None:
    assert [row[0] for row in page([("b", 1), ("a", 1)], sort="size").rows] == ["a", "b"]


def test_a_page_has_no_more_rows_than_fit_and_the_last_one_has_the_rest() -> None:
    rows: list[tuple[str, int | None]] = [(f"{number:05}", number) for number in range(10_000)]
    found = page(rows, page="200", sort="name")
    assert (len(found.rows), found.pages, found.first) == (ROWS_PER_PAGE, 200, 9_951)
    assert page(rows, q="0999").total == 11


def test_a_link_keeps_the_search_and_turns_the_order_round() -> None:
    found = page([("a", 1)], q="a&b", sort="-size")
    assert found.sort_link(COLUMNS[1]) == "/p?q=a%26b&sort=size&page=1"
    assert found.sort_link(COLUMNS[0]) == "/p?q=a%26b&sort=name&page=1"


@given(st.dictionaries(st.sampled_from(["q", "sort", "page"]), st.text(max_size=20)))
def test_no_wish_breaks_a_table(query: dict[str, str]) -> None:
    found = page([("a", 1), ("b", None)], **query)
    assert 1 <= found.page <= found.pages
    assert len(found.rows) <= 2


def test_a_rate_is_known_from_the_second_look_on_and_forgotten_after_a_pause() -> None:
    rates, queue = Rates(), MessageQueue("t", "b", 0)

    def look(end: int, now_s: float) -> float | None:
        return rates.look({queue: QueueBounds(0, end, 0)}, now_s)[queue]

    assert look(100, 0.0) is None
    assert look(110, 1.0) is None, "too early to say"
    assert look(150, 5.0) == 10.0
    assert look(150, 1_000.0) is None
