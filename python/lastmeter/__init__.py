"""Accounts for the whole path from one application to another, hosts included.

>>> import lastmeter as lm
>>> ledger = lm.load("first-path", set={"duration": "1 s"}).run().ledger
>>> ledger.verdict["resource"]
'bob.cpu'

Numbers are in SI base units: seconds, bits per second, bytes. Text has its unit.
"""

from . import _lastmeter
from ._lastmeter import (
    Context,
    EngineError,
    Experiment,
    Graph,
    Ledger,
    Packet,
    Plan,
    Problems,
    Reproduction,
    Run,
    Sweep,
    Table,
    __version__,
    calibrate,
    experiments,
    kinds,
    kinds_text,
    lookup,
    repro,
    schema,
)
from .element import Element
from .network import Network, load, parse
from .program import bench, blast, command, compare, dq, live, run_again, why
from .sweeping import sweep

# Measurements run in helper processes, which import this package again.
_lastmeter.started_by(run_again())

__all__ = [
    "Context",
    "Element",
    "EngineError",
    "Experiment",
    "Graph",
    "Ledger",
    "Network",
    "Packet",
    "Plan",
    "Problems",
    "Reproduction",
    "Run",
    "Sweep",
    "Table",
    "__version__",
    "bench",
    "blast",
    "calibrate",
    "command",
    "compare",
    "dq",
    "experiments",
    "kinds",
    "kinds_text",
    "live",
    "load",
    "lookup",
    "parse",
    "repro",
    "schema",
    "sweep",
    "why",
]
