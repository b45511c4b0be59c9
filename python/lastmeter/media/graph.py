"""Modules joined into a graph, through which payloads flow in the band of the stream.

    source --> [input|module|outputs] --> [input|module]

An output may feed several inputs, an input takes one output. An input holds a few payloads (:attr:`Module.room`);
a module runs when an input has one and all its outputs have room, so a slow module holds up what is before it:
a file waits, a camera drops (counted, ``no room``). Nothing is copied between modules.

Each module counts what it handled, what it dropped and why, the time that it took and how long payloads waited
before it. :meth:`Graph.ledger` is the account of all that in the form of every other ledger.

Rows: A-73.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .dispatcher import Dispatcher
from .payload import Payload, Visit, kind_name, passed
from .times import NOTED, Times, waited_for_cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

#: Payloads that an input holds unless its module says otherwise.
ROOM = 2


class GraphError(ValueError):
    """A graph that cannot be: the message says where and what would be right."""


@dataclass
class Link:
    """From an output of ``maker`` to an input of ``module``."""

    maker: Module
    module: Module
    port: str
    room: int
    #: Since when each waits, and its bytes.
    waiting: deque[tuple[float, int, Payload]] = field(default_factory=deque)
    ended: bool = False

    @property
    def full(self) -> bool:
        """Whether it takes no more."""
        return len(self.waiting) >= self.room


class Module:
    """Something with typed ports; subclasses override :meth:`process`.

    >>> class Brighter(Module):
    ...     inputs = {"in": Frame}
    ...     outputs = {"out": Frame}
    ...     def process(self, port, payload):
    ...         self.send("out", payload.derive(image=np.clip(payload.image, 40, 255)))
    """

    inputs: ClassVar[Mapping[str, type[Payload]]] = {}
    outputs: ClassVar[Mapping[str, type[Payload]]] = {}
    #: Payloads that each input holds.
    room: ClassVar[int] = ROOM

    def __init__(self) -> None:
        self.name = type(self).__name__.lower()
        self.handled = 0
        self.bytes = 0
        self.sent: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._wait = Times()
        self._service = Times()
        #: Wait and service of what has not been added up.
        self._noted: list[tuple[float | None, float | None]] = []
        self._graph: Graph | None = None
        self._now: Callable[[], float] = time.perf_counter
        self._defer: Callable[[Callable[[], object]], None] = self._out_of_graph
        self._call_next: Callable[[Callable[[], object]], None] = self._out_of_graph
        self._awake = False
        self._inputs: dict[str, Link] = {}
        self._outputs: dict[str, list[Link]] = {name: [] for name in self.outputs}
        #: All of them, and the input if there is but one.
        self._fed: list[Link] = []
        self._only: Link | None = None
        self._current: tuple[Payload | None, int, float, float] | None = None

    # What subclasses override.

    def begin(self) -> None:
        """Called before the first payload."""

    def process(self, port: str, payload: Payload) -> None:
        """Takes a payload that came in at a port."""
        raise NotImplementedError

    def finish(self) -> None:
        """Called when all inputs have ended: the last chance to send."""

    def close(self) -> None:
        """Called at the end, however it came: frees files."""

    # What subclasses call.

    @property
    def graph(self) -> Graph:
        """The graph that the module belongs to."""
        if self._graph is None:
            raise GraphError(f"{self.name} is in no graph")
        return self._graph

    @property
    def wait(self) -> Times:
        """How long payloads waited before it."""
        self._add_up()
        return self._wait

    @property
    def service(self) -> Times:
        """How long it worked."""
        self._add_up()
        return self._service

    @property
    def dispatcher(self) -> Dispatcher:
        """What calls the module."""
        return self.graph.dispatcher

    def send(self, port: str, payload: Payload) -> None:
        """Hands a payload to all that the output feeds."""
        now = self._now()
        if self._current is not None:
            origin, _, wait, began = self._current
            before = None
            if origin is not None:
                payload.born, before = origin.born, origin.visits
            payload.visits = (self.name, wait, now - began, before)
        self._hand(port, payload, payload.size, now)

    def _hand(self, port: str, payload: Payload, size: int, now: float) -> None:
        self.sent[port] += 1
        for link in self._outputs[port]:
            link.waiting.append((now, size, payload))
            module = link.module
            if not module._awake:
                module._awake = True
                self._call_next(module._turn)

    def drop(self, reason: str) -> None:
        """Counts a payload that goes no further."""
        self.dropped[reason] += 1

    def has_room(self) -> bool:
        """Whether all outputs take another payload."""
        for link in self._fed:
            if len(link.waiting) >= link.room:
                return False
        return True

    # What the graph calls.

    def wake(self) -> None:
        """It may have something to do."""
        if not self._awake:
            self._awake = True
            self._defer(self._turn)

    def _turn(self) -> None:
        """Handles one payload if there is one and room for what comes of it."""
        self._awake = False
        link, graph = self._only or self._earliest(), self._graph
        if graph is None or graph.stopped:
            return
        if link is not None and link.waiting:
            for fed in self._fed:
                if len(fed.waiting) >= fed.room:
                    return  # Who makes room calls again.
            entered, size, payload = link.waiting.popleft()
            if len(link.waiting) == link.room - 1:
                graph.free(link)
            began = self._now()
            self._current = (payload, size, began - entered, began)
            try:
                self.process(link.port, payload)
            finally:
                self._current = None
                self._noted.append((began - entered, self._now() - began))
            self.handled += 1
            self.bytes += size
            if len(self._noted) >= NOTED:
                self._add_up()
            if link.waiting or self._only is None:
                self.wake()
                return
        if link is None or link.ended:
            graph.end_if_drained(self)

    def timed(self, call: Callable[[], T]) -> T:
        """What ``call`` returns; its time counts as the module's, and what it sends comes of no payload."""
        began = self._now()
        self._current = (None, 0, 0.0, began)
        try:
            return call()
        finally:
            self._current = None
            self._noted.append((None, self._now() - began))
            if len(self._noted) >= NOTED:
                self._add_up()

    def _add_up(self) -> None:
        noted, self._noted = self._noted, []
        self._wait.add(wait for wait, _ in noted if wait is not None)
        self._service.add(service for _, service in noted if service is not None)

    def _earliest(self) -> Link | None:
        # The earliest of the stream first, so that sound and captions keep beside the pictures.
        first = None
        for link in self._inputs.values():
            if link.waiting and (
                first is None or link.waiting[0][2].time < first.waiting[0][2].time
            ):
                first = link
        return first

    def _out_of_graph(self, _: Callable[[], object]) -> None:
        raise GraphError(f"{self.name} is in no graph")

    @property
    def drained(self) -> bool:
        """Whether nothing more will come in."""
        for link in self._inputs.values():
            if link.waiting or not link.ended:
                return False
        return True


