"""Each call sees only the variables that the configuration names for its builder."""

from __future__ import annotations

import os

import pytest
from fakes import builder, scripter

from aptui.core.project import BuilderKind
from aptui.worker.variables import BuilderVariables, values_of

ONE, TWO = scripter("one", variables=(("ONES", "x"), ("BOTH", "x"))), scripter("two", variables=(("BOTH", "x"), ("LANG", "x")))


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[str, bytes], ...]:
    for name, value in {"ONES": "1", "BOTH": "b", "LANG": "de"}.items():
        monkeypatch.setenv(name, value)
    values = values_of([ONE, TWO])
    for name in ("ONES", "BOTH"):
        monkeypatch.delenv(name)
    return values


def seen() -> dict[str, str]:
    return {name: os.environ[name] for name in ("ONES", "BOTH", "LANG") if name in os.environ}


def test_builder_sees_its_own_and_the_common_variables(engine: tuple[tuple[str, bytes], ...]) -> None:
    variables = BuilderVariables([ONE, TWO, scripter("three")], engine)

    found = {}
    for name in ("one", "two", "three", "one"):
        variables.apply(name)
        found[name] = seen()

    assert found == {"one": {"ONES": "1", "BOTH": "b", "LANG": "de"}, "two": {"BOTH": "b", "LANG": "de"}, "three": {"LANG": "de"}}


def test_command_gets_the_variables_of_its_builder_and_of_all_builders(engine: tuple[tuple[str, bytes], ...]) -> None:
    variables = BuilderVariables([ONE, TWO], engine)

    names = {"ONES", "BOTH"}

    assert variables.environment("one").keys() & names == names
    assert variables.environment("two").keys() & names == {"BOTH"}


def test_variable_that_is_not_set_in_the_engine_is_not_set_for_builders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANG")

    assert values_of([TWO]) == ()


def test_builder_gets_variables_with_undecodable_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONES", os.fsdecode(b"\xff"))
    variables = BuilderVariables([ONE], values_of([ONE]))

    assert variables.environment("one")["ONES"] == os.fsdecode(b"\xff")


def test_only_builders_in_python_get_one_thread_of_openblas_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    command, named = builder("command", "*.c", BuilderKind.COMMAND), scripter("named", variables=(("OPENBLAS_NUM_THREADS", "x"),))
    variables = BuilderVariables([command, ONE, named], [("OPENBLAS_NUM_THREADS", b"8")])

    found = {name: variables.environment(name)["OPENBLAS_NUM_THREADS"] for name in ("one", "named", "command")}

    assert found == {"one": "1", "named": "8", "command": "4"}
