"""One index of films, clips, captions and events, in a file of SQLite with full-text search (FTS5)."""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .payload import Caption

#: Version of the tables; a file of another is refused.
VERSION = 1
#: Rows that a search gives at the most.
FOUND_MAX = 1000

_TABLES = """
CREATE TABLE film (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, title TEXT NOT NULL, seconds REAL, added REAL NOT NULL);
CREATE TABLE clip (
    id INTEGER PRIMARY KEY, film INTEGER REFERENCES film(id) ON DELETE CASCADE, program TEXT NOT NULL,
    begin REAL NOT NULL, "end" REAL NOT NULL, title TEXT NOT NULL DEFAULT '', score REAL NOT NULL DEFAULT 0,
    at REAL NOT NULL, path TEXT NOT NULL DEFAULT '', more TEXT NOT NULL DEFAULT '{}');
CREATE INDEX clip_program ON clip(program, at);
CREATE VIRTUAL TABLE words USING fts5(
    text, clip UNINDEXED, begin UNINDEXED, "end" UNINDEXED, tokenize = 'porter unicode61');
"""


class BadIndex(ValueError):
    """An index that cannot be used; the message says why."""


def thumbnail_name(clip: int) -> str:
    """The file beside an index with the small picture of a clip."""
    return f"clip-{clip}.jpg"


@dataclass
class Clip:
    """A part of a film that a program found: a story, a joke, a page, somebody in a room."""

    program: str
    begin: float
    end: float
    title: str = ""
    #: What clips of a program are ranked by: activity, laughter.
    score: float = 0.0
    #: When it was recorded, in seconds since 1970.
    at: float = field(default_factory=time.time)
    #: A file of its own, relative to the index; empty if it is a part of the film's.
    path: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    id: int = 0
    film: int = 0


class Index:
    """Films and their clips. Use it as a context manager, or close it.

    >>> with Index(":memory:") as index:
    ...     film = index.film("evening.mkv", "Evening news", 1800)
    ...     story = index.add(film, Clip("news", 0, 95, "storm"), [Caption(3, 4, text="A storm is coming")])
    ...     [(clip.title, line) for clip, line, _ in index.search("storms")]
    [('storm', 'A [storm] is coming')]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, check_same_thread=False)
            self._db.execute("PRAGMA foreign_keys = ON")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                with self._db:
                    self._db.executescript(_TABLES)
                    self._db.execute(f"PRAGMA user_version = {VERSION}")
            elif version != VERSION:
                raise BadIndex(
                    f"`{path}` is an index of version {version}; this program reads {VERSION}"
                )
        except sqlite3.DatabaseError as error:
            raise BadIndex(f"`{path}` is no index: {error}") from error

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the file."""
        self._db.close()

    def film(self, path: str, title: str = "", seconds: float | None = None) -> int:
        """The number of a film, which is added if it is new."""
        with self._db:
            self._db.execute(
                "INSERT INTO film(path, title, seconds, added) VALUES (?, ?, ?, ?) "
                "ON CONFLICT(path) DO UPDATE SET title = excluded.title, seconds = coalesce(excluded.seconds, seconds)",
                (path, title or Path(path).stem, seconds, time.time()),
            )
        return int(self._db.execute("SELECT id FROM film WHERE path = ?", (path,)).fetchone()[0])

    def add(self, film: int, clip: Clip, captions: Iterable[Caption] = ()) -> int:
        """Adds a clip with what is said in it."""
        with self._db:
            cursor = self._db.execute(
                'INSERT INTO clip(film, program, begin, "end", title, score, at, path, more) VALUES (?,?,?,?,?,?,?,?,?)',
                (
                    film,
                    clip.program,
                    clip.begin,
                    clip.end,
                    clip.title,
                    clip.score,
                    clip.at,
                    clip.path,
                    json.dumps(clip.more),
                ),
            )
            number = int(cursor.lastrowid or 0)
            self._db.executemany(
                "INSERT INTO words VALUES (?, ?, ?, ?)",
                [(cue.text, number, cue.time, cue.end) for cue in captions],
            )
        return number

    def forget(self, film: int, program: str) -> None:
        """Removes the clips that a program found in a film, before it looks again."""
        with self._db:
            self._db.execute(
                "DELETE FROM words WHERE clip IN (SELECT id FROM clip WHERE film = ? AND program = ?)",
                (film, program),
            )
            self._db.execute("DELETE FROM clip WHERE film = ? AND program = ?", (film, program))

    def remove(self, clip: int) -> None:
        """Removes a clip."""
        with self._db:
            self._db.execute("DELETE FROM words WHERE clip = ?", (clip,))
            self._db.execute("DELETE FROM clip WHERE id = ?", (clip,))

    def films(self) -> list[dict[str, Any]]:
        """All films."""
        rows = self._db.execute("SELECT id, path, title, seconds FROM film ORDER BY title")
        return [dict(zip(("id", "path", "title", "seconds"), row, strict=True)) for row in rows]

    def clip(self, number: int) -> Clip | None:
        """A clip by its number."""
        return next(iter(self._clips("WHERE id = ?", (number,))), None)

    def clips(
        self,
        program: str | None = None,
        *,
        film: int | None = None,
        since: float | None = None,
        until: float | None = None,
        least: float | None = None,
        ranked: bool = False,
    ) -> list[Clip]:
        """Clips by program, film, time of recording and least score; ranked by score, else in order of time."""
        wanted = [
            ("program = ?", program),
            ("film = ?", film),
            ("at >= ?", since),
            ("at <= ?", until),
            ("score >= ?", least),
        ]
        used = [(term, value) for term, value in wanted if value is not None]
        where = "WHERE " + " AND ".join(term for term, _ in used) if used else ""
        order = "score DESC" if ranked else "at, begin"
        return self._clips(
            f"{where} ORDER BY {order} LIMIT {FOUND_MAX}", tuple(value for _, value in used)
        )

    def search(self, text: str, program: str | None = None) -> list[tuple[Clip, str, float]]:
        """Clips in which words are said, the best first: the clip, the line with the words in brackets, and its time."""
        words = " ".join('"' + word.replace('"', "") + '"' for word in text.split())
        if not words:
            return []
        rows = self._db.execute(
            "SELECT clip, snippet(words, 0, '[', ']', '...', 16), begin FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?",
            (words, FOUND_MAX),
        ).fetchall()
        found: list[tuple[Clip, str, float]] = []
        seen: set[int] = set()
        for number, line, begin in rows:
            clip = None if number in seen else self.clip(number)
            seen.add(number)
            if clip is not None and program in (None, clip.program):
                found.append((clip, line, begin))
        return found

    def said(self, clip: int) -> list[tuple[float, float, str]]:
        """What is said in a clip: begin, end, text."""
        return self._db.execute(
            'SELECT begin, "end", text FROM words WHERE clip = ? ORDER BY begin', (clip,)
        ).fetchall()

    def _clips(self, rest: str, values: tuple[Any, ...]) -> list[Clip]:
        columns = 'program, begin, "end", title, score, at, path, more, id, film'
        rows = self._db.execute(f"SELECT {columns} FROM clip {rest}", values)
        return [
            Clip(
                program=row[0],
                begin=row[1],
                end=row[2],
                title=row[3],
                score=row[4],
                at=row[5],
                path=row[6],
                more=json.loads(row[7]),
                id=row[8],
                film=row[9],
            )
            for row in rows
        ]
