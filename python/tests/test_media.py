"""Programs for pictures: captions, films, the index, programs, scores, commands, the desk."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

import numpy as np

from lastmeter.media import Index, modules
from lastmeter.media import captions as captions_of
from lastmeter.media import command, files, films, measure, programs, score, shows, video
from lastmeter.media.index import BadIndex
from lastmeter.media.payload import Caption, Frame


# Captions


def test_captions_come_back_from_webvtt() -> None:
    rng = random.Random(3)
    for _ in range(200):
        cues = []
        at = 0.0
        for _ in range(rng.randrange(1, 8)):
            at += rng.randrange(1, 5000) / 1000
            text = "".join(rng.choice("ab >&<.'\u00e9") for _ in range(rng.randrange(1, 30)))
            text = " ".join(text.split()) or "x"
            cues.append(Caption(round(at, 3), 1.5, text=text))
        back = captions_of.parse(captions_of.to_vtt(cues))
        assert [(round(c.time, 3), c.text) for c in back] == [(c.time, c.text) for c in cues]


def test_captions_of_any_text_never_break() -> None:
    rng = random.Random(4)
    pieces = [
        "WEBVTT\n",
        "00:01.000 --> 00:02.000\n",
        "1\n",
        "\n",
        "a<b>c\n",
        "\ufeff",
        "99:99:99,999 --> 0:0:0,0\n",
        "\x00",
    ]
    for _ in range(2000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(8)))
        try:
            captions_of.parse(text)
        except captions_of.CaptionError as error:
            assert str(error).startswith("line ")


# The index


def test_words_are_found_in_any_of_their_forms(tmp_path: Path) -> None:
    from lastmeter.media import Clip

    with Index(tmp_path / "index.db") as index:
        film = index.film("evening.mkv", "Evening", 60)
        clip = index.add(
            film, Clip("news", 0, 10, "storm", 2.0), [Caption(3, 2, text="Storms are coming")]
        )
        index.add(
            film, Clip("news", 10, 20, "court", 1.0), [Caption(12, 2, text="The judge said no")]
        )
        assert [found.id for found, _, _ in index.search("storm")] == [clip]
        assert index.search('"; DROP TABLE words') == [] and index.search("   ") == []
        assert [found.title for found in index.clips("news", ranked=True)] == ["storm", "court"]
        index.forget(film, "news")
        assert index.clips() == [] and index.search("storm") == []
    (tmp_path / "no.db").write_bytes(b"no database" * 100)
    with pytest.raises(BadIndex, match="is no index"):
        Index(tmp_path / "no.db")


# Films and programs


def test_a_generated_film_is_the_same_each_time() -> None:
    for name, make in programs.FILMS.items():
        one, other = make(7), make(7)
        assert np.array_equal(one.draw(30), other.draw(30)), name
        assert [c.text for c in one.captions] == [c.text for c in other.captions]
        assert not np.array_equal(one.draw(30), make(8).draw(30))


@pytest.mark.parametrize("program", ["room", "news", "jokes", "sport"])
def test_a_program_finds_what_a_film_shows(program: str) -> None:
    found = score.PROGRAMS[program](9)
    least = 0.98 if program == "room" else 0.9
    assert found.precision >= least and found.recall >= least, found


def test_the_recorder_gives_each_page_once() -> None:
    film = films.board(9, pages=2)
    from lastmeter.media.whiteboard import Whiteboard

    pages = score.play(film, Whiteboard()).pages
    assert len(pages) == 2
    assert all(
        score.same_page(page.image, true)
        for page, true in zip(pages, film.known["pages"], strict=True)
    )
    assert not score.same_page(pages[0].image, film.known["pages"][1])


def test_the_room_monitor_keeps_clips_within_its_room(tmp_path: Path) -> None:
    with Index(tmp_path / "index.db") as index:
        watched = programs.room("generated:room:2", tmp_path, index, keep=1)
        films_kept = list(tmp_path.glob("room-*.mp4"))
        assert len(films_kept) == 1, "only the last clip fits"
        assert [clip.path for clip in watched.clips] == [films_kept[0].name]
    frames = [
        payload
        for port, payload in video.decode(video.open_film(films_kept[0]), True, 0.0, None)
        if port == "out"
    ]
    (clip,) = watched.clips
    assert frames[-1].time == pytest.approx(clip.end - clip.begin + 2.0, abs=1.2), (
        "with what came before"
    )


def test_the_room_monitor_goes_on_when_the_disk_is_full(tmp_path: Path) -> None:
    from lastmeter.media.room import RoomMonitor

    monitor = score.play(films.room(2, 20.0), RoomMonitor(tmp_path, spare=1 << 60))
    assert monitor.dropped["disk full"] == len(monitor.spans) > 0
    assert list(tmp_path.iterdir()) == []


def test_a_film_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    writer = video.Writer(tmp_path / "film.mp4", rate=10)
    for _, frame in modules.Pattern(frames=5, width=32, height=24, rate=10).items():
        assert isinstance(frame, Frame)
        writer.picture(frame)
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_the_model_of_the_workstation_degrades_as_its_load_grows() -> None:
    late = {n: measure.model(n, seconds=20) for n in range(1, 5)}
    within = [late[n].within(0.015) for n in range(1, 5)]
    assert within == sorted(within, reverse=True) and within[0] == 1.0


def test_rates_of_the_published_programs_are_measured_and_modelled() -> None:
    found = list(measure.rates(frames=3))
    assert {(rate.width, rate.height) for rate in found} == set(measure.TABLE_8)
    for rate in found:
        assert rate.published == measure.TABLE_8[rate.width, rate.height][rate.program == "edge"]
        assert rate.seconds > 0 and rate.model <= measure.CAMERA
    modelled = {(rate.program, rate.width): rate.model for rate in found}
    # By hand: 18 + 8.3 ms for a quarter of the pixels, so 105 ms, the fourth picture of 30 a second.
    assert modelled["edge", 640] == 7.5 and modelled["puzzle", 640] == 15.0


@pytest.mark.parametrize("arguments", [["--help"], ["graph"], ["graph", "--json"], ["nothing"]])
def test_a_full_disk_is_an_error(arguments: list[str]) -> None:
    line = [sys.executable, "-m", "lastmeter.media", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    # What is wrong with the arguments comes first.
    assert "No space left on device" in done.stderr or arguments == ["nothing"]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def run(*arguments: str, status: int = 0) -> str:
    line = [sys.executable, "-m", "lastmeter.media", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def test_the_commands_answer(tmp_path: Path) -> None:
    assert "captions" in run("graph")
    out = tmp_path / "clips"
    lines = run(
        "jokes", "generated:comedy:2", "--out", str(out), "--json", "--traffic"
    ).splitlines()
    clips = [json.loads(line) for line in lines]
    assert len([clip for clip in clips if "title" in clip]) == 10
    assert clips[-1]["published"]["bits"] == "6 Mb/s"
    assert "did you mean" not in run("sport", "nowhere.mp4", "--out", str(out), status=2)
    assert "no index" in run("browse", str(tmp_path / "none"), status=2)
    assert "8 numbers" in run("board", "generated:board:1", "--corners", "1,2", status=2)
    assert command.main(["score", "jokes", "--seeds", "4", "--json"]) == 0


#: Commands of the page that need what a test does not have, or more time.
NOT_RUN = ("browse", "desk", "precision", "score", "rover", "puzzle")


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "media.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    commands = [line.split("#")[0].split()[2:] for line in lines]
    assert len(commands) > 10 and all(line.startswith("lastmeter media ") for line in lines)
    monkeypatch.chdir(tmp_path)
    for arguments in commands:
        if arguments[0] not in NOT_RUN:
            run(*arguments)
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "media.md", "exec"), {})
        elif kind == "toml":
            assert "nowhere" not in text and files.build(tomllib.loads(text)).joints


def test_pictures_pass_by_the_host_of_a_desk_area_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from lastmeter.media import desk

    built = Path(__file__).parents[2] / "target" / "debug" / "lastmeterd"
    if "LASTMETERD" not in os.environ and built.exists():
        monkeypatch.setenv("LASTMETERD", str(built))
    why = desk.missing()
    if why is not None:
        pytest.skip(why)
    found = desk.demonstrate(1.0, said=lambda _: None)
    answers = found["answers"]
    assert answers["to display"]["pictures"] >= 15 and answers["to display"]["refused"] == 0, found
    assert answers["to disk"]["pictures"] >= 15, found
    assert found["host"] < 100_000 < found["bytes"]["display"]["rx"], found
    # N-01: sound, too, from device to device.
    sound = answers["to speaker"]
    assert "error" not in sound and answers["to disk, sound"]["packets"] > 0, found
    missing = sound["lost"] + sound["late"] + answers["to disk, sound"]["concealed"]
    assert sound["same"] or missing or sound["concealed"], found
    if not sound["same"]:
        print(f"UNDECIDED: a busy machine was late with sound: {sound}")
    assert "no client has this token" in answers["sound to stranger"]["error"], found
    assert found["bytes"]["audio"]["tx"] > 96_000 < found["bytes"]["audio"]["rx"], found
    assert answers["stranger"]["size"] == [320, 240] and answers["stranger"]["own"] == 0, found
    assert answers["stranger"]["beyond"] != 0, "nothing outside of the region"
    assert answers["camera"] == {"device": "camera", "width": 320, "height": 240, "receivers": 0}
    assert "owner" in answers["theft"]["error"], "the display shows what its owner says"
    assert "nobody has this token" in answers["camera to stranger"]["error"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[" * 30_000, "not a line of JSON"),
        ("\xff", "not a line of JSON"),
        ("[1]", "no object"),
        ('{"do": "stream"}', "only the owner"),
        ('{"do": "stream", "owner": "\\u00fc"}', "only the owner"),
        ('{"do": "stream", "owner": "mine", "from": "file:///etc/passwd"}', "http:// address"),
        ('{"do": "stream", "owner": "mine", "from": "http://x", "pictures": []}', "pictures: a whole"),
        ('{"do": "stream", "owner": "mine", "from": "http://x", "pictures": 1000000}', "pictures: a whole"),
    ],
)
def test_a_receiver_answers_whatever_it_is_asked(line: str, says: str) -> None:
    from lastmeter.media.desk import Receiver

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(line.encode("latin-1") + b"\n")
        Receiver("mine", "127.0.0.1:1")._converse(theirs)
        assert says in json.loads(ours.recv(65536))["error"]
