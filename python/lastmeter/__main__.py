"""The program ``lastmeter``, as the package brings it: ``python -m lastmeter``."""

from __future__ import annotations

import os
import signal
import sys

from . import _lastmeter


def main() -> int:
    """Runs the program with this process's arguments."""
    # The program's own handling of Ctrl-C: the first keeps what there is, the second ends it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault("LASTMETER_PYTHON", sys.executable)
    return _lastmeter.program(["lastmeter", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
