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
from array import array
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .dispatcher import Dispatcher
from .payload import Payload, Visit, kind_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

#: Payloads that an input holds unless its module says otherwise.
ROOM = 2
#: Latencies kept for quantiles; beyond this number every second one is left out.
SAMPLES = 4_000


class GraphError(ValueError):
    """A graph that cannot be: the message says where and what would be right."""


def waited_for_cpu() -> float:
    """Seconds for which this thread has waited for a CPU since it began; 0 where Linux does not tell."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass
class Times:
    """Sum, number and sample of times in seconds."""

    total: float = 0.0
    count: int = 0
    worst: float = 0.0
    sample: array[float] = field(default_factory=lambda: array("d"), repr=False)
    _step: int = 1

    def enter(self, seconds: float) -> None:
        """Enters one."""
        self.total += seconds
        if seconds > self.worst:
            self.worst = seconds
        if self.count % self._step == 0:
            self.sample.append(seconds)
            if len(self.sample) > SAMPLES:
                del self.sample[1::2]
                self._step *= 2
        self.count += 1

    @property
    def mean(self) -> float:
        """The mean."""
        return self.total / max(1, self.count)

    def quantile(self, share: float) -> float:
        """The time that this share does not exceed."""
        if not self.sample:
            return 0.0
        ranked = sorted(self.sample)
        return ranked[min(int(share * len(ranked)), len(ranked) - 1)]

    def to_dict(self) -> dict[str, float]:
        """As ledgers have it."""
        return {"mean": self.mean, "p50": self.quantile(0.5), "p99": self.quantile(0.99)}


@dataclass
class Link:
    """From an output of ``maker`` to an input of ``module``."""

    maker: Module
    module: Module
    port: str
    room: int
    waiting: deque[tuple[float, Payload]] = field(default_factory=deque)
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
        self.wait = Times()
        self.service = Times()
        self._graph: Graph | None = None
        self._now: Callable[[], float] = time.perf_counter
        self._turn: Callable[[], None] = self._out_of_graph
        self._awake = False
        self._inputs: dict[str, Link] = {}
        self._outputs: dict[str, list[Link]] = {name: [] for name in self.outputs}
        self._current: tuple[Payload | None, float, float] | None = None

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
    def dispatcher(self) -> Dispatcher:
        """What calls the module."""
        return self.graph.dispatcher

    def send(self, port: str, payload: Payload) -> None:
        """Hands a payload to all that the output feeds."""
        now = self._now()
        if self._current is not None:
            origin, wait, began = self._current
            before = None
            if origin is not None:
                payload.born, before = origin.born, origin.visits
            payload.visits = Visit(self.name, wait, now - began, before)
        self.sent[port] += 1
        for link in self._outputs[port]:
            link.waiting.append((now, payload))
            self.graph.wake(link.module)

    def drop(self, reason: str) -> None:
        """Counts a payload that goes no further."""
        self.dropped[reason] += 1

    def has_room(self) -> bool:
        """Whether all outputs take another payload."""
        for links in self._outputs.values():
            for link in links:
                if len(link.waiting) >= link.room:
                    return False
        return True

    # What the graph calls.

    def step(self) -> bool:
        """Handles one payload if there is one and room for what comes of it."""
        link = self._next_input()
        if link is None or not self.has_room():
            return False
        entered, payload = link.waiting.popleft()
        self.graph.free(link)
        began = self._now()
        waited = began - entered
        self.wait.enter(waited)
        self.bytes += payload.size
        self._current = (payload, waited, began)
        try:
            self.process(link.port, payload)
        finally:
            self._current = None
            self.service.enter(self._now() - began)
        self.handled += 1
        return True

    def timed(self, call: Callable[[], T]) -> T:
        """What ``call`` returns; its time counts as the module's, and what it sends comes of no payload."""
        began = self._now()
        self._current = (None, 0.0, began)
        try:
            return call()
        finally:
            self._current = None
            self.service.enter(self._now() - began)

    def _next_input(self) -> Link | None:
        # The earliest of the stream first, so that sound and captions keep beside the pictures.
        first = None
        for link in self._inputs.values():
            if link.waiting and (
                first is None or link.waiting[0][1].time < first.waiting[0][1].time
            ):
                first = link
        return first

    def _out_of_graph(self) -> None:
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

    def step(self) -> bool:
        if self._next is None or self.pace or self.live or not self.has_room():
            return False
        self._emit(self._now())
        return True

    def _advance(self) -> None:
        self._next = self.timed(self._pull)
        if self._next is LATER:
            self._next = None
        elif self._next is None:
            self._done = True
            self.graph.ended(self)
        elif self.pace:
            self.dispatcher.timeout(self._due(self._next[1]), self._expire)
        elif self.live:
            self.dispatcher.defer(self._expire)
        else:
            self.graph.wake(self)

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
            self._emit(self._due(payload) if self.pace else payload.born or self._now())
        elif self.live:
            self.drop("no room")
            self._advance()
        else:
            self.graph.when_free(self, self._expire)

    def _emit(self, born: float) -> None:
        assert self._next is not None
        port, payload = self._next
        payload.born = born
        held = self._now() - born
        payload.visits = Visit(self.name, 0.0, held, None)
        self.wait.enter(held)
        self.handled += 1
        self.bytes += payload.size
        self.send(port, payload)
        self._advance()

    @property
    def drained(self) -> bool:
        return self._done


