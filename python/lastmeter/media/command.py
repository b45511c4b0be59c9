"""``lastmeter media``: graphs of modules, the programs for pictures, what they cost and how well they do.

Exit status: 0 done, 1 ran but fell short (a score below 0.9, timeouts later than 15 ms), 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import account, beside, desk, files, measure, programs, score, web
from .captions import CaptionError
from .dispatcher import Dispatcher
from .graph import GraphError
from .index import BadIndex, Clip, Index
from .network import DeviceError
from .video import VideoError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .traffic import Component

    from _typeshed import SupportsWrite

#: A program's precision and recall below this fall short.
GOOD = 0.9


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status. What cannot be printed is an error."""
    try:
        status = _run(arguments)
    except SystemExit as leaving:  # Of argparse, after help or a mistake.
        status = leaving.code if isinstance(leaving.code, int) else 2
    try:
        sys.stdout.flush()
    except OSError as error:
        # Nothing is left to be printed when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # After a closed pipe the reader has all it wants.
        if not isinstance(error, BrokenPipeError):
            print(f"error: cannot write standard output: {error.strerror}", file=sys.stderr)
            status = 2
    return status


def _run(arguments: Sequence[str] | None) -> int:
    try:
        options = parser().parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except (
        BadIndex,
        CaptionError,
        DeviceError,
        GraphError,
        VideoError,
        programs.ProgramError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


class Parser(argparse.ArgumentParser):
    """A parser whose help is printed, or is an error: that of the library is silent when it cannot be."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        print(self.format_help(), end="", file=file)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = Parser(
        prog="lastmeter media",
        description=(__doc__ or "").split("\n\n")[0],
        epilog="Example: lastmeter media room generated:room:1 --out room && lastmeter media browse room",
    )
    commands = whole.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], int], what: str, example: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=what, description=what, epilog=f"Example: lastmeter media {example}"
        )
        command.set_defaults(run=run)
        command.add_argument("--json", action="store_true", help="print JSON, and nothing else")
        return command

    graph = add("graph", _graph, "draw and run a graph of modules", "graph edges.toml --seconds 10")
    graph.add_argument(
        "file",
        type=Path,
        nargs="?",
        help="a graph as TOML; without one, the modules that it can name",
    )
    graph.add_argument("--seconds", type=float, help="stop after so long")
    graph.add_argument(
        "--every",
        type=float,
        default=2.0,
        help="seconds between two tables while it runs (default 2)",
    )
    graph.add_argument("--ledger", type=Path, help="write the ledger into this file")
    for name, what, example in (
        (
            "room",
            "Room Monitor: clips of each time that somebody is in a room",
            "room /dev/video0 --out room",
        ),
        ("board", "Whiteboard Recorder: the pages of a board", "board lecture.mp4 --pdf pages.pdf"),
        (
            "news",
            "News Browser: the stories of a programme with captions",
            "news evening.mkv --captions evening.vtt",
        ),
        (
            "jokes",
            "Joke Browser: the jokes of a comedy, ranked by laughter",
            "jokes show.mp4 --captions show.srt",
        ),
        ("sport", "Sports Highlight Browser: a clip at each change of the score", "sport game.mp4"),
    ):
        command = add(name, _program, what, example)
        command.set_defaults(program=name)
        command.add_argument(
            "film", help="a path, an address, nbd://host:port/token, or generated:NAME:SEED"
        )
        command.add_argument(
            "--out",
            type=Path,
            default=Path("clips"),
            help="folder of the index and clips (default clips)",
        )
        command.add_argument(
            "--traffic", action="store_true", help="print what was sent, beside the published table"
        )
        if name in ("news", "jokes"):
            command.add_argument("--captions", type=Path, help="WebVTT or SubRip")
        if name in ("room", "board"):
            command.add_argument("--seconds", type=float, help="stop after so long")
        if name == "room":
            command.add_argument(
                "--region",
                type=_numbers(4),
                help="of the pictures that is watched: x,y,width,height (default: all)",
            )
            command.add_argument(
                "--pace",
                type=float,
                default=0.0,
                help="1 plays a file as fast as a clock (default: as fast as it goes)",
            )
            command.add_argument(
                "--keep",
                type=float,
                default=10e9,
                help="bytes of clips to keep; the oldest go (default 10e9)",
            )
        if name == "board":
            command.add_argument(
                "--corners",
                type=_numbers(8),
                help="of the board, clockwise from top left: 8 numbers with commas",
            )
            command.add_argument("--pdf", type=Path, help="write the pages into this file")
        if name == "sport":
            command.add_argument(
                "--region", type=_numbers(4), help="of the scoreboard: x,y,width,height"
            )
    browse = add("browse", _browse, "a page of the clips in a folder", "browse clips")
    browse.add_argument("folder", type=Path, nargs="?", default=Path("clips"))
    browse.add_argument("--port", type=int, default=0)
    browse.add_argument(
        "--traffic",
        action="store_true",
        help="at the end, print what was fetched and shown of the clips, beside the published table",
    )
    for name, run, what in (
        ("rover", _rover, "Video Rover: several cameras in one window"),
        ("puzzle", _puzzle, "a live picture as a sliding puzzle"),
    ):
        command = add(name, run, what, f"{name} generated:room:1 --seconds 10")
        command.add_argument(
            "camera", nargs="+" if name == "rover" else None, help="as the films of other commands"
        )
        command.add_argument(
            "--display",
            default="",
            help="a network display, host:port, or an X screen, x11::0; else a browser",
        )
        command.add_argument("--token", default="", help="for the display")
        command.add_argument("--port", type=int, default=0, help="for the browser")
        command.add_argument("--seconds", type=float, help="stop after so long")
        if name == "rover":
            command.add_argument(
                "--traffic", action="store_true", help="print what was sent, beside the published table"
            )
        if name == "puzzle":
            command.add_argument("--side", type=int, default=4, help="tiles in a row (default 4)")
    desk_command = add(
        "desk",
        _desk,
        "camera, disk, display, audio and host as a network, with pictures and sound past the host (root)",
        "desk --seconds 5",
    )
    desk_command.add_argument(
        "--seconds", type=float, default=2.0, help="of each stream (default 2)"
    )
    film = add(
        "film",
        _film,
        "write a generated film with its captions and truth",
        "film news 1 --out films",
    )
    film.add_argument("name", choices=sorted(programs.FILMS))
    film.add_argument("seed", type=int)
    film.add_argument("--out", type=Path, default=Path())
    scored = add(
        "score",
        _score,
        "how well the programs find what generated films show",
        "score room --seeds 4,5",
    )
    scored.add_argument("program", nargs="*", help=f"of {', '.join(score.PROGRAMS)}; default: all")
    scored.add_argument(
        "--seeds",
        default=",".join(map(str, score.SEEDS)),
        help="default %(default)s; constants were chosen on 1 to 3",
    )
    cost = add(
        "cost",
        _cost,
        "what each module takes for a frame, and programs' rates, beside Tables 8 and 9",
        "cost --frames 500",
    )
    cost.add_argument("--frames", type=int, default=200)
    precise = add(
        "precision",
        _precision,
        "how late timeouts are with 1 to 4 processes, beside Table 10",
        "precision --seconds 10",
    )
    precise.add_argument("--seconds", type=float, default=5.0)
    precise.add_argument("--processes", type=int, default=4)
    return whole


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.json:
        print(text, flush=True)


def _graph(options: argparse.Namespace) -> int:
    if options.file is None:
        print(files.kinds())
        return 0
    graph = files.load(options.file)
    _say(options, account.drawing(graph) + "\n")
    if not options.json and options.every > 0:
        _report_while(graph, graph.dispatcher, options.every)
    graph.run(options.seconds)
    found = graph.ledger()
    if options.ledger is not None:
        options.ledger.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found) if options.json else account.table(graph))
    return 0


def _report_while(graph: Any, dispatcher: Dispatcher, every: float) -> None:
    if not sys.stderr.isatty():
        return

    def report() -> None:
        if not graph.stopped and not all(module.drained for module in graph.modules.values()):
            print(account.table(graph), "\n", file=sys.stderr)
            dispatcher.timeout(dispatcher.now() + every, report)

    dispatcher.timeout(dispatcher.now() + every, report)


def _program(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    with Index(options.out / "index.db") as index:
        watched = _watch(options, index)
    clips = watched.clips
    if options.json:
        for clip in clips:
            print(json.dumps(_clip(clip)))
        if options.traffic:
            for component in watched.traffic:
                print(json.dumps(component.to_dict()))
        return 0
    for clip in clips:
        print(
            f"{_clock(clip.begin):>8} to {_clock(clip.end):>8}  {clip.title}"
            + (f"  {clip.path}" if clip.path else "")
        )
    print(
        f"\n{len(clips)} {'clip' if len(clips) == 1 else 'clips'} in {options.out}; look at them: lastmeter media browse {options.out}"
    )
    if options.traffic:
        print("\n" + traffic_table(watched.traffic))
    return 0


def _watch(options: argparse.Namespace, index: Index) -> programs.Watched:
    match options.program:
        case "room":
            return programs.room(
                options.film,
                options.out,
                index,
                pace=options.pace,
                seconds=options.seconds,
                keep=int(options.keep),
                region=_region(options.region),
            )
        case "board":
            numbers = options.corners
            corners = (
                None if numbers is None else list(zip(numbers[::2], numbers[1::2], strict=True))
            )
            return programs.board(
                options.film,
                options.out,
                index,
                corners=corners,
                pdf=options.pdf,
                seconds=options.seconds,
            )
        case "news":
            return programs.news(options.film, index, captions=options.captions, folder=options.out)
        case "jokes":
            return programs.comedy(
                options.film, index, captions=options.captions, folder=options.out
            )
        case _:
            return programs.sport(
                options.film, index, region=_region(options.region), folder=options.out
            )


def _region(numbers: list[float] | None) -> tuple[int, int, int, int] | None:
    if numbers is None:
        return None
    x, y, width, height = map(int, numbers)
    return x, y, width, height


def _numbers(count: int) -> Callable[[str], list[float]]:
    """Reads so many numbers of an option."""

    def read(text: str) -> list[float]:
        try:
            found = [float(part) for part in text.split(",")]
        except ValueError:
            found = []
        if len(found) != count:
            raise argparse.ArgumentTypeError(
                f"`{text}` is not {count} numbers with commas between them"
            )
        return found

    return read


def _clip(clip: Clip) -> dict[str, Any]:
    return {
        "program": clip.program,
        "begin": clip.begin,
        "end": clip.end,
        "title": clip.title,
        "score": clip.score,
        "path": clip.path,
    }


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{seconds % 60:04.1f}"


def traffic_table(components: Iterable[Component]) -> str:
    """What the program sent, beside the published row."""
    lines = [f"{'component':<30} {'bits':>12} {'rate':>12} {'lasts':>8} {'gap':>8}   published"]
    for component in components:
        row = component.to_dict()
        rate = "-" if row["rate"] is None else f"{row['rate'] / 1e6:.2f} Mbit/s"
        gap = "-" if row["gap"] is None else f"{row['gap']:.1f} s"
        published = row["published"]
        lines.append(
            f"{row['program'] + ', ' + row['component']:<30} {row['bits'] / 1e6:>7.1f} Mbit {rate:>12} {row['duration']:>6.1f} s {gap:>8}   "
            f"{published['bits']}, {published['duration']}, {published['gap']}"
        )
    return "\n".join(lines)


def _browse(options: argparse.Namespace) -> int:
    path = options.folder / "index.db"
    if not path.is_file():
        raise programs.ProgramError(
            f"no index in `{options.folder}`: run a program first, for example `lastmeter media room FILM`"
        )
    with Index(path) as index:
        site = web.Site(index, options.folder)
        server = web.serve(index, options.folder, options.port, site=site)
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        print(
            json.dumps({"address": address})
            if options.json
            else f"The clips are at {address}; Ctrl-C ends it.",
            flush=True,
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()
        if options.traffic:
            traffic = site.traffic()
            lines = [json.dumps(part.to_dict()) for part in traffic]
            print("\n".join(lines) if options.json else traffic_table(traffic))
    return 0


def _rover(options: argparse.Namespace) -> int:
    watched = programs.rover(
        options.camera,
        display=options.display,
        token=options.token,
        port=options.port,
        seconds=options.seconds,
        said=lambda text: _say(options, text),
    )
    status = _shown(options, watched)
    if options.traffic:
        lines = [json.dumps(part.to_dict()) for part in watched.traffic]
        print("\n".join(lines) if options.json else "\n" + traffic_table(watched.traffic))
    return status


def _puzzle(options: argparse.Namespace) -> int:
    watched = programs.puzzle(
        options.camera,
        side=options.side,
        display=options.display,
        token=options.token,
        port=options.port,
        seconds=options.seconds,
        said=lambda text: _say(options, text),
    )
    return _shown(options, watched)


def _shown(options: argparse.Namespace, watched: programs.Watched) -> int:
    print(json.dumps(watched.graph.ledger()) if options.json else account.table(watched.graph))
    return 0


def _desk(options: argparse.Namespace) -> int:
    found = desk.demonstrate(options.seconds, said=lambda text: _say(options, text))
    if options.json:
        print(json.dumps(found))
    return 0 if found["pictures"] and found["host"] < 100_000 else 1


def _film(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    paths = programs.write_film(options.name, options.seed, options.out)
    print(json.dumps([str(path) for path in paths]) if options.json else "\n".join(map(str, paths)))
    return 0


def _score(options: argparse.Namespace) -> int:
    try:
        seeds = [int(seed) for seed in options.seeds.split(",")]
    except ValueError:
        raise programs.ProgramError(
            f"--seeds `{options.seeds}`: whole numbers with commas between them"
        ) from None
    for program in options.program:
        if program not in score.PROGRAMS:
            raise programs.ProgramError(
                f"`{program}` is not scored; there are {', '.join(score.PROGRAMS)}"
            )
    right: dict[str, list[score.Score]] = {}
    for one in score.scores(options.program or score.PROGRAMS, seeds):
        right.setdefault(one.program, []).append(one)
        if options.json:
            print(json.dumps(one.to_dict()), flush=True)
        else:
            print(
                f"{one.program:<11} {one.film:<12} precision {one.precision:.3f}  recall {one.recall:.3f}",
                flush=True,
            )
    short = [program for program, ones in right.items() if min(_of(ones)) < GOOD]
    if not options.json:
        for program, ones in right.items():
            precision, recall = _of(ones)
            print(f"{program:<11} {'all films':<12} precision {precision:.3f}  recall {recall:.3f}")
    return 1 if short else 0


def _of(ones: list[score.Score]) -> tuple[float, float]:
    right, found, there = (
        sum(getattr(one, name) for one in ones) for name in ("right", "found", "there")
    )
    return right / max(found, 1e-9), right / max(there, 1e-9)


def _cost(options: argparse.Namespace) -> int:
    _say(
        options,
        f"{'module':<14} {'ms a frame':>10} {'frames/s':>9} {'Mpixel/s':>9} {'model ms':>9}   "
        "published ms: DEC 3000/400, SPARC 10/512",
    )
    for one in measure.costs(options.frames):
        if options.json:
            print(json.dumps(one.to_dict()), flush=True)
            continue
        published = ", ".join("-" if ms is None else f"{ms:g}" for ms in one.published) or "-"
        model = "-" if one.model is None else f"{one.model * 1e3:.1f}"
        print(
            f"{one.module:<14} {one.seconds * 1e3:>10.3f} {1 / one.seconds:>9.0f} {one.pixels / 1e6:>9.0f} "
            f"{model:>9}   {published}",
            flush=True,
        )
    _say(
        options,
        f"\n{'program':<8} {'size':>8} {'ms a frame':>11} {'frames/s of one core':>21} {'model':>6}   "
        "published frames/s: DEC 3000/400",
    )
    for rate in measure.rates(options.frames):
        if options.json:
            print(json.dumps(rate.to_dict()), flush=True)
            continue
        print(
            f"{rate.program:<8} {f'{rate.width}x{rate.height}':>8} {rate.seconds * 1e3:>11.3f} {1 / rate.seconds:>21.0f} "
            f"{rate.model:>6.1f}   {rate.published:g}",
            flush=True,
        )
    _say(options, f"\n{'the same by calls':<22} {'calls ms':>9} {'modules ms':>11} {'ratio':>6}")
    for chain in beside.CHAINS:
        found = beside.beside(chain)
        if options.json:
            print(json.dumps(found.to_dict()), flush=True)
            continue
        print(
            f"{found.chain:<22} {found.calls * 1e3:>9.3f} {found.graph * 1e3:>11.3f} {found.ratio:>6.3f}",
            flush=True,
        )
    return 0


def _precision(options: argparse.Namespace) -> int:
    accepted = True
    for row in measure.precision_table(options.seconds, max(1, min(4, options.processes))):
        accepted = accepted and row["accepted"]
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        print(f"{row['processes']} {'process' if row['processes'] == 1 else 'processes'}")
        for name in ("published", "model", "here"):
            cells = "  ".join(
                f"{limit * 1e3:.0f} ms {share:6.1%}"
                for limit, share in zip(row["limits"], row[name], strict=True)
            )
            print(f"  {name:<10} {cells}")
        verdict = "accepted" if row["accepted"] else "not accepted"
        print(
            f"  here p99 {row['p99'] * 1e3:.1f} ms, worst {row['worst'] * 1e3:.1f} ms: {verdict} against 15 ms",
            flush=True,
        )
    return 0 if accepted else 1
