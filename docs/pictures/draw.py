"""Draws the pictures of the documentation: python docs/pictures/draw.py

A picture is boxes on a grid and arrows between them. It carries its own background, light or dark
as the reader's system is, so it can be read on any page. After a change here, run this and commit
the pictures; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMN, ROW = 20, 20
"""Pixels of a step of the grid."""
LINE = 17
"""Pixels of a line of text."""

STYLE = """
  .ground { fill: #ffffff; }
  .box { fill: #f2f5f8; stroke: #5b7083; stroke-width: 1.2; }
  .main { fill: #dcebf7; stroke: #2f6ea5; }
  .side { fill: #f9efdc; stroke: #a5762f; }
  .area { fill: none; stroke: #93a4b3; stroke-dasharray: 5 4; }
  .title { font-weight: 600; }
  text { fill: #1d2a35; font: 13px system-ui, sans-serif; }
  .small { fill: #445462; font-size: 12px; }
  .arrow { fill: none; stroke: #445462; stroke-width: 1.4; }
  .tip { fill: #445462; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1b2129; }
    .box { fill: #2a333d; stroke: #8fa3b5; }
    .main { fill: #1f3d57; stroke: #6fb0e6; }
    .side { fill: #47391f; stroke: #dfb267; }
    .area { stroke: #66788a; }
    text { fill: #e8eef3; }
    .small { fill: #b9c6d1; }
    .arrow { stroke: #b9c6d1; }
    .tip { fill: #b9c6d1; }
  }
"""


@dataclass(frozen=True)
class Box:
    """A box on the grid: left, top, width and height in steps; the first line is its title."""

    left: int
    top: int
    width: int
    height: int
    lines: tuple[str, ...]
    kind: str = ""
    """`main`, `side`, `area`, or a plain box."""

    def svg(self) -> str:
        x, y = self.left * COLUMN, self.top * ROW
        width, height = self.width * COLUMN, self.height * ROW
        middle = x + width / 2
        first = y + 18 if self.kind == "area" else y + height / 2 - (len(self.lines) - 1) * LINE / 2
        found = [
            f'<rect class="box {self.kind}" x="{x}" y="{y}" width="{width}" height="{height}" '
            'rx="6"/>'
        ]
        for number, line in enumerate(self.lines):
            style = "small" if number else "title"
            found.append(
                f'<text class="{style}" x="{middle:g}" y="{first + number * LINE + 4:g}" '
                f'text-anchor="middle">{escape(line)}</text>'
            )
        return "\n".join(found)


@dataclass(frozen=True)
class Arrow:
    """A line through points of the grid, with a tip at its end, and a word beside it."""

    points: tuple[tuple[float, float], ...]
    word: str = ""
    at: tuple[float, float] | None = None
    """Where the word begins."""
    both: bool = False
    """A tip at each end."""

    def svg(self) -> str:
        path = " ".join(f"{x * COLUMN:g},{y * ROW:g}" for x, y in self.points)
        start = ' marker-start="url(#tip)"' if self.both else ""
        found = [f'<polyline class="arrow" points="{path}" marker-end="url(#tip)"{start}/>']
        if self.at is not None:
            x, y = self.at
            found.append(
                f'<text class="small" x="{x * COLUMN:g}" y="{y * ROW:g}">{escape(self.word)}</text>'
            )
        return "\n".join(found)


@dataclass(frozen=True)
class Picture:
    """All that is on a picture."""

    name: str
    says: str
    """For readers who do not see it."""
    width: int
    height: int
    parts: list[Box | Arrow] = field(default_factory=list)

    def svg(self) -> str:
        width, height = self.width * COLUMN, self.height * ROW
        body = "\n".join(part.svg() for part in self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(self.says)}">\n'
            f"<style>{STYLE}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
            'markerHeight="8" orient="auto-start-reverse">'
            '<path class="tip" d="M0,1 L10,5 L0,9 z"/></marker></defs>\n'
            f'<rect class="ground" width="{width}" height="{height}" rx="8"/>\n{body}\n</svg>\n'
        )


ARCHITECTURE = Picture(
    "architecture",
    "Producers and consumers ask nameservers where a topic is, and talk to the masters of broker "
    "groups. Masters copy their logs to slaves. Nameservers keep the cluster in etcd.",
    44,
    25,
    [
        Box(15, 1, 14, 3, ("etcd", "brokers, elections, topics, users"), "main"),
        Box(14, 7, 16, 3, ("nameservers, any number", "keep nothing themselves; port 8081")),
        Arrow(((22, 7), (22, 4)), "leases, watches", (22.5, 5.7), both=True),
        Box(1, 7, 8, 3, ("producers", "Python, or Apache's")),
        Box(35, 7, 8, 3, ("consumers", "Python, or Apache's")),
        Arrow(((9, 8.5), (14, 8.5)), "routes", (10.3, 8.1)),
        Arrow(((35, 8.5), (30, 8.5)), "routes", (31.3, 8.1)),
        Box(9, 13, 12, 11, ("broker group broker-a",), "area"),
        Box(23, 13, 12, 11, ("broker group broker-b",), "area"),
        Box(10, 15, 10, 3, ("master", "log, queues, groups"), "main"),
        Box(24, 15, 10, 3, ("master", "log, queues, groups"), "main"),
        Box(10, 20, 4, 3, ("slave",)),
        Box(16, 20, 4, 3, ("slave",)),
        Box(24, 20, 4, 3, ("slave",)),
        Box(30, 20, 4, 3, ("slave",)),
        Arrow(((12, 18), (12, 20)), "the log", (13.6, 19.2)),
        Arrow(((18, 18), (18, 20))),
        Arrow(((26, 18), (26, 20)), "the log", (27.6, 19.2)),
        Arrow(((32, 18), (32, 20))),
        Arrow(((19.5, 15), (19.5, 10)), "registration", (15.6, 11.8)),
        Arrow(((24.5, 15), (24.5, 10)), "heartbeats", (24.9, 11.8)),
        Arrow(((5, 10), (5, 16.5), (10, 16.5)), "send", (5.4, 15.9)),
        Arrow(((34, 16.5), (39, 16.5), (39, 10)), "receive", (36, 15.9)),
    ],
)

MESSAGE = Picture(
    "life-of-a-message",
    "A message is sent, stored, safe, visible, handled and, days later, removed. On the way it may "
    "wait for a time or for its transaction. If handling fails it comes again, and at last it "
    "becomes a dead letter.",
    46,
    19,
    [
        Box(1, 8, 6, 3, ("sent", "by a producer")),
        Box(10, 8, 6, 3, ("stored", "in the log"), "main"),
        Box(19, 8, 7, 3, ("confirmed", "in all logs in sync"), "main"),
        Box(29, 8, 6, 3, ("delivered", "to one member"), "main"),
        Box(38, 8, 7, 3, ("handled", "offset committed"), "main"),
        Arrow(((7, 9.5), (10, 9.5))),
        Arrow(((16, 9.5), (19, 9.5))),
        Arrow(((26, 9.5), (29, 9.5))),
        Arrow(((35, 9.5), (38, 9.5))),
        Box(7, 2, 12, 3, ("waits for its time", "delay, deliver_at; recall ends it"), "side"),
        Box(
            22,
            2,
            14,
            3,
            ("waits for its transaction", "commit delivers it, rollback ends it"),
            "side",
        ),
        Arrow(((12, 8), (12, 5))),
        Arrow(((14.5, 8), (14.5, 6), (25, 6), (25, 5))),
        Arrow(((19, 3.5), (20.5, 3.5), (20.5, 8)), "due", (19, 7.6)),
        Arrow(((29, 5), (29, 7), (24, 7), (24, 8)), "commit", (29.4, 6.9)),
        Box(19, 14, 8, 3, ("sent back", "waits for its back-off"), "side"),
        Box(34, 14, 11, 3, ("dead letter", "listed; resent or dropped"), "side"),
        Arrow(((31, 11), (31, 15.5), (27, 15.5)), "failed", (28, 15.1)),
        Arrow(((22, 14), (22, 11)), "comes again", (17.2, 12.8)),
        Arrow(((33, 11), (33, 15.5), (34, 15.5)), "too often", (33.4, 12.8)),
        Box(1, 14, 12, 3, ("removed", "by age, once all groups have read")),
        Arrow(((11, 11), (11, 14)), "72 hours later", (5.6, 12.8)),
    ],
)

PICTURES = (ARCHITECTURE, MESSAGE)


def main() -> None:
    for picture in PICTURES:
        (HERE / f"{picture.name}.svg").write_text(picture.svg(), "utf-8")


if __name__ == "__main__":
    main()
