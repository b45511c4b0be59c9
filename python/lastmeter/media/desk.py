"""A workstation whose bus is a network, on this machine: camera, disk, display, audio and host, each with a network
stack of its own (A-07 to A-09, N-01).

    camera --+            +-- display       pictures and sound go from device to device;
    disk ----+-- switch --+                 the host only says where from
    audio ---+            +-- host

Each device is a network namespace behind a software switch. Camera, disk, display and audio are those of ``lastmeter``. The
camera sends to whoever asks with a token, so a disk or display needs something beside it that asks: a
:class:`Receiver`. The host asks all what they are (the camera by its own protocol, receivers by a line of JSON), tells
receivers which camera to show or store, has the disk's record the microphone and play that at the speaker, and lends a
part of the display to a stranger. The counters of its interface show that neither passed through it. Needs root,
iproute2 and ``lastmeterd``.

Rows: A-07, A-08, A-09, A-16, N-01.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import wave
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import modules
from .graph import Graph, GraphError, Module
from .network import CameraSource, DeviceError, DiskFile, WindowSink, diagnose, wait_for_port
from .payload import Coded, Payload
from .video import VideoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Where receivers take commands.
CONTROL = 5890
#: Where the camera's viewers and its own protocol are, and the audio device.
VIEWERS, RECEIVERS, SOUND = 8554, 8555, 8560
#: Seconds of a stream at the most, and seconds besides for the devices to begin.
STREAM_MAX = 120
PATIENCE = 30
#: Pictures a second of the camera.
RATE = 15
#: Bytes of one command or answer.
LINE_MAX = 65536
#: The devices, and the last part of their addresses in 10.78.0.0/24.
PLACES = {"camera": 1, "disk": 2, "display": 3, "host": 4, "stranger": 5, "audio": 6}
#: Bytes of a stored picture on the disk; a longer one is cut into the next place.
SLOT = 1 << 18
#: Pictures that are stored, and the place of a recording after them.
SLOTS = 64
RECORDING = SLOTS * SLOT
#: Bytes of a WAV file's header, as ``lastmeter`` writes it, and samples of a second.
HEADER, SAMPLES = 44, 48_000
#: The longest recording, in seconds.
RECORDING_MAX = 60.0


def device(name: str) -> str:
    """The address of a device."""
    return f"10.78.0.{PLACES[name]}"


class Store(Module):
    """Stores coded pictures on a network disk, one in each slot, round and round."""

    inputs = {"in": Coded}

    def __init__(self, url: str, slots: int = SLOTS) -> None:
        super().__init__()
        self.url, self.slots = url, slots
        self.disk: DiskFile | None = None

    def begin(self) -> None:
        self.disk = DiskFile(self.url)

    def process(self, port: str, payload: Payload) -> None:
        assert isinstance(payload, Coded) and self.disk is not None
        data = b"".join((len(payload.data).to_bytes(4, "big"), payload.data))
        if len(data) > SLOT:
            self.drop("longer than its place")
            return
        self.disk.seek(payload.number % self.slots * SLOT)
        self.disk.write(data + bytes(-len(data) % 512))
        self.graph.arrived(self, payload)

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()


class Receiver:
    """Beside a display or disk: takes a camera's pictures when its owner says so, and shows or stores them; a disk's
    also stores what a microphone hears, and plays it at a speaker.

    ``to`` is where the device takes pictures: ``host:port`` and its ``token``, or ``nbd://host:port/token``.
    """

    def __init__(self, owner: str, to: str, token: str = "") -> None:
        self.owner, self.to, self.token = owner, to, token
        self.kind = "disk" if to.startswith("nbd://") else "display"

    def serve(self, host: str, port: int = CONTROL) -> None:
        """Takes commands, one connection after another, until the process is ended."""
        with socket.create_server((host, port)) as server:
            while True:
                link, _ = server.accept()
                with link, suppress(OSError):
                    link.settimeout(10)
                    self._converse(link)

    def _converse(self, link: socket.socket) -> None:
        with link.makefile("rwb") as file:
            line = file.readline(LINE_MAX)
            try:
                asked = json.loads(line)
                answer = self.command(asked) if isinstance(asked, dict) else {"error": "no object"}
            except (ValueError, RecursionError):
                answer = {"error": "not a line of JSON"}
            file.write(json.dumps(answer).encode() + b"\n")
            file.flush()

    def command(self, asked: dict[str, Any]) -> dict[str, Any]:
        """``describe``; ``stream`` with ``from``, a camera's address, and ``pictures``, how many; ``record`` with ``audio``,
        the address of an audio device, its ``token`` and ``seconds``; or ``play`` with the first two."""
        if asked.get("do") == "describe":
            sound = ["sound"] if self.kind == "disk" else []
            return {"device": self.kind, "streams": ["camera", *sound]}
        if not secrets.compare_digest(str(asked.get("owner")).encode(), self.owner.encode()):
            return {"error": "only the owner may open streams"}
        if self.kind == "disk" and asked.get("do") in ("record", "play"):
            return self._sound(asked)
        camera = str(asked.get("from", ""))
        if asked.get("do") != "stream" or not camera.startswith("http://"):
            return {"error": "write describe, or stream with the http:// address of a camera"}
        pictures = asked.get("pictures", RATE)
        if not isinstance(pictures, int) or not 0 < pictures <= STREAM_MAX * RATE:
            return {"error": f"pictures: a whole number up to {STREAM_MAX * RATE}"}
        try:
            return self._stream(camera, pictures)
        except (OSError, GraphError, VideoError) as error:
            return {"error": str(error)}

    def _sound(self, asked: dict[str, Any]) -> dict[str, Any]:
        place, token = str(asked.get("audio", "")), str(asked.get("token", ""))
        seconds = asked.get("seconds", 1.0)
        if not isinstance(seconds, (int, float)) or not 0 < seconds <= RECORDING_MAX:
            return {"error": f"seconds: a number up to {RECORDING_MAX}"}
        if place.startswith("-") or token.startswith("-"):
            return {"error": "audio and token: an address and a token"}
        with tempfile.TemporaryDirectory(prefix="lastmeter-sound-") as folder:
            path = Path(folder) / "sound.wav"
            line = [daemon() or "lastmeterd", "audio", str(asked["do"]), place, "--token", token, "--json"]
            try:
                if asked["do"] == "play":
                    path.write_bytes(self._recorded())
                    line += [str(path)]
                else:
                    line += ["--seconds", str(seconds), "--delay", "300 ms", "--out", str(path)]
                done = subprocess.run(line, capture_output=True, text=True, timeout=STREAM_MAX)
                if done.returncode:
                    return {"error": done.stderr.strip()}
                sound = path.read_bytes()
                if asked["do"] == "record":
                    self._record(sound)
            except (OSError, subprocess.TimeoutExpired) as error:
                return {"error": str(error)}
            answer: dict[str, Any] = json.loads(done.stdout)
            return {**answer, "sha256": hashlib.sha256(sound[HEADER:]).hexdigest()}

    def _record(self, sound: bytes) -> None:
        with DiskFile(self.to) as disk:
            disk.seek(RECORDING)
            disk.write(len(sound).to_bytes(4, "big") + sound)

    def _recorded(self) -> bytes:
        with DiskFile(self.to) as disk:
            disk.seek(RECORDING)
            length = int.from_bytes(disk.read(4), "big")
            if not 0 < length <= disk.length - RECORDING - 4:
                raise DeviceError("nothing has been recorded")
            return disk.read(length)

    def _stream(self, camera: str, pictures: int) -> dict[str, Any]:
        graph = Graph(title=f"camera to {self.kind}")
        graph.add("camera", CameraSource(camera))
        end: Module
        if self.kind == "display":
            end = graph.add("window", WindowSink(self.to, self.token))
            graph.join("camera.out", "window")
        else:
            graph.add("jpeg", modules.JpegEncode())
            end = graph.add("store", Store(self.to))
            graph.join("camera.out", "jpeg")
            graph.join("jpeg", "store")

        def look() -> None:
            path = graph.paths.get(end.name)
            if path is not None and path.packets >= pictures:
                graph.stop()
            elif not graph.stopped:
                graph.dispatcher.timeout(graph.dispatcher.now() + 0.02, look)

        look()
        graph.run(STREAM_MAX)
        graph.dispatcher.close()
        path = graph.paths.get(end.name)
        return {
            "pictures": path.packets if path else 0,
            "refused": end.dropped["refused"],
            "latency": path.latency.mean if path else None,
        }


def ask(host: str, question: dict[str, Any], port: int = CONTROL) -> dict[str, Any]:
    """Asks a device; the answer is an object, with ``error`` if it refuses."""
    with socket.create_connection((host, port), timeout=STREAM_MAX + PATIENCE) as link, link.makefile("rwb") as file:
        file.write(json.dumps(question).encode() + b"\n")
        file.flush()
        answer: dict[str, Any] = json.loads(file.readline(LINE_MAX))
        return answer


# The network


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise GraphError(f"`ip {' '.join(arguments)}`: {done.stderr.strip()}")


@dataclass
class Desk:
    """The network while it stands."""

    tag: str
    folder: Path
    daemon: str
    children: list[subprocess.Popen[bytes]]

    def space(self, name: str) -> str:
        """The namespace of a device."""
        return f"{self.tag}-{name}"

    def run(self, name: str, *command: str, **more: Any) -> subprocess.Popen[bytes]:
        """Starts a program in a device's namespace."""
        line = ["ip", "netns", "exec", self.space(name), *command]
        child = subprocess.Popen(line, **more)
        self.children.append(child)
        return child

    def counters(self, name: str) -> dict[str, int]:
        """Bytes that the interface of a device received and sent."""
        found = {}
        for way in ("rx", "tx"):
            path = f"/sys/class/net/eth0/statistics/{way}_bytes"
            line = ["ip", "netns", "exec", self.space(name), "cat", path]
            found[way] = int(
                subprocess.run(line, capture_output=True, text=True, check=True).stdout
            )
        return found


