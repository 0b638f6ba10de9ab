from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aptui
from aptui.shared.forms import prepare_form

_AT_ONCE = """
import sys, threading, types
import msgspec
from aptui.shared.forms import prepare_form

FORMS = '''
from __future__ import annotations
from msgspec import Struct
class Inner(Struct, frozen=True):
    number: int = 0
    text: str = ""
    numbers: tuple[int, ...] = ()
class Outer(Struct, frozen=True):
    inner: tuple[Inner, ...] = ()
    counts: dict[str, int] | None = None
'''
sys.setswitchinterval(1e-6)
for n in range(200):
    module = sys.modules[f"forms{n}"] = types.ModuleType(f"forms{n}")
    exec(FORMS, module.__dict__)
    together = threading.Barrier(4)
    def decode():
        together.wait()
        found = msgspec.json.decode(b'{"inner": [{"number": 1}], "counts": {"a": 1}}', type=prepare_form(module.Outer))
        assert found.inner[0].number == 1
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
_DECODING = {
    "msgspec.json.decode",
    "msgspec.msgpack.decode",
    "msgspec.json.Decoder",
    "msgspec.msgpack.Decoder",
    "msgspec.convert",
    "convert",
}
_LAST_WORDS = {name.rpartition(".")[2] for name in _DECODING}


@pytest.mark.real
def test_simultaneous_first_decoding_of_a_type_does_not_crash() -> None:
    ended = subprocess.run([sys.executable, "-c", _AT_ONCE], check=False, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_prepared_type_equals_the_given_type() -> None:
    assert prepare_form(int | None) == int | None
    assert prepare_form(dict[bytes, int]) == dict[bytes, int]


def test_every_module_prepares_the_types_that_it_decodes() -> None:
    """Modules in `builders/` may decode unprepared types, because only one thread of a process calls builders at a time."""
    package = Path(aptui.__file__).parent

    found = [path.relative_to(package) for path in package.rglob("*.py") if any(_unprepared(path.read_text(encoding="utf-8")))]

    assert [path for path in found if path.parts[0] != "builders"] == [Path("shared/forms.py")]


def _unprepared(source: str) -> Iterator[int]:
    """Yield the line numbers of calls that decode into a type without `prepare_form`. A call without a type is allowed."""
    if "msgspec" not in source or not any(f"{word}(" in source for word in _LAST_WORDS):
        return
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", getattr(call.func, "id", "")) not in _LAST_WORDS:
            continue
        if (name := ast.unparse(call.func)) in _DECODING:
            named = [keyword.value for keyword in call.keywords if keyword.arg == "type"]
            place = 0 if name.endswith("Decoder") else 1
            for form in named or call.args[place : place + 1]:
                if not ast.unparse(form).startswith("prepare_form("):
                    yield call.lineno
