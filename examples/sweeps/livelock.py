"""The load at which a host's goodput is highest, and what is left beyond it: python livelock.py FOLDER"""

import sys
from pathlib import Path

import polars as pl

import lastmeter as lm

RATE = "traffic.stream.poisson.rate"

out = Path(sys.argv[1] if len(sys.argv) > 1 else "out/livelock")
lm.sweep(Path(__file__).with_name("livelock.toml"), {RATE: "2 Mbit/s..11 Mbit/s / 10"}, seeds=5, out=out, resume=True)

runs = pl.read_parquet(out / "runs" / "*.parquet")
curve = runs.group_by(RATE).agg(pl.col("goodput").mean(), pl.col("loss").mean()).sort(RATE)
print(curve)
best = curve.sort("goodput").row(-1, named=True)
last = curve.row(-1, named=True)
print(f"best at {best[RATE] / 1e6:g} Mbit/s: {best['goodput'] / 1e6:.2f} Mbit/s delivered")
print(f"at {last[RATE] / 1e6:g} Mbit/s: {last['goodput'] / 1e6:.2f} Mbit/s")
