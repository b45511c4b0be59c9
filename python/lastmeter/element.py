"""Elements that are written in Python, for teaching."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._lastmeter import Context, Packet


class Element:
    """Something with numbered ports that reacts to packets and to its own timers.

    Derive from it and write ``receive``; ``Graph.add`` puts it into a graph. A handler runs to
    completion at one instant; its actions on the context are carried out when it returns.

    >>> import lastmeter as lm
    >>> class Delay(lm.Element):
    ...     '''Holds each packet for a millisecond.'''
    ...     def start(self, cx):
    ...         self.queue = []
    ...     def receive(self, cx, port, packet):
    ...         self.queue.append(packet)
    ...         if len(self.queue) == 1:
    ...             cx.arm(after="1 ms")
    ...     def expire(self, cx, timer):
    ...         cx.send(0, self.queue.pop(0))
    ...         if self.queue:
    ...             cx.arm(after="1 ms")
    >>> graph = lm.Graph()
    >>> path = graph.path("a to b")
    >>> graph.chain(graph.source("a", path, rate="1 Mbit/s", size=125, packets=3),
    ...             graph.add("delay", Delay()), graph.sink("b"))
    >>> ledger = graph.run("1 s")
    >>> ledger.stages["stage"], ledger.latency
    (['delay'], 0.001)
    """

    timers: int = 1
    """Number of timers it uses."""

    def start(self, cx: Context) -> None:
        """Called once, before the first packet."""

    def receive(self, cx: Context, port: int, packet: Packet) -> None:
        """A packet arrived on an input port."""
        raise NotImplementedError(f"{type(self).__name__} receives packets and has no `receive`")

    def expire(self, cx: Context, timer: int) -> None:
        """A timer has expired."""
