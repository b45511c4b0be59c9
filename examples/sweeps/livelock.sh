#!/bin/sh
# Goodput and latency over the offered load; each point until goodput is known to
# 500 kbit/s: a share of the mean would ask too much where next to nothing gets through.
set -eu
here=$(dirname "$0")
exec "${LASTMETER:-lastmeter}" sweep "$here/livelock.toml" \
    --over traffic.stream.poisson.rate='2 Mbit/s..11 Mbit/s / 10' \
    --until 'goodput 500 kbit/s' --most 60 "$@"
