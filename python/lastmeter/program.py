"""The program in a process of its own, for measurements of this machine.

An interpreter and its threads would disturb them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from . import _lastmeter
from ._lastmeter import Ledger, Problems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike


def run_again() -> list[str]:
    """The command that starts a helper process: Python, importing this package from where it is."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import lastmeter"
    return [sys.executable, "-S", "-c", code]


def command(arguments: Sequence[str]) -> tuple[int, str]:
    """Runs the program with these arguments, in a process of its own; returns its exit status (0, or
    1: fell short) and its output. Bad input is an error.

    >>> import lastmeter as lm
    >>> status, text = lm.command(["run", "mm1", "--quick", "--json"])
    >>> lm.Ledger.from_json(text).title
    'M/M/1'
    """
    line = [sys.executable, "-m", "lastmeter", *arguments]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        error = Problems(done.stderr.strip() or f"the program exited with {done.returncode}")
        error.problems = []
        raise error
    return done.returncode, done.stdout


def why(
    *options: str,
    host: str | None = None,
    adapter: str | None = None,
    message: str = "4 KiB",
    packet: str = "14 KiB",
) -> Ledger:
    """Explains a transfer: with ``host`` and ``adapter``, between historic hosts, modelled from their
    profiles; else one on this machine, measured.

    ``options`` are those of ``lastmeter why``: ``why("--mtu", "9000")``.

    >>> import lastmeter as lm
    >>> lm.why(host="hp9000-730", adapter="afterburner").verdict["resource"]
    'receiver.card-to-memory'
    """
    if host is not None or adapter is not None:
        if host is None or adapter is None or options:
            raise TypeError("a modelled transfer requires a host and an adapter, and takes no other options")
        return _lastmeter.historic(host, adapter, message=message, packet=packet)
    _, text = command(["why", "--json", *options])
    # A line each: the first look, then the whole.
    return Ledger.from_json(text.splitlines()[-1])


def live(experiment: str, *options: str) -> Ledger:
    """Runs programs behind a modelled network in real time; the ledger has the certificate.

    >>> import lastmeter as lm
    >>> ledger = lm.live("emulated-link", "--", "ping", "-c", "3", "10.77.0.2") # doctest: +SKIP
    """
    _, text = command(["live", experiment, "--json", *options])
    return Ledger.from_json(text)


def blast(plan: str | PathLike[str], *options: str) -> dict[str, Any]:
    """Sends and counts traffic between hosts, following a plan; start their agents with
    ``lastmeter blast serve``. The result of each flow is in ``flows``.

    >>> import lastmeter as lm
    >>> found = lm.blast("plan.toml")                               # doctest: +SKIP
    >>> [flow["lost"] for flow in found["flows"]]                   # doctest: +SKIP
    [0]
    """
    _, text = command(["blast", "run", str(plan), "--json", *options])
    found: dict[str, Any] = json.loads(text)
    return found


def bench(name: str = "", *, quick: bool = False) -> list[dict[str, Any]]:
    """Runs the benchmarks whose names begin with ``name``.

    >>> import lastmeter as lm
    >>> [found] = lm.bench("wire/ipv4/checksum", quick=True)        # doctest: +SKIP
    """
    _, text = command(["bench", *([name] if name else []), "--json", *(["--quick"] * quick)])
    return [json.loads(line) for line in text.splitlines()]


def dq(*options: str) -> list[dict[str, Any]]:
    """Runs the stress load of distributed queueing on threads; the figures from its backlog cells
    beside the published ones.

    >>> import lastmeter as lm
    >>> found = lm.dq("--quick")                                    # doctest: +SKIP
    """
    _, text = command(["dq", "--json", *options])
    return [json.loads(line) for line in text.splitlines()]


def compare(
    first: Ledger, second: Ledger, names: tuple[str, str] = ("first", "second")
) -> dict[str, Any]:
    """Two ledgers side by side, as ``Ledger.compare``."""
    return first.compare(second, names)
