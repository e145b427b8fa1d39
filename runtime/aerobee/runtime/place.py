"""Memory of a known size that is filled from a socket or a file and then given away as bytes.

Python's own ways to fill memory end in a copy: what is read into a bytearray is no `bytes`. So a
batch would be copied once more between the kernel and the code that checks, sends or decodes it.
"""

from __future__ import annotations

from io import BytesIO


class Place:
    """`size` bytes, of which the first `filled` have arrived."""

    __slots__ = ("_memory", "filled", "size", "view")

    def __init__(self, size: int) -> None:
        # The one object of Python that gives its memory away as bytes without copying it.
        self._memory = memory = BytesIO()
        if size:
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
        """All of it, and `view` is gone. It is not copied unless somebody still has a `room`."""
        self.view.release()
        return self._memory.getvalue()
