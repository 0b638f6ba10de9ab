"""Reads the words of a verb without `argparse`, whose import and declarations take a tenth of a short command.

It reads the usual forms only: options by their full names, and one positional argument. For any other words, such as a mistake or
`--help`, it returns None, and the caller lets `argparse` read the words (`cli.parser`). A test compares the results of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_FLAGS = {"store_true": True, "store_false": False}


def read(declare: Callable[[ArgumentParser], object], words: Sequence[str]) -> Namespace | None:
    """Return the arguments in `words`, as `declare` declares them; return None if only `argparse` can read the words."""
    declared = _Declared()
    try:
        declare(cast("ArgumentParser", declared))
        return cast("Namespace", declared.read(words))
    except _NotPlainError:
        return None


class _NotPlainError(Exception):
    """Raised if the command line, or a verb's declaration of its arguments, is too complex for this module."""


class _Argument:
    """One declared argument. At most one argument of a `group` may be given."""

    def __init__(self, dest: str, group: list[_Argument] | None, options: dict[str, Any]) -> None:
        self.dest, self.group = dest, group
        self.action: object = options.get("action", "store")
        self.nargs: object = options.get("nargs")
        self.default: object = options.get("default", None if self.action not in _FLAGS else not _FLAGS[str(self.action)])
        self.is_required = bool(options.get("required"))
        self._convert: Callable[[str], object] = options.get("type", str)
        self._choices: Collection[object] | None = options.get("choices")
        if isinstance(self.default, str) and self._convert is not str:
            raise _NotPlainError  # only `argparse` converts a default value, so it has to parse the command line

    def value(self, word: str) -> object:
        """Return the value of one word, converted and checked."""
        try:
            value = self._convert(word)
        except Exception:  # noqa: BLE001 - `argparse` calls the converter again and reports the error
            raise _NotPlainError from None
        if self._choices is not None and value not in self._choices:
            raise _NotPlainError
        return value


class _Group:
    """Options that exclude each other."""

    def __init__(self, parser: _Declared) -> None:
        self._parser, self._members = parser, list[_Argument]()

    def add_argument(self, *names: str, **options: Any) -> None:
        self._members.append(self._parser.add_argument(*names, group=self._members, **options))


class _Declared:
    """The declared arguments of a verb.

    `declare` is called with this class in place of an `ArgumentParser`, so it has the same methods to declare arguments.
    """

    def __init__(self) -> None:
        self._options: dict[str, _Argument] = {}
        self._positional: _Argument | None = None
        self._defaults: dict[str, object] = {}

    def __getattr__(self, name: str) -> NoReturn:
        raise _NotPlainError  # `declare` called a method of `ArgumentParser` that `_Declared` does not implement

    def add_argument(self, *names: str, group: list[_Argument] | None = None, **options: Any) -> _Argument:
        is_option = names[0].startswith("-")
        name = next((each for each in names if each.startswith("--")), names[0])
        argument = _Argument(options.pop("dest", "") or name.lstrip("-").replace("-", "_"), group, options)
        self._defaults.setdefault(argument.dest, argument.default)
        if is_option:
            self._options.update(dict.fromkeys(names, argument))
        elif self._positional is None:
            self._positional = argument
        else:
            raise _NotPlainError
        return argument

    def add_mutually_exclusive_group(self) -> _Group:
        return _Group(self)

    def set_defaults(self, **defaults: object) -> None:
        self._defaults.update(defaults)

    def read(self, words: Sequence[str]) -> SimpleNamespace:
        """Return the value of each declared argument."""
        found, used = dict(self._defaults), set[_Argument]()
        positional: list[str] = []
        left = list(reversed(words))
        ended = -1
        while left:
            word = left.pop()
            if not word.startswith("-"):
                if ended not in (-1, len(left) + 1):
                    raise _NotPlainError  # only `argparse` can read positional words with options between them
                ended = len(left)
                positional.append(word)
                continue
            argument = self._read_option(word, left, found)
            if any(each in used for each in argument.group or () if each is not argument):
                raise _NotPlainError
            used.add(argument)
        if any(each.is_required and each not in used for each in self._options.values()):
            raise _NotPlainError
        self._read_positional(positional, found, comes_first=ended == len(words) - len(positional))
        return SimpleNamespace(**found)

    def _read_option(self, word: str, left: list[str], found: dict[str, Any]) -> _Argument:
        name, has_value, text = word.partition("=")
        argument = self._options.get(name)
        if argument is None or argument.nargs is not None:
            raise _NotPlainError
        if argument.action in _FLAGS and not has_value:
            found[argument.dest] = _FLAGS[str(argument.action)]
            return argument
        if argument.action not in ("store", "append"):
            raise _NotPlainError
        text = text if has_value else left.pop() if left else ""
        if not text or text.startswith("-"):
            raise _NotPlainError
        value = argument.value(text)
        found[argument.dest] = [*(found[argument.dest] or ()), value] if argument.action == "append" else value
        return argument

    def _read_positional(self, words: list[str], found: dict[str, Any], *, comes_first: bool) -> None:
        argument = self._positional
        if argument is None:
            if words:
                raise _NotPlainError
            return
        values = [argument.value(word) for word in words]
        if argument.nargs is None and len(values) == 1:
            found[argument.dest] = values[0]
        elif argument.nargs == "+" and values:
            found[argument.dest] = values
        elif argument.nargs in ("?", "*") and values and comes_first and (argument.nargs == "*" or len(values) == 1):
            found[argument.dest] = values if argument.nargs == "*" else values[0]
        elif argument.nargs != "?" or values:
            raise _NotPlainError  # leave it to `argparse`: the number of words may be wrong, or words follow options