def missing() -> str | None:
    """What this needs and does not find, in words; None if all is there."""
    if os.geteuid() != 0:
        return "it needs root, for network namespaces"
    if shutil.which("ip") is None:
        return "`ip` is not installed (Debian: iproute2)"
    if daemon() is None:
        return "`lastmeterd` is not found: `make devices` builds it; LASTMETERD names another place"
    return None


def daemon() -> str | None:
    """The program of the devices."""
    return os.environ.get("LASTMETERD") or shutil.which("lastmeterd")


@contextmanager
def network() -> Iterator[Desk]:
    """Makes the namespaces and the switch; removes them, and ends what runs there, at the end."""
    tag = f"lmd{os.getpid() % 100000}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lastmeter-desk-")))
        desk = Desk(tag, folder, daemon() or "lastmeterd", [])
        stack.callback(_remove, desk)
        _ip("netns", "add", desk.space("switch"))
        _ip("-n", desk.space("switch"), "link", "add", "br0", "type", "bridge")
        _ip("-n", desk.space("switch"), "link", "set", "br0", "up")
        for name in PLACES:
            inside = desk.space(name)
            _ip("netns", "add", inside)
            _ip(
                "-n",
                inside,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                name,
                "netns",
                desk.space("switch"),
            )
            _ip("-n", desk.space("switch"), "link", "set", name, "master", "br0", "up")
            _ip("-n", inside, "addr", "add", f"{device(name)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                _ip("-n", inside, "link", "set", link, "up")
        yield desk


def _remove(desk: Desk) -> None:
    for child in desk.children:
        child.terminate()
    for child in desk.children:
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    for name in (*PLACES, "switch"):
        subprocess.run(["ip", "netns", "del", desk.space(name)], capture_output=True)


_CAMERA = """\
name = "desk"
source = "pattern"
size = "320x240"
rate = 15
listen = "10.78.0.1:8554"
receivers = "10.78.0.1:8555"
[clients.owner]
token = "{owner}"
"""

_DISK = """\
memory = true
size = "32 MiB"
listen = "10.78.0.2:10809"
[clients.camera]
token = "{disk}"
"""

_DISPLAY = """\
name = "desk"
size = "800x600"
listen = "10.78.0.3:5900"
commands = "10.78.0.3:5899"
[regions]
guest = "320x240+400+300"
[clients.owner]
token = "{owner}"
[clients.guest]
token = "{guest}"
"""


_AUDIO = """\
name = "desk"
listen = "10.78.0.6:8560"
speaker = "file:heard.wav"
microphone = "file:room.wav"
delay = "300 ms"
[clients.owner]
token = "{owner}"
"""


def demonstrate(seconds: float = 2.0, said: Callable[[str], object] = print) -> dict[str, Any]:
    """Builds the network, opens both streams, lends the display, and tears all down; what was counted."""
    why = missing()
    if why is not None:
        raise GraphError(why)
    keys = {name: secrets.token_hex(12) for name in ("owner", "guest", "disk")}
    with network() as desk:
        _start(desk, keys)
        return _streams(desk, keys, seconds, said)


def _start(desk: Desk, keys: dict[str, str]) -> None:
    # What the room sounds like to the microphone: no part of it is like another, and none is silent.
    room = np.random.default_rng(1).integers(1, 20_000, 5 * SAMPLES, dtype="<i2").tobytes()
    with wave.open(str(desk.folder / "room.wav"), "wb") as file:
        file.setparams((1, 2, SAMPLES, 0, "NONE", ""))
        file.writeframes(room)
    texts = {"camera": _CAMERA, "disk": _DISK, "display": _DISPLAY, "audio": _AUDIO}
    for name, text in texts.items():
        path = desk.folder / f"{name}.toml"
        path.write_text(text.format(**keys), encoding="utf-8")
        desk.run(name, desk.daemon, name, "run", str(path), stdout=subprocess.DEVNULL)
    beside = {
        "display": (f"{device('display')}:5899", keys["owner"]),
        "disk": (f"nbd://{device('disk')}/{keys['disk']}", ""),
    }
    for name, (to, token) in beside.items():
        code = (
            f"import sys; sys.path[:] = {sys.path!r}\nfrom lastmeter.media.desk import Receiver; "
            f"Receiver({keys['owner']!r}, {to!r}, {token!r}).serve({device(name)!r})"
        )
        desk.run(name, sys.executable, "-c", code)


def _inside(desk: Desk, name: str, function: str, *values: Any) -> Any:
    """Calls a function of this module in a device's namespace, in a process of its own."""
    code = (
        f"import sys, json; sys.path[:] = {sys.path!r}\n"
        "from lastmeter.media import desk\n"
        f"print(json.dumps(desk.{function}(*json.loads(sys.argv[1]))))"
    )
    line = ["ip", "netns", "exec", desk.space(name), sys.executable, "-c", code, json.dumps(values)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=STREAM_MAX + 2 * PATIENCE)
    if done.returncode:
        raise GraphError(f"{function} at the {name}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def wait(ports: list[tuple[str, int]], seconds: float = 60.0) -> list[str]:
    """Waits for devices; the names of those that do not answer."""
    return [name for name, port in ports if not wait_for_port(device(name), port, seconds)]


def _streams(
    desk: Desk, keys: dict[str, str], seconds: float, said: Callable[[str], object]
) -> dict[str, Any]:
    ports = [("camera", VIEWERS), ("disk", 10809), ("display", 5899)]
    ports += [("disk", CONTROL), ("display", CONTROL), ("audio", SOUND)]
    silent = _inside(desk, "host", "wait", ports)
    if silent:
        raise GraphError(f"{', '.join(silent)} did not start")
    before = {name: desk.counters(name) for name in PLACES}
    found = {"camera": _inside(desk, "host", "describe_camera", keys["owner"])}
    said(f"the camera says: {json.dumps(found['camera'])}")
    camera = f"http://{device('camera')}:{VIEWERS}"
    # So many pictures, rather than so long: a busy machine takes longer to begin.
    count = max(1, round(min(seconds, STREAM_MAX - PATIENCE) * RATE))
    order = {"do": "stream", "owner": keys["owner"], "pictures": count}
    order["from"] = f"{camera}/{keys['owner']}/stream.mjpg?rate={RATE}"
    for name in ("display", "disk"):
        said(f"the {name} says: {json.dumps(_inside(desk, 'host', 'ask', device(name), _DESCRIBE))}")
        found[f"to {name}"] = _inside(desk, "host", "ask", device(name), order)
    found |= _sound(desk, keys, min(seconds, RECORDING_MAX))
    # Lent: the owner gives a stranger the key of one region of the display.
    guest = keys["guest"]
    place = f"{device('display')}:5899"
    found["stranger"] = _inside(desk, "stranger", "draw_as_stranger", place, guest)
    # With that key it gets no pictures of the camera, nor can it have them shown.
    found["camera to stranger"] = _inside(desk, "stranger", "describe_camera", guest)
    listen = (f"{device('audio')}:{SOUND}", guest)
    found["sound to stranger"] = _inside(desk, "stranger", "listen", *listen)
    stolen = {**order, "owner": guest}
    found["theft"] = _inside(desk, "stranger", "ask", device("display"), stolen)
    moved = {}
    for name in PLACES:
        now = desk.counters(name)
        moved[name] = {way: now[way] - before[name][way] for way in now}
    for name, ways in moved.items():
        said(f"{name:<9} received {ways['rx'] / 1e3:>9.1f} kB, sent {ways['tx'] / 1e3:>9.1f} kB")
    pictures = sum(int(found[stream].get("pictures", 0)) for stream in ("to display", "to disk"))
    passed = moved["host"]["rx"] + moved["host"]["tx"]
    sound = found["to speaker"]
    if "error" not in sound:
        same = "the same" if sound["same"] else "NOT the same"
        lost = found["to disk, sound"]["lost"] + sound["lost"]
        said(
            f"{sound['seconds']:.1f} s of sound went from the microphone to the disk and to the speaker: {same} samples,"
            f" {lost} packets lost"
        )
    said(
        f"{pictures} pictures went from device to device; {passed / 1e3:.1f} kB passed through the host"
    )
    return {"answers": found, "bytes": moved, "pictures": pictures, "host": passed}


def _sound(desk: Desk, keys: dict[str, str], seconds: float) -> dict[str, Any]:
    """Has the disk's receiver record the microphone, and play that at the speaker: what both said, and whether what was
    heard is what was recorded."""
    order = {"owner": keys["owner"], "audio": f"{device('audio')}:{SOUND}", "token": keys["owner"]}
    recorded = _inside(
        desk, "host", "ask", device("disk"), {**order, "do": "record", "seconds": seconds}
    )
    if "error" in recorded:
        return {"to disk, sound": recorded, "to speaker": recorded}
    played = _inside(desk, "host", "ask", device("disk"), {**order, "do": "play"})
    if "error" not in played:
        until = time.monotonic() + PATIENCE
        while (streams := _streams_at(desk))["playing"] and time.monotonic() < until:
            time.sleep(0.05)
        counts = streams["clients"]["owner"]
        heard = (desk.folder / "heard.wav").read_bytes()[HEADER:]
        samples = np.trim_zeros(np.frombuffer(heard, "<i2")).tobytes()
        same = hashlib.sha256(samples).hexdigest() == recorded["sha256"] == played["sha256"]
        played |= {key: counts[key] for key in ("lost", "late", "concealed")} | {"same": same}
    return {"to disk, sound": recorded, "to speaker": played}


def _streams_at(desk: Desk) -> dict[str, Any]:
    """The clients of the audio device."""
    path = str(desk.folder / "audio.toml")
    line = [desk.daemon, "audio", "show", path, "clients", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    streams: dict[str, Any] = json.loads(done.stdout)
    return streams


_DESCRIBE = {"do": "describe"}


def describe_camera(token: str) -> dict[str, Any]:
    """What the camera says to somebody with a token."""
    try:
        return diagnose(f"{device('camera')}:{RECEIVERS}", token)
    except DeviceError as error:
        return {"error": str(error)}


def listen(place: str, token: str) -> dict[str, Any]:
    """What an audio device says to somebody with a token who wants to listen."""
    line = [daemon() or "lastmeterd", "audio", "record", place, "--token", token, "--seconds", "0.1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    return {"error": done.stderr.strip()} if done.returncode else {}


def draw_as_stranger(place: str, token: str) -> dict[str, Any]:
    """Fills all that it may, and tries to fill more; the statuses that the display answered."""
    from .network import Screen

    screen = Screen(place, token)
    colour = (0x0000C0).to_bytes(4, "little")
    own = screen.command(Screen.FILL, 0, 0, screen.width, screen.height, colour, answer=True)
    beyond = screen.command(Screen.FILL, 0, 0, 800, 600, colour, answer=True)
    time.sleep(0.05)
    screen.close()
    return {"size": [screen.width, screen.height], "own": own, "beyond": beyond}


__all__ = ["Desk", "Receiver", "ask", "demonstrate", "missing"]
