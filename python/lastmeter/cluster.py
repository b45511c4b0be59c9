"""Continues the sweep in a folder on a cluster: ``python -m lastmeter.cluster FOLDER ADDRESS``.

``lastmeter sweep ... --out FOLDER --cluster ADDRESS`` calls this.
"""

from __future__ import annotations

import argparse
import json
import sys

from ._lastmeter import Problems, Sweep
from .sweeping import work


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 fell short, 2 bad input."""
    parser = argparse.ArgumentParser(prog="lastmeter.cluster", description=__doc__)
    parser.add_argument("folder", help="the folder of a sweep")
    parser.add_argument("address", help="a Dask scheduler, local:N, or slurm:N")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    said = parser.parse_args(arguments)
    try:
        swept = Sweep.open(said.folder)
        work(swept, cluster=said.address)
    except KeyboardInterrupt:
        pass
    except (Problems, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(swept.to_dict(), indent=2) if said.json else swept)
    _, failed, _ = swept.progress
    return 0 if swept.done and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
