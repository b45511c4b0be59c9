"""Experiments, ledgers and tables."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import lastmeter as lm


@pytest.fixture(scope="module")
def ledger() -> lm.Ledger:
    return lm.load("first-path", set={"duration": "1 s"}).run().ledger


def test_a_run_gives_a_balanced_ledger_with_a_verdict(ledger: lm.Ledger) -> None:
    assert ledger.verdict["resource"] == "bob.cpu"
    assert ledger.balance == {"latency_residual": 0.0, "packets_residual": 0}
    assert "bob.cpu limits" in str(ledger)
    assert ledger.what_ifs["gain"] == sorted(ledger.what_ifs["gain"], reverse=True)


def test_the_same_run_gives_the_same_bytes_and_another_seed_others() -> None:
    short = lm.load("mm1", set={"duration": "2 ms"})
    first, second = (short.run(what_ifs=False, threads=n).ledger for n in (1, 2))
    assert first.to_json() == second.to_json()
    assert first == second
    assert short.change(seed=2).run(what_ifs=False).ledger != first


def test_all_data_frame_libraries_read_the_same_table(ledger: lm.Ledger) -> None:
    stages = ledger.stages
    arrow = pa.table(stages)
    polars = pl.DataFrame(stages)
    pandas = stages.to_pandas()
    duck = duckdb.sql("select sum(packets) from arrow").fetchall()
    assert arrow.column_names == stages.columns == polars.columns == list(pandas.columns)
    sums = [sum(stages["packets"]), arrow["packets"].to_pylist(), polars["packets"].sum()]
    assert sums[0] == sum(sums[1]) == sums[2] == pandas["packets"].sum() == duck[0][0]
    assert arrow["resource"].null_count == polars["resource"].null_count()
    assert isinstance(pandas, pd.DataFrame)


def test_what_a_shell_shows_has_units_and_names_what_reads_it(ledger: lm.Ledger) -> None:
    shown = repr(ledger)
    figures = re.fullmatch(r"<Ledger of .*: (.*) of goodput, (.*) mean latency, (.*) lost, bob.cpu limits>", shown)
    assert figures, shown
    goodput, latency, lost = figures.groups()
    assert goodput.endswith("bit/s") and latency.endswith("s") and lost.endswith("%"), shown
    table = ledger.stages
    assert repr(table).startswith(f"<Table: {len(table)} rows of ")
    assert ".to_pandas()" in repr(table) and ".to_polars()" in repr(table)
    assert "runs, 0 failed" in repr(lm.sweep("mm1", {}, quick=True))
    # Rows and the verdict have attributes, and those that are not there are named.
    row = table.rows()[0]
    assert row.stage == row["stage"] and ledger.verdict.resource == "bob.cpu"
    with pytest.raises(AttributeError, match="there is no `wordz`; there are .*words"):
        _ = ledger.verdict.wordz


def test_numbers_are_not_copied(ledger: lm.Ledger) -> None:
    stages = ledger.stages
    first, second = (pa.table(stages)["wait_mean"].chunk(0) for _ in range(2))
    assert first.buffers()[1].address == second.buffers()[1].address
    # The table may be freed; its readers keep the memory.
    values = first.to_pylist()
    del stages
    assert first.to_pylist() == values


def test_stages_sum_to_the_latency(ledger: lm.Ledger) -> None:
    stages = pl.DataFrame(ledger.stages)
    sums = stages.group_by("path", "class").agg(
        (pl.col("wait_mean") + pl.col("service_mean") + pl.col("blocked_mean")).sum().alias("sum")
    )
    both = sums.join(pl.DataFrame(ledger.paths), on=["path", "class"])
    assert both.height == 2
    for row in both.rows(named=True):
        # A path that delivered nothing has no latency.
        assert row["sum"] == pytest.approx(row["latency_mean"] or 0.0, rel=1e-12)


def test_a_ledger_is_saved_and_read_back(ledger: lm.Ledger, tmp_path: Path) -> None:
    page = ledger.save(tmp_path)
    assert page.name == "ledger.html" and "<!doctype html>" in page.read_text()
    again = lm.Ledger.from_json((tmp_path / "ledger.json").read_text())
    assert again == ledger
    kept = pyarrow.parquet.read_table(tmp_path / "stages.parquet")
    assert kept.to_pydict() == pa.table(ledger.stages).to_pydict()
    with pytest.raises(lm.Problems, match="this program reads"):
        lm.Ledger.from_json(ledger.to_json().replace("lastmeter.ledger/2", "lastmeter.ledger/9"))
    with pytest.raises(lm.Problems):
        lm.Ledger.from_json("{}")


def test_problems_have_a_place() -> None:
    with pytest.raises(lm.Problems) as caught:
        lm.parse('duration = "1 s"\n[nodes]\na = { hots = {} }\n', name="mine.toml")
    [problem] = [p for p in caught.value.problems if p["suggestion"]]
    assert (problem["file"], problem["line"], problem["suggestion"]) == ("mine.toml", 3, "host")
    assert "did you mean `host`?" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_network_in_python_equals_the_file_that_it_prints(tmp_path: Path) -> None:
    network = lm.Network(duration="5 ms", title='a "quoted" title')
    network.host("a").node("s", "station", service={"exponential": "1 us"}).host("b")
    network.link("a", "s", "b")
    network.traffic("t", "a", "b", poisson={"rate": "4 Gbit/s", "size": "1000 B"})
    file = tmp_path / "experiment.toml"
    file.write_text(network.toml)
    ledgers = [what.run(what_ifs=False).ledger for what in (network, lm.load(tmp_path))]
    assert ledgers[0].to_dict()["paths"] == ledgers[1].to_dict()["paths"]
    with pytest.raises(ValueError, match="already"):
        network.host("a")


def test_custom_what_ifs() -> None:
    tandem = lm.load("tandem", set={"duration": "5 ms"})
    plain = tandem.run(what_ifs=False).ledger
    assert tandem.what_if().to_dict()["paths"] == plain.to_dict()["paths"]
    stage = plain.stages["stage"][0]
    assert tandem.what_if(free=[stage]).latency < plain.latency
    with pytest.raises(lm.Problems, match="did you mean `s1`?"):
        tandem.what_if(speed={"s11": 2})
    with pytest.raises(lm.Problems, match="out of range"):
        tandem.what_if(speed={"s1": 0})


def test_progress_is_reported_and_the_lock_is_free() -> None:
    told: list[float] = []
    counted = 0
    done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    lm.load("mm1", set={"duration": "2 s"}).run(what_ifs=False, progress=told.append)
    done.set()
    thread.join()
    assert told == sorted(told) and 0.0 <= told[0] <= told[-1] <= 1.0
    # Another thread ran meanwhile: the run takes most of a second.
    assert counted > 20


def test_an_exception_in_the_progress_callback_ends_the_run() -> None:
    def refuse(share: float) -> None:
        raise LookupError(f"seen enough at {share}")

    began = time.monotonic()
    with pytest.raises(LookupError, match="seen enough"):
        lm.load("mm1", set={"duration": "1000 s"}).run(what_ifs=False, progress=refuse)
    assert time.monotonic() - began < 10


def test_ctrl_c_ends_the_run() -> None:
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        lm.load("mm1", set={"duration": "1000 s"}).run(what_ifs=False)
    assert time.monotonic() - began < 10


def test_packets_are_captured(tmp_path: Path) -> None:
    file = tmp_path / "bob.pcapng"
    short = lm.load("first-path", set={"duration": "0.1 s"})
    short.run(what_ifs=False, pcap={"router->bob": file})
    assert file.read_bytes()[:4] == b"\x0a\x0d\x0d\x0a"
    with pytest.raises(lm.Problems, match="did you mean `router->bob`?"):
        short.run(what_ifs=False, pcap={"router->bop": file})


def test_shuffled_ties_change_nothing() -> None:
    run = lm.load("mm1", set={"duration": "2 ms"}).run(shuffle_ties=2)
    assert run.shuffle is not None
    assert (run.shuffle["runs"], run.shuffle["moved"]) == (2, [])
