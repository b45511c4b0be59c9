"""The program ``lastmeter`` as part of the package: ``python -m lastmeter``."""

from __future__ import annotations

import os
import signal
import sys

from . import _lastmeter


def main() -> int:
    """Runs the program with this process's arguments."""
    # The program handles Ctrl-C itself: the first keeps the results so far, the second ends it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault("LASTMETER_PYTHON", sys.executable)
    return _lastmeter.program(["lastmeter", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
