"""Header compression: RFC 7541.

Owns: the static table and, in each decoder, the dynamic table of one direction of one connection.

A decoded field is the table's entry itself, a tuple (name, value, size, kind): a field that a peer
sends by index costs one lookup, and its name and value were checked once, when they arrived as
literals. `kind` says whether a field needs attention: 0 for plain metadata, otherwise bits below. A
block that neither reads nor changes the dynamic table, or is repeated while it is unchanged, is
taken from a small cache.

The encoder keeps no table: its blocks never depend on what was sent before, so that an answer is
encoded once and sent millions of times, in any order, and a peer's decoder may cache it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from aerobee.rpc.core.huffman import HuffmanDecoder, HuffmanError

Field = tuple[bytes, bytes, int, int]
"""Name, value, size as counted by RFC 7541, section 4.1, and kind."""

T = TypeVar("T")

METHOD: Final = 1
SCHEME: Final = 2
PATH: Final = 4
AUTHORITY: Final = 8
STATUS: Final = 16
PSEUDO: Final = METHOD | SCHEME | PATH | AUTHORITY | STATUS
CONTENT_LENGTH: Final = 32
CONTENT_TYPE: Final = 64
TIMEOUT: Final = 128
ENCODING: Final = 256
ACCEPT_ENCODING: Final = 512
TE: Final = 1024
BAD_NAME: Final = 2048
"""What RFC 9113, section 8.2, forbids: capital letters, unknown pseudo-fields, connection-specific
fields."""
BAD_VALUE: Final = 4096
BAD: Final = BAD_NAME | BAD_VALUE

_KINDS: Final = {
    b":method": METHOD,
    b":scheme": SCHEME,
    b":path": PATH,
    b":authority": AUTHORITY,
    b":status": STATUS,
    b"content-length": CONTENT_LENGTH,
    b"content-type": CONTENT_TYPE,
    b"grpc-timeout": TIMEOUT,
    b"grpc-encoding": ENCODING,
    b"grpc-accept-encoding": ACCEPT_ENCODING,
    b"te": TE,
    b"connection": BAD_NAME,
    b"keep-alive": BAD_NAME,
    b"proxy-connection": BAD_NAME,
    b"transfer-encoding": BAD_NAME,
    b"upgrade": BAD_NAME,
}
_NAME_BYTES: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")

_STATIC_TEXT: Final = """
:authority :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https
:status=200 :status=204 :status=206 :status=304 :status=400 :status=404 :status=500
accept-charset accept-encoding=gzip,~deflate accept-language accept-ranges accept
access-control-allow-origin age allow authorization cache-control content-disposition
content-encoding content-language content-length content-location content-range content-type cookie
date etag expect expires from host if-match if-modified-since if-none-match if-range
if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization
range referer refresh retry-after server set-cookie strict-transport-security transfer-encoding
user-agent vary via www-authenticate
"""
ENTRY_OVERHEAD: Final = 32
TABLE_BYTES: Final = 4_096
"""Size of either side's dynamic table unless SETTINGS say otherwise."""
FIRST_DYNAMIC: Final = 62
_INTEGER_SHIFT_MAX: Final = 21
_CONTENT_LENGTH_DIGITS_MAX: Final = 19
"""More than any length; Python refuses to read a number of more than 4,300."""
_NAMES_MAX: Final = 512
_STRINGS_MAX: Final = 2_048
_STRING_BYTES_MAX: Final = 160
_FIELDS_MAX: Final = 2_048
_BLOCKS_MAX: Final = 64
_BLOCK_BYTES_MAX: Final = 512


class HpackError(Exception):
    """The block cannot be decoded, nor can any block after it: COMPRESSION_ERROR."""


class HeaderListTooLarge(Exception):
    """The fields exceed the limit; the table is still in sync, so only this stream fails."""


def kind_of(name: bytes) -> int:
    """What a field's name says about it, whatever the value."""
    kind = _KINDS.get(name)
    if kind is not None:
        return kind
    return 0 if name and _NAME_BYTES.issuperset(name) else BAD_NAME


def _contradicts(kind: int, value: bytes) -> bool:
    if kind == CONTENT_LENGTH:
        return not value.isdigit() or len(value) > _CONTENT_LENGTH_DIGITS_MAX
    return kind == TE and value != b"trailers"


def _static_table() -> tuple[Field, ...]:
    fields = [(b"", b"", 0, BAD_NAME)]  # index 0 is invalid; decoders refuse it before this
    for item in _STATIC_TEXT.split():
        name, _, value = item.replace("~", " ").encode().partition(b"=")
        fields.append((name, value, len(name) + len(value) + ENTRY_OVERHEAD, kind_of(name)))
    return tuple(fields)


