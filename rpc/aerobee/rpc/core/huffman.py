"""The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B), decoded one byte at a time.

Owns: the code, as the lengths of its words, which is all that a canonical code needs. A decoder
holds an automaton: for each inner node of the code tree, where a byte leads and which symbols it
completes. A row of 256 is filled when a string first reaches it, so a process that reads ordinary
headers holds about forty of the 256 rows.
"""

from __future__ import annotations

from typing import Any, Final

SYMBOLS: Final = 257
END_OF_STRING: Final = 256

_LENGTH_TEXT: Final = """
13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28
6 10 10 12 13 6 8 11 10 10 8 11 8 6 6 6 5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10 13 6 7 7 7 7 7 7 7 7
7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 13 19 13 14 6 15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7
7 7 7 15 11 14 13 28 20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23 24 24 22 23 24 23 23 23 23
21 22 23 22 23 23 24 22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20
22 22 22 23 22 22 23 26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21
21 26 26 28 27 27 27 20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27
28 27 27 27 27 27 26 30
"""
_LENGTHS: Final = tuple(int(length) for length in _LENGTH_TEXT.split())


class HuffmanError(Exception):
    """The bytes are not a string in this code: a symbol that does not exist, or wrong padding."""


def code_words() -> list[tuple[int, int]]:
    """For each symbol, its code word and the word's length in bits: words of equal length are
    consecutive numbers in the order of their symbols."""
    words = [(0, 0)] * SYMBOLS
    code = previous = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(_LENGTHS)):
        code <<= length - previous
        previous = length
        words[symbol] = (code, length)
        code += 1
    return words


class HuffmanDecoder:
    """One automaton for all connections of a server or channel. At most 5 MB if every row was
    reached; it keeps nothing of what it has read."""

    __slots__ = ("_children", "_ends", "_numbers", "_rows")

    def __init__(self) -> None:
        # A node's children by bit: another node's number, or -1 - symbol.
        self._children: list[list[int]] = [[0, 0]]
        for symbol, (code, length) in enumerate(code_words()):
            node = 0
            for bit in range(length - 1, 0, -1):
                child = self._children[node][code >> bit & 1]
                if child == 0:
                    child = len(self._children)
                    self._children.append([0, 0])
                    self._children[node][code >> bit & 1] = child
                node = child
            self._children[node][code & 1] = -1 - symbol
        # Any: a row holds (symbols, row), and mypy has recursive types only through a class, which
        # would be slower to read.
        self._rows: list[list[Any]] = [[None] * 256 for _ in self._children]
        self._numbers = {id(row): number for number, row in enumerate(self._rows)}
        # Where a string may end: after at most seven bits of END_OF_STRING.
        self._ends = {id(self._rows[0])}
        node = 0
        for _ in range(7):
            node = self._children[node][1]
            self._ends.add(id(self._rows[node]))

    def decode(self, data: bytes) -> bytes:
        """Decode a string; costs about 60 ns per byte.

        Raises:
            HuffmanError: the bytes contain END_OF_STRING, or end with anything but up to seven
            ones.
        """
        while True:
            row = self._rows[0]
            symbols: list[bytes] = []
            add = symbols.append
            try:
                for byte in data:
                    ended, row = row[byte]
                    add(ended)
            except TypeError:  # the row is not filled, or the byte leads nowhere
                self._fill(row, data)
                continue
            if id(row) not in self._ends:
                raise HuffmanError("wrong padding")
            return b"".join(symbols)

    def _fill(self, row: list[Any], data: bytes) -> None:
        if any(row):
            raise HuffmanError(f"a string of {len(data)} bytes holds its own end")
        number = self._numbers[id(row)]
        for byte in range(256):
            row[byte] = self._step(number, byte)

    def _step(self, node: int, byte: int) -> tuple[bytes, list[Any]] | None:
        symbols = bytearray()
        for bit in range(7, -1, -1):
            child = self._children[node][byte >> bit & 1]
            if child >= 0:
                node = child
            elif child == -1 - END_OF_STRING:
                return None
            else:
                symbols.append(-1 - child)
                node = 0
        return bytes(symbols), self._rows[node]
