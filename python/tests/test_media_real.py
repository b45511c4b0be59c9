"""The Room Monitor on a real film, beside marks made by hand.

The film is ``vtest.avi`` of Debian's ``opencv-doc``: eighty seconds of a yard seen from above, which people cross. Without
it the tests are skipped with a message. Twenty of its pictures were looked at, one every 3.9 s from 2.0 s on, and it was
written down in which of them somebody is to be seen: in the whole picture always, so two parts of it are marked as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("av", reason="PyAV is not installed")

import numpy as np

from lastmeter.media import Graph, GraphError, modules
from lastmeter.media.payload import Frame
from lastmeter.media.room import Activity, RoomMonitor, part
from lastmeter.media.video import FileSource

FILM = Path("/usr/share/doc/opencv-doc/examples/data/vtest.avi")
#: Seconds of the film at which it was looked at.
INSTANTS = [2.0 + 3.9 * number for number in range(20)]
#: Left, top, width and height of what is watched, and the numbers of the pictures in which somebody is there.
MARKS: dict[str, tuple[tuple[int, int, int, int] | None, set[int]]] = {
    "all": (None, set(range(20))),
    "lawn": ((0, 330, 460, 246), {13, 14, 15, 16, 17}),
    "path": ((0, 120, 230, 150), {5, 6, 7, 13, 14, 15, 16, 17, 18}),
}


def test_the_room_monitor_agrees_with_marks_made_by_hand() -> None:
    if not FILM.exists():
        pytest.skip(f"{FILM} is missing (Debian: opencv-doc)")
    graph = Graph(title="yard")
    graph.add("film", FileSource(FILM))
    monitors = {}
    for name, (region, _) in MARKS.items():
        monitors[name] = graph.add(name, RoomMonitor(activity=Activity(region=region)))
        graph.add(f"{name} end", modules.Discard())
        graph.join("film.out", f"{name}.in")
        graph.join(f"{name}.out", f"{name} end.in")
    graph.run()
    wrong = {}
    for name, (_, marked) in MARKS.items():
        spans = monitors[name].spans
        said = {
            number
            for number, at in enumerate(INSTANTS)
            if any(begin <= at < end for begin, end in spans)
        }
        wrong[name] = sorted(said ^ marked)
        print(f"{name}: agrees on {20 - len(wrong[name])} of 20, not on {wrong[name]}")
    # At 17.6 s the path is empty for half a second between two people, less than the monitor lingers.
    assert wrong["all"] == [] and wrong["lawn"] == [] and set(wrong["path"]) <= {4}, wrong


def test_a_region_is_watched_alone() -> None:
    rng = np.random.default_rng(5)
    still = rng.integers(60, 200, (120, 160, 3), np.uint8)
    left, right = Activity(region=(0, 0, 80, 120)), Activity(region=(80, 0, 80, 120))
    shares = []
    for number in range(20):
        image = still.copy()
        if number >= 10:
            image[30:100, 100:130] = 0
        frame = Frame(number / 10, 0.1, image=image, number=number)
        shares.append((left.measure(frame), right.measure(frame)))
    assert all(share == (0.0, 0.0) for share in shares[:10])
    assert all(one == 0.0 and other > 0.1 for one, other in shares[10:])


@pytest.mark.parametrize(
    ("region", "says"),
    [((100, 0, 80, 120), "80x120 at 100,0 is not inside pictures of 160x120"), ((-1, 0, 5, 5), "write left")],
)
def test_a_region_outside_of_the_picture_says_so(
    region: tuple[int, int, int, int], says: str
) -> None:
    with pytest.raises(GraphError, match=says):
        part(np.zeros((120, 160), np.uint8), region)