STATIC_TABLE: Final = _static_table()


class SharedStrings:
    """What all decoders of a server or channel share: the Huffman automaton, and the most recent
    names, short strings and table fields. Bounded: about 2,048 strings, as many fields of 160
    bytes, and 512 names."""

    __slots__ = ("fields", "huffman", "names", "strings")

    def __init__(self) -> None:
        self.huffman = HuffmanDecoder()
        self.names: dict[bytes, tuple[bytes, int]] = {}
        self.fields: dict[Field, Field] = {}
        self.strings: dict[bytes, bytes] = {}

    def named(self, name: bytes) -> tuple[bytes, int]:
        """The shared copy of the name, and its kind."""
        known = self.names.get(name)
        if known is None:
            known = name, kind_of(name)
            if len(self.names) >= _NAMES_MAX:
                self.names.clear()
            if len(name) <= _STRING_BYTES_MAX:
                self.names[name] = known
        return known

    def kept(self, field: Field) -> Field:
        """The shared copy of the field: most of what clients keep in their tables is the same."""
        known = self.fields.get(field)
        if known is None:
            known = field
            if len(self.fields) >= _FIELDS_MAX:
                self.fields.clear()
            if field[2] <= _STRING_BYTES_MAX:
                self.fields[field] = field
        return known

    def plain(self, coded: bytes) -> bytes:
        """A string that is not in `strings`, where callers look first."""
        try:
            string = self.huffman.decode(coded)
        except HuffmanError as error:
            raise HpackError(str(error)) from None
        if len(self.strings) >= _STRINGS_MAX:
            self.strings.clear()
        if len(coded) <= _STRING_BYTES_MAX:
            self.strings[coded] = string
        return string


