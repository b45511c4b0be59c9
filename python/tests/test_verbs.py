"""Every verb of the program has its function."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lastmeter as lm
import lastmeter.media

ROOT = Path(__file__).parent.parent.parent


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "lastmeter", *arguments]
    return subprocess.run(line, capture_output=True, text=True)


def test_every_verb_of_the_program_has_its_function() -> None:
    text = program("--help").stdout
    commands = text.split("Commands:")[1].split("Options:")[0]
    verbs = set(re.findall(r"^  (\w+) ", commands, flags=re.M)) - {"help"}
    assert {"run", "sweep", "repro", "why"} <= verbs
    functions = {"run": "load"}
    # Commands that serve until stopped, start the daemon, or are for a shell are started with `lm.command`.
    servers = {"serve", "router", "disk", "display", "camera", "audio", "plugin"}
    servers |= {"init", "completions", "man"}
    missing = {verb for verb in verbs - servers if not hasattr(lm, functions.get(verb, verb))}
    assert not missing, "each needs a function in python/lastmeter, its test, and its line in README"
    assert lm.command(["kinds", "drop-tail"])[0] == 0
    with pytest.raises(lm.Problems, match="did you mean"):
        lm.command(["kinds", "droptail"])


def test_the_program_is_the_one_of_the_command_line() -> None:
    assert lm.__version__ in program("--version").stdout
    assert program("run", "no-such-experiment").returncode == 2
    done = program("run", "mm1", "--quick", "--json", "--set", "duration=10 ms")
    ours = lm.load("mm1", set={"duration": "10 ms"}).run(quick=True).ledger
    assert lm.Ledger.from_json(done.stdout) == ours


def test_two_ledgers_are_compared() -> None:
    short = lm.load("mm1", set={"duration": "1 ms"})
    first, second = (short.change(seed=n).run(what_ifs=False).ledger for n in (1, 2))
    found = lm.compare(first, second, names=("one", "two"))
    goodput = found["totals"][0]
    assert (goodput["first"], goodput["second"]) == (first.goodput, second.goodput)
    assert found["html"].startswith("<!doctype html>") and "TOTALS" in found["text"]
    assert lm.compare(first, first)["same_experiment"] and not found["same_experiment"]


def test_published_values_are_reproduced() -> None:
    told: list[float] = []
    found = lm.repro("cim-equations", progress=told.append)
    assert found.passes and len(found.rows) > 5
    [system] = found.summaries
    roles = [system[role] for role in ("predicted", "shapes", "derived", "fitted", "given")]
    assert system["system"] == "E" and all(role["right"] == role["asked"] for role in roles)
    assert sum(role["asked"] for role in roles) == len(found.rows)
    assert "cim-equations" in str(found)
    with pytest.raises(lm.Problems, match="E-6400"):
        lm.repro("E-6400")


def test_kinds_and_schema() -> None:
    names = {page["name"] for page in lm.kinds()}
    assert {"drop-tail", "host", "tcp"} <= names
    assert "PARAMETERS" in lm.kinds_text("token-bucket")
    assert lm.schema()["type"] == "object"
    assert "mm1" in lm.experiments()


def test_addresses_are_looked_up() -> None:
    table = ROOT / "examples" / "routes" / "table.txt"
    [answer] = lm.lookup(table, ["128.252.153.160"])
    assert (answer["prefix"], answer["next_hop"]) == ("128.252.153.160/28", 4)
    with pytest.raises(lm.Problems, match="not an address"):
        lm.lookup(table, ["128.252.153"])
    with pytest.raises(OSError):
        lm.lookup(table / "nothing", [])


def test_a_historic_transfer() -> None:
    ledger = lm.why(host="hp9000-730", adapter="afterburner")
    assert ledger.verdict["resource"] == "receiver.card-to-memory"
    with pytest.raises(lm.Problems, match="afterburner"):
        lm.why(host="hp9000-730", adapter="afterburna")
    with pytest.raises(TypeError):
        lm.why(host="hp9000-730")


def test_distributed_queueing_runs_on_threads() -> None:
    found = lm.dq("--quick")
    assert {"item", "published", "measured", "unit"} <= set(found[0])


PLAN = """
[[host]]
name = "a"
at = "here"

[[host]]
name = "b"
at = "{at}"

[[flow]]
name = "cells"
from = "a"
to = "b"
format = "aal5"
size = "1500 B"
packets = "5 kpps"
count = 500
"""


def test_traffic_is_sent_to_an_agent(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "lastmeter", "blast", "serve", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as agent:
        assert agent.stdout is not None
        at = json.loads(agent.stdout.readline())["address"]
        plan = tmp_path / "plan.toml"
        plan.write_text(PLAN.format(at=at))
        found = lm.blast(plan)
        agent.terminate()
    assert found["schema"] == "lastmeter.blast/1"
    [flow] = found["flows"]
    assert flow["sent"] == 500 == flow["received"] + flow["sink"]["damaged"] + flow["lost"]
    plan.write_text(PLAN.format(at="nowhere"))
    with pytest.raises(lm.Problems, match="is not an agent"):
        lm.blast(plan)


def test_benchmarks_run() -> None:
    found = lm.bench("queue/drop-tail@10", quick=True)
    assert found and all(one["value"] > 0 for one in found)
    with pytest.raises(lm.Problems, match="no benchmark"):
        lm.bench("no-such-bench")


def can_measure() -> bool:
    """Whether the machine permits network namespaces."""
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_measure(), reason="this machine allows no network namespaces")
def test_a_transfer_on_this_machine() -> None:
    ledger = lm.why("--quick")
    assert ledger.provenance["level"] in ("L0", "L1")
    assert ledger.goodput > 1e6


@pytest.mark.skipif(not can_measure(), reason="this machine allows no network namespaces")
def test_this_machine_is_calibrated() -> None:
    constants, profile = lm.calibrate()
    assert constants["constants"]["context.switch"]["value"]
    assert "[constants" in profile
