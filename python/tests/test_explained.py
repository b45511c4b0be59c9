"""Programs that ``docs/why/programs.md`` explains: what ``lastmeter why`` says of each is what the page says.

Each needs the program that it explains, and some need root: without, skipped with a message. Other programs may take
part of the CPUs, so each has three attempts; that they did is right, too, if it is so. If nothing can be told beside
them, the test says that it is undecided, and skips; a wrong cause fails.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "why" / "programs.md"
#: What each program's verdict says, on the page and here.
WORDS = {
    "curl": "The receiving program slept",
    "wget": "which only the sender's side can tell",
    "iperf3": "A link is full at",
    "rsync": "The sending program computed",
    "scp": "The sending program computed",
    "nginx": "The sending program had nothing to send",
    "nc": "`gzip` is the slowest of gzip | nc",
    "python": "Nagle's algorithm",
    "ffmpeg": "The receiving program slept",
    "sqlite3": "`sqlite3` is the slowest of sqlite3 | zstd | nc",
}
ATTEMPTS = 3
#: Others share the CPUs if they take this much of one.
SHARED = 0.3
LASTMETER = [sys.executable, "-m", "lastmeter"]


def need(*programs: str) -> None:
    """Skips the test unless these can be run."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"`{program}` is required and not installed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return int(place.getsockname()[1])


def listens(port: int) -> None:
    """Waits until somebody listens there, without connecting: some of them take one connection only."""
    word = f":{port:04X} "
    until = time.monotonic() + 20
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    while not any(word in line and " 0A " in line for t in tables for line in t.open()):
        assert time.monotonic() < until, f"nobody listens at {port}"
        time.sleep(0.02)


@contextmanager
def server(line: list[str], port: int) -> Iterator[None]:
    """Runs a server while it is used."""
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(line, stdout=quiet, stderr=quiet)
    try:
        listens(port)
        yield
    finally:
        child.kill()
        child.wait()


@contextmanager
def files(folder: Path) -> Iterator[int]:
    """Serves a folder by HTTP."""
    port = free_port()
    line = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with server([*line, "--directory", str(folder)], port):
        yield port


class Verdict(NamedTuple):
    """What is said of a command, and whether a cause is named."""

    words: str
    named: bool


def verdict(line: list[str]) -> Verdict:
    """The last verdict that this command line prints."""
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"schema"')]
    assert lines, done.stderr
    said = json.loads(lines[-1])["verdict"]
    return Verdict(said["words"], said["confidence"] != "undecided")


def why(command: list[str]) -> Verdict:
    """What is said of this command."""
    return verdict([*LASTMETER, "--json", "why", "--", *command])


def explains(name: str, attempt: Callable[[], Verdict]) -> None:
    """The verdict has the words of the page."""
    words, found, beside = WORDS[name], [], 0
    page = " ".join(PAGE.read_text().split(f"\n## {name}", 1)[1].split("\n## ")[0].split())
    assert words in page.replace(" ▌ ", " "), f"docs/why/programs.md does not say of {name}: {words}"
    for _ in range(ATTEMPTS):
        before = others()
        found.append(attempt())
        taken, passed = (after - earlier for after, earlier in zip(others(), before, strict=True))
        shared = taken > SHARED * passed
        beside += shared and not found[-1].named
        if words in found[-1].words or (shared and "a CPU that others used" in found[-1].words):
            return
    said = "\n".join(one.words for one in found)
    if beside == ATTEMPTS:
        pytest.skip(f"UNDECIDED, beside others that used the CPUs: {said}")
    pytest.fail(said)