class Decoder(Generic[T]):
    """Decodes one direction of a connection. `digest` turns a block's fields into what the caller
    wants, and is called once for blocks that repeat: it must depend on nothing else, and not keep
    the list."""

    __slots__ = (
        "_allowed",
        "_blocks",
        "_digest",
        "_dynamic",
        "_list_bytes_max",
        "_shared",
        "_size",
        "_strings",
        "_table_bytes_max",
    )

    def __init__(
        self,
        shared: SharedStrings,
        digest: Callable[[list[Field]], T],
        *,
        table_bytes: int = TABLE_BYTES,
        list_bytes_max: int = 16_384,
    ) -> None:
        """`table_bytes`: our SETTINGS_HEADER_TABLE_SIZE. `list_bytes_max`: for all fields of one
        block, each counted as in the table."""
        self._shared = shared
        self._strings = shared.strings
        self._digest = digest
        self._dynamic: list[Field] = []  # newest last
        self._size = 0
        self._table_bytes_max = self._allowed = table_bytes
        self._list_bytes_max = list_bytes_max
        self._blocks: dict[bytes, T] = {}

    def __repr__(self) -> str:
        return f"Decoder(table_bytes={self._size}, blocks={len(self._blocks)})"

    def decode(self, block: bytes) -> T:
        """Every block must be decoded, in order, including those of refused streams.

        Raises:
            HpackError: the connection is lost.
            HeaderListTooLarge: the block was decoded, but its fields are too large to be returned.
        """
        known = self._blocks.get(block)
        if known is not None:
            return known
        try:
            fields, is_unchanged = self._fields(block)
        except IndexError:
            raise HpackError("truncated, or an index beyond the table") from None
        made = self._digest(fields)
        if is_unchanged and len(block) <= _BLOCK_BYTES_MAX and len(self._blocks) < _BLOCKS_MAX:
            self._blocks[block] = made
        return made

    def _fields(self, block: bytes) -> tuple[list[Field], bool]:  # noqa: C901 - see below
        """The library's hottest loop: a separate function for each form of a field (section 6)
        would double its cost."""
        dynamic = self._dynamic
        list_bytes_max = self._list_bytes_max
        fields: list[Field] = []
        total = position = 0
        is_unchanged = True
        end = len(block)
        while position < end:
            first = block[position]
            if first >= 0x80 + FIRST_DYNAMIC:  # indexed
                position += 1
                if first == 0xFF:
                    first, position = _integer(block, position, first)
                field = dynamic[0x80 + FIRST_DYNAMIC - 1 - first]
            elif first >= 0x80:
                position += 1
                if first == 0x80:
                    raise HpackError("index 0")
                field = STATIC_TABLE[first - 0x80]
            elif first & 0x40:  # a literal that goes into the table
                field, position = self._literal(block, position, 0x3F)
                field = self._shared.kept(field)
                size = self._size + field[2]
                if size <= self._table_bytes_max:
                    dynamic.append(field)
                    self._size = size
                else:
                    self._evict_for(field)
                is_unchanged = False
            elif first & 0x20:
                if fields:
                    raise HpackError("the table's size changes within a block")
                position = self._resize(block, position)
                is_unchanged = False
                continue
            else:  # a literal that does not
                field, position = self._literal(block, position, 0x0F)
            total += field[2]
            if total <= list_bytes_max:
                fields.append(field)
        if not is_unchanged and self._blocks:
            self._blocks.clear()
        if total > list_bytes_max:
            raise HeaderListTooLarge
        return fields, is_unchanged

    def _literal(self, block: bytes, position: int, mask: int) -> tuple[Field, int]:
        index = block[position] & mask
        position += 1
        if index == mask:
            index, position = _integer(block, position, mask)
        if index == 0:
            name, position = self._string(block, position)
            name, kind = self._shared.named(name)
        else:
            if index >= FIRST_DYNAMIC:
                named = self._dynamic[FIRST_DYNAMIC - 1 - index]
            else:
                named = STATIC_TABLE[index]
            name = named[0]
            kind = named[3] & ~BAD_VALUE
        value, position = self._string(block, position)
        if (
            b"\n" in value
            or b"\r" in value
            or b"\0" in value
            or (kind and _contradicts(kind, value))
        ):
            kind |= BAD_VALUE
        return (name, value, len(name) + len(value) + ENTRY_OVERHEAD, kind), position

    def _string(self, block: bytes, position: int) -> tuple[bytes, int]:
        first = block[position]
        position += 1
        length = first & 0x7F
        if length == 0x7F:
            length, position = _integer(block, position, 0x7F)
        end = position + length
        string = block[position:end]
        if len(string) != length:
            raise HpackError("a string ends beyond its block")
        if first & 0x80:
            string = self._strings.get(string) or self._shared.plain(string)
        return string, end

    def _evict_for(self, field: Field) -> None:
        """Drop the oldest entries until the new one fits; one that is too large empties the
        table."""
        size = self._size + field[2]
        dynamic = self._dynamic
        evicted = 0
        while size > self._table_bytes_max and evicted < len(dynamic):
            size -= dynamic[evicted][2]
            evicted += 1
        del dynamic[:evicted]
        if size > self._table_bytes_max:
            self._size = 0
        else:
            dynamic.append(field)
            self._size = size

    def _resize(self, block: bytes, position: int) -> int:
        size = block[position] & 0x1F
        position += 1
        if size == 0x1F:
            size, position = _integer(block, position, 0x1F)
        if size > self._allowed:
            raise HpackError("a table larger than allowed")
        self._table_bytes_max = size
        while self._size > size:
            self._size -= self._dynamic.pop(0)[2]
        return position


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """The rest of a number that did not fit its prefix (section 5.1): up to 28 bits more."""
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _INTEGER_SHIFT_MAX:
            raise HpackError("a number of more than 28 bits")


# ------------------------------------------------------------------------------------ encoder


def encoded_integer(value: int, mask: int, flags: int) -> bytes:
    """A number after the flags that share its first byte (section 5.1)."""
    if value < mask:
        return bytes((flags | value,))
    encoded = bytearray((flags | mask,))
    value -= mask
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


INDEX_OF_FIELD: Final = {
    (name, value): index for index, (name, value, _, _) in enumerate(STATIC_TABLE) if index
}
INDEX_OF_NAME: Final = {
    STATIC_TABLE[index][0]: index for index in range(len(STATIC_TABLE) - 1, 0, -1)
}
_SENSITIVE: Final = frozenset({b"authorization", b"cookie", b"proxy-authorization"})

NO_TABLE: Final = b"\x20"
"""Begins the first block after a peer has made our table smaller than it was: we use none."""


def encode_field(name: bytes, value: bytes) -> bytes:
    """One field, as a static index or a literal without indexing; secrets are marked so that no
    intermediary may index them (section 7.1.3). Nothing is checked: names must be lowercase."""
    index = INDEX_OF_FIELD.get((name, value))
    if index is not None:
        return encoded_integer(index, 0x7F, 0x80)
    flags = 0x10 if name in _SENSITIVE else 0
    encoded_value = encoded_integer(len(value), 0x7F, 0) + value
    index = INDEX_OF_NAME.get(name)
    if index is not None:
        return encoded_integer(index, 0x0F, flags) + encoded_value
    return bytes((flags,)) + encoded_integer(len(name), 0x7F, 0) + name + encoded_value


def encode(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A whole block."""
    return b"".join([encode_field(name, value) for name, value in fields])
