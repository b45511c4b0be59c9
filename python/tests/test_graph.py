"""Elements written in Python act as those in Rust do, and mistakes are reported."""

from __future__ import annotations

import pytest

import lastmeter as lm


class Station(lm.Element):
    """A queue and a server with exponential times, like `Graph.server`."""

    def __init__(self, mean: str) -> None:
        self.mean = mean
        self.queue: list[lm.Packet] = []

    def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
        self.queue.append(packet)
        if len(self.queue) == 1:
            cx.arm(after=cx.exponential(self.mean))

    def expire(self, cx: lm.Context, timer: int) -> None:
        cx.send(0, self.queue.pop(0))
        if self.queue:
            cx.arm(after=cx.exponential(self.mean))


def chain(element: lm.Element, duration: str = "10 ms", **source: object) -> lm.Ledger:
    graph = lm.Graph(seed=3)
    path = graph.path("a to b")
    said: dict[str, object] = {"rate": "100 Mbit/s", "size": 1250, **source}
    parts = [graph.source("a", path, **said), graph.add("x", element)]  # type: ignore[arg-type]
    graph.chain(*parts, graph.sink("b"))
    return graph.run(duration)


def test_a_station_in_python_obeys_the_formula() -> None:
    # M/M/1: 1 / (mu - lambda) = 1 / (0.02 - 0.01) us = 100 us.
    ledger = chain(Station("50 us"), "1 s", poisson=True)
    assert ledger.latency == pytest.approx(100e-6, rel=0.1)
    assert ledger.balance["latency_residual"] == 0.0
    assert ledger.stages["stage"] == ["x"]


def test_the_time_that_an_element_holds_packets_is_a_stage() -> None:
    class Late(lm.Element):
        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            cx.send(0, packet, after="3 us")

    ledger = chain(Late())
    [stage] = ledger.stages.rows()
    assert (stage["service_mean"], stage["wait_mean"]) == (3e-6, 0.0)
    assert ledger.latency == 3e-6


def test_an_element_makes_and_delivers_packets() -> None:
    class Double(lm.Element):
        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            copy = cx.make(packet.path, packet.size)
            copy.seq, copy.flow = packet.seq, packet.flow
            cx.send(0, packet)
            cx.deliver(copy)

    ledger = chain(Double(), packets=10)
    [path] = ledger.paths.rows()
    assert (path["offered_packets"], path["delivered_packets"]) == (20, 20)


def test_several_ports_timers_and_delays() -> None:
    class Alternate(lm.Element):
        timers = 2
        heard: list[int] = []

        def start(self, cx: lm.Context) -> None:
            cx.arm(1, at=0.002)
            cx.arm(0, at=0.001)
            cx.arm(0, at=0.003)

        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            cx.send(packet.seq % 2, packet)

        def expire(self, cx: lm.Context, timer: int) -> None:
            self.heard.append(timer)

    graph = lm.Graph()
    path = graph.path("a to b", "split")
    source = graph.source("a", path, rate="12 Mbit/s", size=1500, packets=4)
    split = graph.add("split", Alternate())
    graph.connect(source, split)
    for port in (0, 1):
        link = graph.server(f"line{port}", rate="1 Gbit/s", queue={"drop-tail": {"packets": 5}})
        graph.connect(split, link, output=port, delay="1 ms")
        graph.connect(link, graph.sink(f"sink{port}"))
    ledger = graph.run("20 ms")
    assert Alternate.heard == [1, 0]
    assert ledger.latency == pytest.approx(0.001 + 12e-6)
    assert {"line0", "line1"} == set(ledger.resources["resource"])


@pytest.mark.parametrize("discipline", ["drr", "red", "codel", "priority"])
def test_a_server_has_any_queue(discipline: str) -> None:
    graph = lm.Graph()
    path = graph.path("a to b")
    line = graph.server("line", rate="10 Mbit/s", queue={discipline: {}})
    graph.chain(graph.source("a", path, rate="5 Mbit/s", size=1500), line, graph.sink("b"))
    assert graph.run("100 ms").loss == 0


def test_an_exception_in_a_handler_is_raised_by_run() -> None:
    class Wrong(lm.Element):
        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            raise LookupError("no route")

    with pytest.raises(LookupError, match="no route"):
        chain(Wrong(), "1000 s")


def test_a_packet_has_one_owner() -> None:
    class Twice(lm.Element):
        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            cx.send(0, packet)
            cx.send(0, packet)

    with pytest.raises(RuntimeError, match="already been sent, delivered or dropped"):
        chain(Twice())


def test_a_forgotten_packet_is_reported() -> None:
    class Forgets(lm.Element):
        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            pass

    with pytest.raises(lm.EngineError, match="packets were lost track of"):
        chain(Forgets())


def test_packets_that_are_kept_are_held() -> None:
    class Keeps(lm.Element):
        def __init__(self) -> None:
            self.kept: list[lm.Packet] = []

        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            self.kept.append(packet)

    keeps = Keeps()
    [path] = chain(keeps, packets=7).paths.rows()
    assert (path["held"], len(keeps.kept)) == (7, 7)


def test_a_context_ends_with_its_handler() -> None:
    class Hoards(lm.Element):
        context: lm.Context | None = None

        def receive(self, cx: lm.Context, port: int, packet: lm.Packet) -> None:
            (self.context or cx).send(0, packet)
            self.context = cx

    with pytest.raises(RuntimeError, match="a handler that has returned"):
        chain(Hoards())


def test_wrong_graphs_are_refused() -> None:
    graph = lm.Graph()
    path = graph.path("a to b")
    a, b = graph.source("a", path, rate="1 Mbit/s", size=100), graph.sink("b")
    graph.connect(a, b)
    with pytest.raises(lm.Problems):
        graph.connect(a, b)
    with pytest.raises(lm.Problems, match="there is no element 9"):
        graph.connect(a, 9)
    with pytest.raises(lm.Problems, match="has no unit"):
        graph.source("c", path, rate="10", size=100)
    with pytest.raises(lm.Problems, match="there is no path 7"):
        graph.source("c", 7, rate="1 Mbit/s", size=100)
    with pytest.raises(lm.Problems, match="did you mean `drop-tail`?"):
        graph.server("d", rate="1 Mbit/s", queue={"droptail": {}})
    with pytest.raises(TypeError, match="derive it from `Element`"):
        graph.add("e", object())
    graph.run("1 ms")
    with pytest.raises(RuntimeError, match="has already run"):
        graph.run("1 ms")
