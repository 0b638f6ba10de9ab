"""Columns and tables as peewee has them and O3DE wants them; which there are is said in `o3de` and `ours`.

Tests: `tests/store/queries/test_reader.py`.
"""

from __future__ import annotations

from peewee import SQL, ForeignKeyField, IntegerField, Model, Node, TextField


def text(column: str, *, default: str | None = None, primary_key: bool = False) -> TextField:
    """Return a column of text that is compared as O3DE compares it: `A` is `a`; `default` is SQL."""
    constraints: list[Node] = [] if default is None else [SQL(f"DEFAULT {default}")]
    return TextField(column_name=column, collation="NOCASE", constraints=constraints, primary_key=primary_key)


def number(column: str, default: int | None = None) -> IntegerField:
    """Return a column of integers."""
    return IntegerField(column_name=column, constraints=[] if default is None else [SQL(f"DEFAULT {default}")])


def owner(model: type[Model], column: str) -> ForeignKeyField:
    """Return a column that names the row of `model` with which this one goes."""
    return ForeignKeyField(model, column_name=column, on_delete="CASCADE", index=False, backref="+")


class DatabaseTable(Model):
    """A table that is called what it says."""

    class Meta:
        legacy_table_names = False