def others() -> tuple[float, float]:
    """Seconds of CPU time that others than this process and its ended children took, and of the clock."""
    with Path("/proc/stat").open() as file:
        user, nice, system, _, _, *rest = map(float, file.readline().split()[1:9])
    busy = (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
    times = os.times()
    return busy - sum(times[:4]), times.elapsed


@pytest.fixture
def link() -> Callable[[str, list[str], list[str]], Verdict]:
    """Explains a command behind an emulated link of 20 Mbit/s, with a server at its other end (10.77.0.2)."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces are required, which root may make")

    def run(ready: str, other: list[str], command: list[str]) -> Verdict:
        rate = ["--set", "links.0.rate=20 Mbit/s"]
        shell = f"{ready}; exec {' '.join([*LASTMETER, '--json', 'why', '--', *command])}"
        line = [*LASTMETER, "live", "emulated-link", "--quiet", *rate, "--in", "bob", "--", *other]
        return verdict([*line, "--", "sh", "-c", shell])

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something to send: noise that nothing compresses, words, a film, a database."""
    return tmp_path_factory.mktemp("explained")


def noise(folder: Path, megabytes: int) -> Path:
    path = folder / f"noise-{megabytes}"
    if not path.exists():
        path.write_bytes(os.urandom(1_000_000) * megabytes)
    return path


def words(folder: Path) -> Path:
    path = folder / "words"
    if not path.exists():
        # Numbers in words of a fixed generator, 35 MB.
        state, lines = 1, []
        for _ in range(400_000):
            state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            lines.append(f"{state:x} of {state >> 40} and {state >> 20 & 0xFFFF:b}\n")
        path.write_text("".join(lines * 2))
    return path


def test_curl_that_limits_itself(folder: Path) -> None:
    need("curl")
    noise(folder, 100)
    with files(folder) as port:
        url = f"http://127.0.0.1:{port}/noise-100"
        line = ["curl", "-s", "-o", "/dev/null", "--limit-rate", "30M", url]
        explains("curl", lambda: why(line))


def test_wget_behind_a_full_link(
    folder: Path, link: Callable[[str, list[str], list[str]], Verdict]
) -> None:
    need("wget")
    noise(folder, 6)
    serve = [sys.executable, "-m", "http.server", "8000", "--directory", str(folder)]
    url = "http://10.77.0.2:8000/noise-6"
    line = ["wget", "-q", "-O", "/dev/null", "--retry-connrefused", "--waitretry=1", url]
    explains("wget", lambda: link("sleep 1", serve, line))


def test_iperf3_behind_a_full_link(link: Callable[[str, list[str], list[str]], Verdict]) -> None:
    need("iperf3")
    line = ["iperf3", "-c", "10.77.0.2", "-t", "3"]
    explains("iperf3", lambda: link("sleep 0.5", ["iperf3", "-s", "-1"], line))


def test_rsync_that_compresses(folder: Path, tmp_path: Path) -> None:
    need("rsync")
    port = free_port()
    config = tmp_path / "rsyncd.conf"
    config.write_text(
        f"use chroot = no\n[to]\npath = {tmp_path}\nread only = no\nuid = {os.geteuid()}\n"
        f"gid = {os.getegid()}\npid file = {tmp_path}/pid\nlock file = {tmp_path}/lock\n"
    )
    daemon = ["rsync", "--daemon", "--no-detach", "--address", "127.0.0.1", f"--port={port}"]
    with server([*daemon, f"--config={config}"], port):
        line = ["rsync", "-z", "--ignore-times", "--whole-file", str(words(folder))]
        explains("rsync", lambda: why([*line, f"rsync://127.0.0.1:{port}/to/"]))


def test_scp_that_compresses(folder: Path, tmp_path: Path) -> None:
    """Its server is one of the test's own, whose home is in memory: nobody's keys are touched."""
    need("scp", "dropbear", "unshare", "ssh-keygen")
    if os.geteuid() != 0:
        pytest.skip("a mount namespace is required, which root may make")
    port = free_port()
    key, host = tmp_path / "key", tmp_path / "host"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    make = ["dropbearkey", "-t", "ed25519", "-f", str(host)]
    subprocess.run(make, check=True, capture_output=True)
    home = Path("~root").expanduser()
    prepare = textwrap.dedent(f"""
        mount -t tmpfs -o mode=700 none {home} && mkdir -m 700 {home}/.ssh &&
        cp {key}.pub {home}/.ssh/authorized_keys && chmod 600 {home}/.ssh/authorized_keys &&
        exec dropbear -F -E -r {host} -p 127.0.0.1:{port} -P {tmp_path}/pid -W 1000000
    """)
    options = ["-F", "none", "-i", str(key), "-o", "StrictHostKeyChecking=no", "-P", str(port)]
    options += ["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    with server(["unshare", "-m", "sh", "-c", prepare], port):
        line = ["scp", "-O", "-q", "-C", *options, str(noise(folder, 100))]
        explains("scp", lambda: why([*line, "root@127.0.0.1:/dev/null"]))


def test_nginx_that_limits_its_clients(folder: Path, tmp_path: Path) -> None:
    need("curl")
    fetched = sorted(Path(__file__).parents[2].glob("target/nginx/usr/sbin/nginx"))
    nginx = shutil.which("nginx") or (str(fetched[0]) if fetched else None)
    if nginx is None:
        pytest.skip("`nginx` is required and not installed")
    noise(folder, 100)
    port = free_port()
    places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    config = tmp_path / "nginx.conf"
    config.write_text(
        f"daemon off; worker_processes 1; error_log stderr; pid {tmp_path}/pid;\n"
        + ("user root;\n" if os.geteuid() == 0 else "")
        + "events {}\nhttp { access_log off;\n"
        + "".join(f"{name}_temp_path {tmp_path}/{name};\n" for name in places)
        + f"server {{ listen 127.0.0.1:{port}; root {folder}; limit_rate 30m; }} }}\n"
    )
    line = [nginx, "-p", str(tmp_path), "-c", str(config)]
    fetch = f"sleep 1; curl -s -o /dev/null http://127.0.0.1:{port}/noise-100"
    stop = " ".join([*line, "-s", "quit"])

    def attempt() -> Verdict:
        quiet = subprocess.DEVNULL
        client = subprocess.Popen(["sh", "-c", f"{fetch}; {stop}"], stderr=quiet)
        try:
            return why(line)
        finally:
            client.wait()

    explains("nginx", attempt)


@contextmanager
def sink() -> Iterator[int]:
    """Reads what one connection brings."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = int(place.getsockname()[1])
        code = f"import socket\nc, _ = socket.socket(fileno={place.fileno()}).accept()\n"
        code += "while c.recv(1 << 16): pass"
        child = subprocess.Popen([sys.executable, "-c", code], pass_fds=[place.fileno()])
    try:
        yield port
    finally:
        child.kill()
        child.wait()


def need_nc() -> None:
    """The `nc` of OpenBSD, which ends with its input when told to."""
    need("nc")
    said = subprocess.run(["nc", "-h"], capture_output=True, text=True, check=False).stderr
    if "-N" not in said:
        pytest.skip("`nc` of OpenBSD (netcat-openbsd) is required")


def piped(line: str) -> Verdict:
    """Of a command line of the shell whose `{port}` reads everything."""
    with sink() as port:
        return why(["sh", "-c", line.format(port=port)])


def test_nc_behind_a_compressor(folder: Path) -> None:
    need("gzip")
    need_nc()
    path = words(folder)
    explains("nc", lambda: piped(f"gzip < {path} | nc -N 127.0.0.1 {{port}}"))


def test_sqlite3_that_dumps(folder: Path) -> None:
    need("sqlite3", "zstd")
    need_nc()
    path = folder / "database"
    # The module that writes it need not be there: the program is.
    script = (
        "create table t (a integer primary key, b real, c real, d real, e real, f real);"
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 500000)"
        "insert into t select i, i * 0.37, i / 7.0, i * 1.1, i / 13.0, i * 0.1 from n;"
    )
    subprocess.run(["sqlite3", str(path), script], check=True)
    explains("sqlite3", lambda: piped(f"sqlite3 {path} .dump | zstd | nc -N 127.0.0.1 {{port}}"))


CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for _ in range(60):
    connection.send(b"h" * 100)
    connection.send(b"b" * 500)
    connection.recv(100)
"""
SERVER = """
import socket, sys
connection, _ = socket.create_server(("127.0.0.1", int(sys.argv[1]))).accept()
while True:
    left = 600
    while left:
        got = len(connection.recv(left))
        if not got:
            sys.exit()
        left -= got
    connection.send(b"r" * 10)
"""


def test_a_python_client_that_sends_messages_in_two_parts() -> None:
    def attempt() -> Verdict:
        port = free_port()
        with server([sys.executable, "-c", SERVER, str(port)], port):
            return why([sys.executable, "-c", CLIENT, str(port)])

    explains("python", attempt)


def test_ffmpeg_that_reads_as_fast_as_it_shows(folder: Path) -> None:
    need("ffmpeg")
    film = folder / "film.mkv"
    picture = ["-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=25", "-t", "8"]
    make = ["ffmpeg", "-v", "error", "-y", *picture, "-c:v", "mpeg4", "-b:v", "20M", str(film)]
    subprocess.run(make, check=True)
    with files(folder) as port:
        url = f"http://127.0.0.1:{port}/film.mkv"
        explains("ffmpeg", lambda: why(["ffmpeg", "-v", "error", "-re", "-i", url, "-t", "4", "-f", "null", "-"]))
