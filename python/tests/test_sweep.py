"""Sweeps: the same rows on threads, on a cluster, after interruptions; none lost, none twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import distributed
import polars as pl
import pyarrow.dataset
import pytest

import lastmeter as lm
from lastmeter.cluster import main as cluster_main
from lastmeter.sweeping import jobqueue

RATE = "traffic.customers.poisson.rate"


def rows(swept: lm.Sweep) -> list[Any]:
    return list(swept.runs.rows())


def short(duration: str = "1 ms") -> lm.Experiment:
    return lm.load("mm1", set={"duration": duration})


def test_a_grid_has_all_combinations_and_typed_columns() -> None:
    swept = lm.sweep(short(), {RATE: ["1 Gbit/s", "4 Gbit/s"], "duration": "1 ms..2 ms / 3"})
    runs = pl.DataFrame(swept.runs)
    assert runs.height == 6
    assert runs["duration"].to_list() == [0.001, 0.0015, 0.002] * 2
    assert runs[RATE].unique().sort().to_list() == [1e9, 4e9]
    assert pl.DataFrame(swept.paths).height == 6


def test_designs() -> None:
    over = {RATE: "1 Gbit/s..7 Gbit/s", "duration": "1 ms..2 ms"}
    assert len(lm.sweep(short(), over, design="lhs", count=5).runs) == 5
    assert len(lm.sweep(short(), over, design="random", count=4).runs) == 4
    both = {RATE: ["1 Gbit/s", "2 Gbit/s"], "duration": ["1 ms", "2 ms"]}
    assert len(lm.sweep(short(), both, design="zip").runs) == 2
    for wrong in ({"design": "lhs"}, {"design": "cube"}, {"until": "goodput"}, {}):
        with pytest.raises(lm.Problems):
            lm.sweep(short(), over, **wrong)  # type: ignore[arg-type]


def test_any_number_of_threads_gives_the_same_rows() -> None:
    over = {RATE: ["1 Gbit/s", "4 Gbit/s", "7 Gbit/s"]}
    one, two = (lm.sweep(short(), over, until="latency 10 %", threads=n) for n in (1, 2))
    assert rows(one) == rows(two)
    assert one.to_dict() == two.to_dict()


def test_an_interrupted_sweep_is_resumed(tmp_path: Path) -> None:
    over = {RATE: "1 Gbit/s..7 Gbit/s / 40"}

    def leave(done: int, expected: int) -> None:
        assert expected == 40
        if done >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lm.sweep(short("400 ms"), over, out=tmp_path, progress=leave)
    left = lm.Sweep.open(tmp_path)
    done, failed, expected = left.progress
    assert 5 <= done < 40 and failed == 0 and expected == 40
    # No other sweep may use the folder meanwhile.
    with pytest.raises(lm.Problems, match="another process"):
        lm.Sweep.open(tmp_path)
    del left
    whole = lm.sweep(short("400 ms"), over, out=tmp_path, resume=True)
    assert rows(whole) == rows(lm.sweep(short("400 ms"), over))
    kept = pyarrow.dataset.dataset(tmp_path / "runs").to_table()
    assert sorted(kept["point"].to_pylist()) == list(range(40))
    del whole
    with pytest.raises(lm.Problems, match="another sweep"):
        lm.sweep(short("30 ms"), over, out=tmp_path, resume=True)
    with pytest.raises(lm.Problems, match="holds a sweep already"):
        lm.sweep(short("400 ms"), over, out=tmp_path)


def test_a_row_is_entered_once(tmp_path: Path) -> None:
    plan = lm.Plan.make(short(), {RATE: ["1 Gbit/s", "2 Gbit/s"]})
    swept = lm.Sweep.begin(plan, tmp_path)
    runs = swept.take(5)
    assert runs == [(0, 0), (1, 0)]
    task = plan.task(runs[1:])
    found = lm._lastmeter.run_task(task)
    assert swept.enter(found) == 1
    with pytest.raises(lm.Problems, match="appears twice"):
        swept.enter(found)
    swept.give_back(runs[:1])
    assert swept.take(1) == [(0, 0)] and not swept.done
    other = json.loads(task) | {"version": "0.0.0"}
    with pytest.raises(lm.Problems, match="this machine has lastmeter"):
        lm._lastmeter.run_task(json.dumps(other))


def test_one_run_of_a_sweep_can_be_inspected() -> None:
    swept = lm.sweep(short(), {RATE: ["1 Gbit/s", "2 Gbit/s"]}, seeds=2)
    row = next(row for row in rows(swept) if (row["point"], row["replicate"]) == (1, 1))
    ledger = swept.plan.experiment(1, 1).run(what_ifs=False).ledger
    assert (ledger.goodput, ledger.latency) == (row["goodput"], row["latency"])


def test_a_cluster_that_loses_a_worker_loses_no_run(tmp_path: Path) -> None:
    over = {RATE: "1 Gbit/s..7 Gbit/s / 250"}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as two, distributed.Client(two) as client:
        killed: list[int] = []

        def kill(done: int, expected: int) -> None:
            if done >= expected // 2 and not killed:
                pids = client.run(os.getpid)
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        swept = lm.sweep(
            short("5 ms"), over, seeds=4, out=tmp_path, cluster=client, progress=kill
        )
    assert killed and swept.done
    assert swept.progress == (1000, 0, 1000)
    assert rows(swept) == rows(lm.sweep(short("5 ms"), over, seeds=4))
    kept = pyarrow.dataset.dataset(tmp_path / "runs").to_table()
    pairs = list(zip(kept["point"].to_pylist(), kept["replicate"].to_pylist(), strict=True))
    assert len(pairs) == len(set(pairs)) == 1000
    paths = pyarrow.dataset.dataset(tmp_path / "paths").to_table()
    assert paths.num_rows == 1000


def test_workers_are_started_as_by_slurm() -> None:
    """What dask-jobqueue does for SLURM, with jobs that are processes here."""
    handler = signal.getsignal(signal.SIGINT)
    jobqueue()
    import dask_jobqueue.local

    assert signal.getsignal(signal.SIGINT) is handler
    with dask_jobqueue.local.LocalCluster(
        cores=1, processes=1, memory="500MB", scheduler_options={"dashboard_address": None}
    ) as jobs:
        jobs.scale(jobs=1)
        swept = lm.sweep(short(), {RATE: "1 Gbit/s..7 Gbit/s / 5"}, cluster=jobs)
        assert swept.progress == (5, 0, 5)


def test_the_program_resumes_a_folder_on_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = lm.Plan.make(short(), {RATE: ["1 Gbit/s", "2 Gbit/s"]})
    lm.Sweep.begin(plan, tmp_path)
    assert cluster_main([str(tmp_path), "local:1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] is True
    assert cluster_main([str(tmp_path / "nothing"), "local:1"]) == 2
    line = [sys.executable, "-m", "lastmeter", "sweep", "mm1", "--set", "duration=1 ms"]
    line += ["--over", f"{RATE}=1 Gbit/s,2 Gbit/s", "--cluster", "local:1"]
    done = subprocess.run([*line, "--out", str(tmp_path / "other")], capture_output=True, text=True)
    assert (done.returncode, "2 runs of 2 points" in done.stdout) == (0, True), done.stderr


def test_ctrl_c_keeps_the_results_of_a_cluster(tmp_path: Path) -> None:
    def interrupt(done: int, expected: int) -> None:
        if done >= 10:
            threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(0.5)

    over = {RATE: "1 Gbit/s..7 Gbit/s / 200"}
    with pytest.raises(KeyboardInterrupt):
        lm.sweep(short("20 ms"), over, out=tmp_path, cluster="local:2", progress=interrupt)
    done, _, _ = lm.Sweep.open(tmp_path).progress
    assert 10 <= done < 200


def test_the_examples_of_sweeps_run(tmp_path: Path) -> None:
    examples = Path(__file__).parent.parent.parent / "examples" / "sweeps"
    line = [sys.executable, str(examples / "livelock.py"), str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "best at" in done.stdout and (tmp_path / "plan.json").is_file()
