"""Sweeps: many runs of one experiment, on all cores or on a cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from ._lastmeter import Experiment, Plan, Problems, Sweep, run_task
from .network import Network, load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TASK_SECONDS = 0.5
"""Target length of a cluster's task: sending it takes a few milliseconds."""
_FLUSH_SECONDS = 2.0
"""Shortest time between writes of rows."""
_ATTEMPTS = 3
"""A run is given up after losing its machine this many times."""


def sweep(
    experiment: Experiment | Network | str | os.PathLike[str],
    over: Mapping[str, Sequence[Any] | str],
    *,
    design: Literal["grid", "zip", "random", "lhs"] = "grid",
    count: int | None = None,
    seeds: int | None = None,
    until: str | None = None,
    most: int | None = None,
    seed: int | None = None,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    threads: int | None = None,
    cluster: Any = None,
    progress: Callable[[int, int], object] | None = None,
) -> Sweep:
    """Runs an experiment many times, with different values and seeds.

    ``over`` has a key of the experiment and its values: a list, or text as in ``--over KEY=...``
    (``"1 ms..1 s log / 4"``). ``design`` makes points of them: every combination (``grid``), the
    first values together, then the second ones (``zip``), or ``count`` points drawn at
    ``random`` or as a Latin hypercube (``lhs``). Each point is run with ``seeds`` seeds, the same
    ones at all points, and with ``until="goodput 2 %"`` until the 95 % confidence interval of a
    measure is that narrow, at most ``most`` times.

    With ``out``, rows are saved to a Parquet data set while the sweep runs; Ctrl-C keeps them, and
    ``resume=True`` continues. ``cluster`` is the address of a Dask scheduler, ``"local:2"``,
    ``"slurm:8"`` (jobs, by dask-jobqueue), or a Dask client or cluster; the rows are the same.

    >>> import lastmeter as lm
    >>> swept = lm.sweep(lm.load("mm1", set={"duration": "2 ms"}),
    ...                  {"traffic.customers.poisson.rate": ["1 Gbit/s", "4 Gbit/s"]}, seeds=3)
    >>> len(swept.runs), swept.done
    (6, True)
    >>> [point["measures"]["latency"]["count"] for point in swept.to_dict()["points"]]
    [3, 3]
    """
    if isinstance(experiment, Network):
        experiment = experiment.experiment()
    elif not isinstance(experiment, Experiment):
        experiment = load(experiment)
    plan = Plan.make(
        experiment,
        dict(over),
        design=design,
        count=count,
        seeds=seeds,
        until=until,
        most=most,
        seed=seed,
        quick=quick,
    )
    if resume and out is not None and os.path.exists(os.path.join(out, "plan.json")):
        swept = Sweep.open(out)
        if swept.plan.hash != plan.hash:
            error = Problems(f"`{os.fspath(out)}` holds another sweep: {swept.plan!r}")
            error.problems = []
            raise error
    else:
        swept = Sweep.begin(plan, out)
    work(swept, threads=threads, cluster=cluster, progress=progress)
    return swept


def work(
    swept: Sweep,
    *,
    threads: int | None = None,
    cluster: Any = None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Does the rest of a sweep, here or on a cluster."""
    tell = progress if progress is not None else _Line()
    try:
        if cluster is None:
            swept.work(threads=threads, progress=tell)
        else:
            client, closing = connect(cluster)
            try:
                _on_cluster(swept, client, tell)
            finally:
                for one in closing:
                    one.close()
    finally:
        if isinstance(tell, _Line):
            tell.clear()
        swept.conclude()


def connect(cluster: Any) -> tuple[Any, list[Any]]:
    """A Dask client for the ``cluster`` argument, and what to close afterwards."""
    import distributed

    if isinstance(cluster, distributed.Client):
        return cluster, []
    if not isinstance(cluster, str):
        client = distributed.Client(cluster)
        return client, [client]
    kind, _, number = cluster.partition(":")
    if kind == "local" and number.isdigit():
        local = distributed.LocalCluster(
            n_workers=int(number), threads_per_worker=1, dashboard_address=None
        )
        client = distributed.Client(local)
        return client, [client, local]
    if kind == "slurm" and number.isdigit():
        # Queue, project and memory are those of ~/.config/dask/jobqueue.yaml.
        slurm = jobqueue().SLURMCluster()
        slurm.scale(jobs=int(number))
        client = distributed.Client(slurm)
        return client, [client, slurm]
    client = distributed.Client(cluster)
    return client, [client]


def jobqueue() -> Any:
    """The package dask-jobqueue, which on import would install its own Ctrl-C handler."""
    handler = signal.getsignal(signal.SIGINT)
    import dask_jobqueue

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    return dask_jobqueue


def _task(text: str) -> tuple[bytes, float]:
    """The work of a machine in the cluster: returns rows, and how long they took."""
    began = time.perf_counter()
    return run_task(text), time.perf_counter() - began


def _on_cluster(swept: Sweep, client: Any, tell: Callable[[int, int], object]) -> None:
    """Hands out runs in tasks of about half a second; a run whose machine is lost is repeated.

    A row is entered when its task's result is here, and once: the schedule refuses it twice.
    """
    from concurrent.futures import CancelledError

    import distributed

    plan = swept.plan
    size, written = 1, time.monotonic()
    running: dict[Any, list[tuple[int, int]]] = {}
    lost: dict[tuple[int, int], int] = {}
    waiting = distributed.as_completed()
    try:
        while True:
            places = max(1, sum(client.nthreads().values()))
            # Two tasks per slot: when one is done, the next is already there.
            while len(running) < 2 * places:
                runs = swept.take(size)
                if not runs:
                    break
                future = client.submit(_task, plan.task(runs), pure=False)
                running[future] = runs
                waiting.add(future)
            if not running:
                break
            future = next(waiting)
            runs = running.pop(future)
            try:
                rows, seconds = future.result()
            except (CancelledError, distributed.KilledWorker, OSError):
                for run in runs:
                    lost[run] = lost.get(run, 0) + 1
                swept.give_back(runs)
                if max(lost[run] for run in runs) >= _ATTEMPTS:
                    raise
                # Alone, so that a run that kills its machine affects no others.
                size = 1
                continue
            future.release()
            swept.enter(rows)
            if seconds > 0.0:
                fitting = _TASK_SECONDS / (seconds / len(runs))
                size = max(1, min(int(fitting), 2 * size, 1000))
            if time.monotonic() - written > _FLUSH_SECONDS:
                swept.flush()
                written = time.monotonic()
            done, _, expected = swept.progress
            tell(done, expected)
    except BaseException:
        client.cancel(list(running))
        for runs in running.values():
            swept.give_back(runs)
        raise


class _Line:
    """A sweep's progress in one line of the terminal, with the time left."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.first: int | None = None
        self.shown = False

    def __call__(self, done: int, expected: int) -> None:
        if not sys.stderr.isatty():
            return
        if self.first is None:
            self.first = done
        new, passed = done - self.first, time.monotonic() - self.began
        left = f", {(expected - done) * passed / new:.0f} s left" if new > 0 else ""
        sys.stderr.write(f"\r\x1b[K{done} of {expected} runs{left}")
        sys.stderr.flush()
        self.shown = True

    def clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
