"""Rows of tables, and parts of a ledger: dicts whose values are also attributes."""

from __future__ import annotations

from typing import Any


class Row(dict[str, Any]):
    """A dict whose values are also attributes.

    >>> from lastmeter.row import Row
    >>> row = Row(stage="bob.cpu", wait_mean=1e-6)
    >>> row.stage, row["wait_mean"]
    ('bob.cpu', 1e-06)
    >>> row.wait
    Traceback (most recent call last):
    AttributeError: there is no `wait`; there are stage, wait_mean
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no `{name}`; there are {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]
