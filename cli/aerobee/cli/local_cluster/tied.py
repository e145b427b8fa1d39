"""Start a program that cannot outlive its parent; run by path, before anything else is imported.

    python -I -S tied.py PARENT_PID PROGRAM [ARGUMENT ...]

Linux sends this process a signal when its parent ends, even by kill -9; the setting survives exec.
SIGTERM, not SIGKILL, so that a broker whose supervisor was killed still closes its store cleanly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Tie this process to its parent, then become the program."""
    parent_pid, program = int(argv[1]), argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # The parent may have ended before the setting took effect.
    if os.getppid() != parent_pid:
        raise SystemExit("the parent process has ended")
    try:
        os.execv(program[0], program)
    except OSError as error:
        raise SystemExit(f"cannot run {program[0]}: {error.strerror}") from None


if __name__ == "__main__":
    main(sys.argv)