#: What a source has while the next payload is not there yet; it calls `_advance` again when it is.
LATER: tuple[str, Payload] = ("", Payload(0.0))


class Source(Module):
    """Something that payloads begin at; subclasses override :meth:`items`.

    ``pace`` is how fast the stream's time passes: 1 as on a clock, 2 twice as fast, 0 as fast as what follows
    takes it. A ``live`` source does not wait for room: it drops, as a camera does; without a pace it sends as they come.
    """

    live: ClassVar[bool] = False

    def __init__(self, pace: float = 0.0) -> None:
        super().__init__()
        self.pace = pace
        self._items: Iterator[tuple[str, Payload]] | None = None
        self._next: tuple[str, Payload] | None = None
        self._began = 0.0
        self._done = False

    def items(self) -> Iterator[tuple[str, Payload]]:
        """The output and the payload, in order of the stream's time."""
        raise NotImplementedError

    def process(self, port: str, payload: Payload) -> None:
        raise GraphError(f"{self.name} is a source and takes no input")

    def open(self) -> None:
        """Begins: called once by the graph."""
        self._items = self.items()
        self._began = self.dispatcher.now()
        self._advance()

    def _turn(self) -> None:
        self._awake = False
        if self._next is None or self.pace or self.live or self.graph.stopped:
            return
        for fed in self._fed:
            if len(fed.waiting) >= fed.room:
                return
        self._emit(None)

    def _advance(self, began: float | None = None) -> None:
        if began is None:
            began = self._now()
        self._current = (None, 0, 0.0, began)
        item = self._pull()
        self._current = None
        self._noted.append((None, self._now() - began))
        self._next = None if item is LATER else item
        if item is None:
            self._done = True
            self.graph.ended(self)
        elif item is LATER:
            return
        elif self.pace:
            self.dispatcher.timeout(self._due(item[1]), self._expire)
        elif self.live:
            self.dispatcher.defer(self._expire)
        else:
            self.wake()

    def _pull(self) -> tuple[str, Payload] | None:
        assert self._items is not None
        return next(self._items, None)

    def _due(self, payload: Payload) -> float:
        return self._began + payload.time / self.pace

    def _expire(self) -> None:
        if self._next is None or self.graph.stopped:
            return
        if self.has_room():
            payload = self._next[1]
            self._emit(self._due(payload) if self.pace else payload.born or None)
        elif self.live:
            self.drop("no room")
            self._advance()
        else:
            self.graph.when_free(self, self._expire)

    def _emit(self, born: float | None) -> None:
        assert self._next is not None
        port, payload = self._next
        now = self._now()
        payload.born = now if born is None else born
        held = now - payload.born
        payload.visits = (self.name, 0.0, held, None)
        self._noted.append((held, None))
        if len(self._noted) >= NOTED:
            self._add_up()
        size = payload.size
        self.handled += 1
        self.bytes += size
        self._hand(port, payload, size, now)
        self._advance(now)

    @property
    def drained(self) -> bool:
        return self._done


