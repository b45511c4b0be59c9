"""Networks built in Python, equivalent to an experiment file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._lastmeter import Experiment, to_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._lastmeter import Run


def load(
    name: str | os.PathLike[str], *, set: Mapping[str, Any] | None = None, seed: int | None = None
) -> Experiment:
    """Reads an experiment: a file, a folder with an ``experiment.toml``, or a bundled one by name.

    ``set`` overrides values as ``--set`` does: text is taken as written.

    >>> import lastmeter as lm
    >>> lm.load("mm1", set={"traffic.customers.poisson.rate": "1 Gbit/s"}).title
    'M/M/1'
    >>> lm.load("mm2")
    Traceback (most recent call last):
        ...
    lastmeter.Problems: there is no file or bundled experiment `mm2`: did you mean `mm1`?
    """
    return Experiment.load(name, set=dict(set or {}), seed=seed)


def parse(
    text: str,
    *,
    name: str = "experiment",
    folder: str | os.PathLike[str] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Experiment:
    """Reads the text of an experiment file; captures are looked for in ``folder``."""
    return Experiment.parse(text, name=name, folder=folder, set=dict(set or {}), seed=seed)


class Network:
    """A network under construction: hosts, routers and links, and the traffic through them.

    Kinds and parameters are named as in experiment files (``kinds`` lists them all); where a
    parameter has a dash, write an underscore.

    >>> import lastmeter as lm
    >>> network = lm.Network(duration="100 ms")
    >>> network.host("alice").router("r").host("bob")
    <Network: 3 nodes, 0 links, 0 traffic>
    >>> network.link("alice", "r", "bob", rate="10 Mbit/s", queue={"drop-tail": {"packets": 5}})
    <Network: 3 nodes, 1 links, 0 traffic>
    >>> network.traffic("stream", "alice", "bob", constant={"rate": "12 Mbit/s", "size": "1500 B"})
    <Network: 3 nodes, 1 links, 1 traffic>
    >>> network.run(what_ifs=False).ledger.drops["reason"]
    ['full']
    """

    def __init__(
        self, *, duration: str, seed: int = 1, title: str = "network", question: str = ""
    ) -> None:
        self._head: dict[str, Any] = {"title": title, "question": question}
        self._head |= {"duration": duration, "seed": seed}
        self._nodes: dict[str, dict[str, Any]] = {}
        self._links: list[dict[str, Any]] = []
        self._traffic: list[dict[str, Any]] = []

    def node(self, name: str, kind: str, *, count: int | None = None, **parameters: Any) -> Network:
        """Adds a node of any kind: ``node("s", "station", service={"exponential": "1 us"})``."""
        if name in self._nodes:
            raise ValueError(f"a node `{name}` exists already")
        self._nodes[name] = {kind: _named(parameters)}
        if count is not None:
            self._nodes[name]["count"] = count
        return self

    def host(self, name: str, *, count: int | None = None, **parameters: Any) -> Network:
        """Adds a host, optionally with a ``profile`` and an ``adapter``."""
        return self.node(name, "host", count=count, **parameters)

    def router(self, name: str, *, count: int | None = None, **parameters: Any) -> Network:
        """Adds a router."""
        return self.node(name, "router", count=count, **parameters)

    def link(self, *between: str, **parameters: Any) -> Network:
        """Links nodes; more than two form a chain of equal links."""
        self._links.append({"between": list(between), **_named(parameters)})
        return self

    def traffic(self, name: str, source: str, target: str, /, **parameters: Any) -> Network:
        """Adds traffic: ``traffic("stream", "a", "b", poisson={"rate": ..., "size": ...})``."""
        ends = {"name": name, "from": source, "to": target}
        self._traffic.append({**ends, **_named(parameters)})
        return self

    @property
    def toml(self) -> str:
        """The experiment as the text of a file, for ``lastmeter run``."""
        lines = [f"{key} = {to_toml(value)}" for key, value in self._head.items()]
        lines += ["", "[nodes]"]
        lines += [f"{to_toml(name)} = {to_toml(node)}" for name, node in self._nodes.items()]
        for key, tables in (("links", self._links), ("traffic", self._traffic)):
            for table in tables:
                lines += ["", f"[[{key}]]"]
                lines += [f"{name} = {to_toml(value)}" for name, value in table.items()]
        return "\n".join(lines) + "\n"

    def experiment(self) -> Experiment:
        """The experiment, checked."""
        return Experiment.parse(self.toml, name=str(self._head["title"]))

    def run(
        self,
        *,
        what_ifs: bool = True,
        shuffle_ties: int = 0,
        threads: int | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Run:
        """Runs it, as ``Experiment.run``."""
        return self.experiment().run(
            what_ifs=what_ifs, shuffle_ties=shuffle_ties, threads=threads, progress=progress
        )

    def __repr__(self) -> str:
        counts = (len(self._nodes), len(self._links), len(self._traffic))
        return "<Network: {} nodes, {} links, {} traffic>".format(*counts)


def _named(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in parameters.items()}
