"""The ledger of a graph: where the time of its payloads went, module by module, and what limits it.

The paths are the sinks. Stages are the modules that payloads passed, with wait and service; their means sum to the
mean latency but for what a module held back on purpose (the residual). The resource is the one thread that all
modules share.
"""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graph import Graph, Path

#: A thread that is busy for a larger share of the time is what limits the graph.
BUSY = 0.9
#: A thread that waits for a CPU for a larger share of the time is held up by other programs.
CROWDED = 0.02
#: Seconds by which timeouts may be late: the jitter of film at 24 frames/s on a screen of 60 Hz.
LATE = 0.015
#: Below this share of busy time, nothing on this host limits the graph.
IDLE = 0.5


def ledger(graph: Graph) -> dict[str, Any]:
    """The account as ``lastmeter.ledger/2``: seconds, bytes, bits per second.

    ``lastmeter.Ledger.from_json(json.dumps(graph.ledger()))`` has tables and a page of it.
    """
    duration = max(graph.ends - graph.began, 1e-9)
    busy = {m.name: m.service.total for m in graph.modules.values() if m.service.total > 0}
    total = min(sum(busy.values()), duration)
    paths = [_path(graph, path, duration) for path in graph.paths.values()]
    return {
        "schema": "lastmeter.ledger/2",
        "title": graph.title,
        "duration": duration,
        "paths": paths,
        "resources": [
            {
                "name": "dispatcher",
                "kind": "thread",
                "units": 1,
                "busy": total / duration,
                "idle": 1.0 - total / duration,
                "by_stage": {name: seconds / duration for name, seconds in busy.items()},
                "by_role": {},
            }
        ],
        "counters": [
            {"element": module.name, "name": name, "value": value}
            for module in graph.modules.values()
            for name, value in [("handled", module.handled), *_drops(module.dropped)]
        ],
        "verdict": verdict(graph, total / duration, busy),
        "what_ifs": [],
        "balance": {
            "latency_residual": max(
                (_residual(path) for path in graph.paths.values()), default=0.0
            ),
            "packets_residual": 0,
        },
        "provenance": {
            "version": _version(),
            "experiment": {"name": graph.title, "hash": ""},
            "profiles": [],
            "level": "L0",
            "partial": graph.stopped,
            "host": platform.node(),
        },
        "notes": [lateness_words(graph)],
    }


def _drops(dropped: dict[str, int]) -> list[tuple[str, int]]:
    return [(f"dropped, {reason}", number) for reason, number in sorted(dropped.items())]


def _path(graph: Graph, path: Path, duration: float) -> dict[str, Any]:
    stages = []
    for name in path.order:
        wait, service = path.stages[name]
        module = graph.modules[name]
        stages.append(
            {
                "name": name,
                "resource": "dispatcher",
                "packets": wait.count,
                "bytes": module.bytes,
                "wait": wait.to_dict(),
                "service": service.to_dict(),
                "drops": dict(module.dropped),
            }
        )
    latency = path.latency
    return {
        "name": f"{path.order[0] if path.order else '?'} -> {path.sink}",
        "class": "frames",
        "stages": stages,
        "totals": {
            "delivered": {"packets": path.packets, "bytes": path.bytes},
            "goodput": path.bytes * 8 / duration,
            "latency": {**latency.to_dict(), "max": latency.worst},
        },
    }


def _residual(path: Path) -> float:
    stages = sum(wait.total + service.total for wait, service in path.stages.values())
    return abs(path.latency.total - stages) / max(1, path.packets)


def verdict(graph: Graph, busy: float, by_module: dict[str, float]) -> dict[str, Any]:
    """What limits the graph, in a sentence; nothing, if the thread idles and nothing was dropped."""
    lost = sum(module.dropped["no room"] for module in graph.modules.values())
    if not by_module:
        return {"confidence": "undecided", "words": "nothing was handled"}
    heaviest, seconds = max(by_module.items(), key=lambda item: item[1])
    share = seconds / max(sum(by_module.values()), 1e-12)
    if busy >= BUSY:
        words = (
            f"the dispatcher's thread limits the graph; {heaviest} takes {share:.0%} of its time"
        )
        return {
            "resource": "dispatcher",
            "utilisation": busy,
            "confidence": "high" if lost or busy > 0.97 else "medium",
            "words": words,
        }
    is_late = graph.dispatcher.lateness.quantile(0.99) > LATE
    if (lost or is_late) and graph.kept_waiting >= CROWDED:
        words = (
            f"other programs of this host limit the graph: its thread was busy for {busy:.0%}, and waited "
            f"for a CPU for {graph.kept_waiting:.0%} of the time"
        )
        return {"utilisation": busy, "confidence": "medium", "words": words}
    if lost:
        words = f"{lost} frames found no room though the thread was busy for {busy:.0%}: {heaviest} works in bursts"
        return {"resource": "dispatcher", "utilisation": busy, "confidence": "low", "words": words}
    words = f"nothing here limits the graph: its thread was busy for {busy:.0%}; the source sets the pace"
    return {"utilisation": busy, "confidence": "high" if busy < IDLE else "medium", "words": words}


def lateness_words(graph: Graph) -> str:
    """How late timeouts were, against the 15 ms that film at 24 frames/s on a 60 Hz screen allows."""
    late = graph.dispatcher.lateness
    if not late.count:
        return "No timeouts: the graph ran as fast as its modules."
    return (
        f"{late.count} timeouts, {late.within(0.015):.2%} within 15 ms, p99 {late.quantile(0.99) * 1e3:.1f} ms, "
        f"worst {late.worst * 1e3:.1f} ms."
    )


def _version() -> str:
    from .. import __version__

    return __version__


def table(graph: Graph) -> str:
    """A line a module: frames a second, what one costs, what waited, what was dropped; then the verdict."""
    duration = max(graph.ends or time.perf_counter(), graph.began + 1e-9) - graph.began
    rows = [("module", "handled", "a second", "cost", "p99", "waited", "share", "dropped")]
    for module in graph.modules.values():
        dropped = ", ".join(f"{number} {reason}" for reason, number in module.dropped.items())
        rows.append(
            (
                module.name,
                str(module.handled),
                f"{module.handled / duration:.1f}",
                f"{module.service.mean * 1e3:.2f} ms",
                f"{module.service.quantile(0.99) * 1e3:.2f} ms",
                f"{module.wait.mean * 1e3:.2f} ms",
                f"{module.service.total / duration:.1%}",
                dropped or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if column in (0, 7) else cell.rjust(w)
            for column, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    busy = {m.name: m.service.total for m in graph.modules.values() if m.service.total > 0}
    words = verdict(graph, min(1.0, sum(busy.values()) / duration), busy)["words"]
    return "\n".join([*lines, "", f"Verdict: {words}.", lateness_words(graph)])


def drawing(graph: Graph) -> str:
    """The graph as text: a line for each joint, in order from sources to sinks."""
    lines = []
    for source, sink in graph.joints:
        lines.append(f"  {source} --> {sink}")
    return "\n".join([graph.title, *lines])
