"""The memory of one long message, which is filled as the message arrives.

A connection that can reads from its socket straight into it: a batch is then copied once, by the
kernel, into the memory that is checked and appended.
"""

from __future__ import annotations

from io import BytesIO


class Place:
    """`size` bytes, of which the first `filled` have arrived."""

    __slots__ = ("_memory", "filled", "size", "view")

    def __init__(self, size: int) -> None:
        # The one object of Python that gives its memory away as bytes without copying it.
        self._memory = memory = BytesIO()
        memory.seek(size - 1)
        memory.write(b"\0")
        self.view = memory.getbuffer()
        self.size = size
        self.filled = 0

    def __len__(self) -> int:
        return self.size

    def put(self, data: bytes | memoryview) -> None:
        """What comes next."""
        end = self.filled + len(data)
        self.view[self.filled : end] = data
        self.filled = end

    def room(self, size: int) -> memoryview:
        """The next `size` bytes, to be written by somebody else."""
        return self.view[self.filled : self.filled + size]

    def message(self) -> bytes:
        """All of it. Without a copy unless somebody still has a `room`; `view` is gone."""
        self.view.release()
        return self._memory.getvalue()