class Path:
    """What a sink received: how long it took, and where that time went."""

    def __init__(self, sink: str) -> None:
        self.sink = sink
        self.packets = 0
        self.bytes = 0
        self._latency = Times()
        self._stages: dict[str, tuple[Times, Times]] = {}
        self._order: list[str] = []
        #: Latencies and visits of what has not been added up.
        self.noted: list[tuple[float, Visit | None]] = []

    @property
    def latency(self) -> Times:
        """From the source to the sink."""
        self.add_up()
        return self._latency

    @property
    def stages(self) -> dict[str, tuple[Times, Times]]:
        """Wait and service in each module that payloads passed."""
        self.add_up()
        return self._stages

    @property
    def order(self) -> list[str]:
        """The modules that the first payload passed."""
        self.add_up()
        return self._order

    def add_up(self) -> None:
        """Adds up what was noted."""
        noted, self.noted = self.noted, []
        self._latency.add(latency for latency, _ in noted)
        parts: dict[str, tuple[list[float], list[float]]] = {}
        for _, visits in noted:
            if not self._order:
                self._order = passed(visits)
            while visits is not None:
                name, wait, service, visits = visits
                waits, services = parts.setdefault(name, ([], []))
                waits.append(wait)
                services.append(service)
        for name, (waits, services) in parts.items():
            times = self._stages.setdefault(name, (Times(), Times()))
            times[0].add(waits)
            times[1].add(services)