@dataclass
class Path:
    """What a sink received from one source: how long it took, and where that time went."""

    sink: str
    packets: int = 0
    bytes: int = 0
    latency: Times = field(default_factory=Times)
    stages: dict[str, tuple[Times, Times]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)


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
        module._turn = partial(self._step, module)
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
        maker._outputs[out].append(link)
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

    def wake(self, module: Module) -> None:
        """The module may have something to do."""
        if not module._awake:
            module._awake = True
            self.dispatcher.defer(module._turn)

    def _step(self, module: Module) -> None:
        module._awake = False
        if self.stopped:
            return
        if module.step():
            self.wake(module)
        self._end_if_drained(module)

    def free(self, link: Link) -> None:
        """An input has room again: whoever feeds it may go on."""
        again = self._waiting.pop(link.maker.name, None)
        if again is not None:
            self.dispatcher.defer(again)
        self.wake(link.maker)

    def when_free(self, module: Module, callback: Any) -> None:
        """Calls back when an output of the module has room again."""
        self._waiting[module.name] = callback

    def ended(self, module: Module) -> None:
        """The module will send no more: what it feeds ends when it is drained."""
        self._finished.add(module.name)
        for links in module._outputs.values():
            for link in links:
                link.ended = True
                self.wake(link.module)

    def _end_if_drained(self, module: Module) -> None:
        if isinstance(module, Source) or not module.drained or module.name in self._finished:
            return
        module.timed(module.finish)
        self.ended(module)

    def arrived(self, sink: Module, payload: Payload) -> None:
        """A sink calls this for each payload that has reached its end."""
        path = self.paths.get(sink.name)
        if path is None:
            path = self.paths[sink.name] = Path(sink.name)
        path.packets += 1
        path.bytes += payload.size
        now = sink._now()
        path.latency.enter(now - payload.born)
        visit = payload.visits
        if sink._current is not None:
            _, wait, began = sink._current
            visit = Visit(sink.name, wait, now - began, visit)
        if not path.order:
            path.order = visit.names() if visit else []
        while visit is not None:
            times = path.stages.get(visit.module)
            if times is None:
                times = path.stages[visit.module] = (Times(), Times())
            times[0].enter(visit.wait)
            times[1].enter(visit.service)
            visit = visit.before

    def ledger(self) -> dict[str, Any]:
        """The account of the run, as ``lastmeter.ledger/2``."""
        return account.ledger(self)


from . import account  # noqa: E402  (they need what is above)