class Graph:
    """Modules and what joins them.

    >>> graph = Graph()
    >>> source = graph.add("pattern", modules.Pattern(frames=3, width=64, height=48))
    >>> sink = graph.add("count", modules.Collect())
    >>> graph.join("pattern.out", "count.in")
    >>> graph.run()
    >>> [frame.number for frame in sink.payloads]
    [0, 1, 2]
    """

    def __init__(self, dispatcher: Dispatcher | None = None, title: str = "graph") -> None:
        self.dispatcher = dispatcher or Dispatcher()
        self.title = title
        self.modules: dict[str, Module] = {}
        self.joints: list[tuple[str, str]] = []
        self.paths: dict[str, Path] = {}
        self.stopped = False
        self.failed: BaseException | None = None
        self.began = 0.0
        self.ends = 0.0
        #: The share of the run for which the dispatcher's thread could have run, but other threads had the CPUs.
        self.kept_waiting = 0.0
        self._finished: set[str] = set()
        self._waiting: dict[str, Any] = {}

    def add(self, name: str, module: Module) -> Any:
        """Adds a module under a name, and returns it."""
        if name in self.modules:
            raise GraphError(f"two modules are called `{name}`")
        if not name or "." in name:
            raise GraphError(
                f"`{name}` is no name for a module: it must not be empty nor have a dot"
            )
        module.name = name
        module._graph = self
        module._now = self.dispatcher.clock.now
        module._defer = self.dispatcher.defer
        module._call_next = self.dispatcher.next
        self.modules[name] = module
        return module

    def join(self, source: str, sink: str) -> None:
        """Joins an output, ``module.port``, to an input; the port may be left out where there is one."""
        maker, out = self._port(source, "outputs")
        taker, into = self._port(sink, "inputs")
        given, wanted = maker.outputs[out], taker.inputs[into]
        if not issubclass(given, wanted):
            raise GraphError(
                f"`{maker.name}.{out}` gives {kind_name(given)}, but `{taker.name}.{into}` takes {kind_name(wanted)}"
            )
        if into in taker._inputs:
            raise GraphError(f"`{taker.name}.{into}` is fed twice")
        link = Link(maker, taker, into, taker.room)
        taker._inputs[into] = link
        taker._only = link if len(taker.inputs) == 1 else None
        maker._outputs[out].append(link)
        maker._fed.append(link)
        self.joints.append((f"{maker.name}.{out}", f"{taker.name}.{into}"))

    def _port(self, text: str, side: str) -> tuple[Module, str]:
        name, _, port = text.partition(".")
        module = self.modules.get(name)
        if module is None:
            raise GraphError(
                f"no module is called `{name}`; there are {', '.join(self.modules) or 'none'}"
            )
        ports: Mapping[str, type[Payload]] = getattr(module, side)
        if not port and len(ports) == 1:
            port = next(iter(ports))
        if port not in ports:
            known = ", ".join(f"{name}.{port}" for port in ports) or "none"
            raise GraphError(f"`{text}` is none of the {side} of `{name}`: {known}")
        return module, port

    # Running.

    def run(self, seconds: float | None = None) -> None:
        """Runs until all sources have ended, or for so long; a second call goes on from nothing new."""
        for module in self.modules.values():
            missing = [port for port in module.inputs if port not in module._inputs]
            if missing and not getattr(module, "optional", False):
                raise GraphError(f"`{module.name}.{missing[0]}` is fed by nothing")
        self.began = self.dispatcher.now()
        began, waited = time.perf_counter(), waited_for_cpu()
        limit = None
        if seconds is not None:
            limit = self.dispatcher.timeout(self.began + seconds, self.stop)
        try:
            for module in self.modules.values():
                module.begin()
            for module in self.modules.values():
                if isinstance(module, Source):
                    module.open()
            self.dispatcher.run()
        finally:
            if limit is not None:
                limit.cancel()
            self.ends = self.dispatcher.now()
            lasted = max(time.perf_counter() - began, 1e-9)
            self.kept_waiting = min(1.0, (waited_for_cpu() - waited) / lasted)
            for module in self.modules.values():
                module.close()
        if self.failed is not None:
            raise self.failed

    def stop(self) -> None:
        """Ends the run; modules are closed."""
        self.stopped = True
        self.dispatcher.stop()

    def free(self, link: Link) -> None:
        """An input that was full has room again: whoever feeds it may go on."""
        again = self._waiting.pop(link.maker.name, None)
        if again is not None:
            self.dispatcher.defer(again)
        link.maker.wake()

    def when_free(self, module: Module, callback: Any) -> None:
        """Calls back when an output of the module has room again."""
        self._waiting[module.name] = callback

    def ended(self, module: Module) -> None:
        """The module will send no more: what it feeds ends when it is drained."""
        self._finished.add(module.name)
        for links in module._outputs.values():
            for link in links:
                link.ended = True
                link.module.wake()

    def end_if_drained(self, module: Module) -> None:
        """Ends the module if nothing more will come in."""
        if not module.drained or isinstance(module, Source) or module.name in self._finished:
            return
        module.timed(module.finish)
        self.ended(module)

    def arrived(self, sink: Module, payload: Payload) -> None:
        """A sink calls this for each payload that has reached its end."""
        path = self.paths.get(sink.name)
        if path is None:
            path = self.paths[sink.name] = Path(sink.name)
        now, visits = sink._now(), payload.visits
        current = sink._current
        if current is None or current[0] is not payload:
            size = payload.size
        else:
            _, size, wait, began = current
            visits = (sink.name, wait, now - began, visits)
        path.packets += 1
        path.bytes += size
        path.noted.append((now - payload.born, visits))
        if len(path.noted) >= NOTED:
            path.add_up()

    def ledger(self) -> dict[str, Any]:
        """The account of the run, as ``lastmeter.ledger/2``."""
        return account.ledger(self)


from . import account  # noqa: E402  (they need what is above)
