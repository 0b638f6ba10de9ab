"""Detection of files outside the project whose names occur in the content of a source.

The content may spell a name in different ways. Files of the system are ignored.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.worker import reads
from aptui.worker.reads import find_named_by_content, is_of_the_system


@pytest.mark.parametrize(
    "content",
    [
        '{"uri": "../../secret/my key"}',
        "map_Kd ../../secret/my key\n",
        "'..\\..\\secret\\my key'",
        '"..%2f../secret/my%20key"',
        '"%2e%2e/%2e%2e/secret/./x/../my key"',
        "include <{outside}/my key>",
        'src="file://{outside}/my key"',
        "FILE:{outside}/my%20key\0",
        "assets/pack/../../secret/my key",
    ],
)
def test_search_finds_content_that_names_a_file_outside_the_project(tmp_path: Path, content: str) -> None:
    outside, source = tmp_path / "secret", tmp_path / "assets" / "pack" / "a.bin"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"\xff\0 " + content.replace("{outside}", str(outside)).encode())
    roots = [str(tmp_path / "assets"), str(tmp_path)]

    found = find_named_by_content([f"{outside}/other", f"{outside}/my key"], [f"{tmp_path}/none", str(source)], roots)

    assert found == (f"{outside}/my key", str(source))


@pytest.mark.parametrize("content", ["my key", '"other/my key"', "/elsewhere/my key", "../my key", "x" * 10_000 + "my key", ""])
def test_content_that_names_a_file_of_another_folder_does_not_match(tmp_path: Path, content: str) -> None:
    source = tmp_path / "a.bin"
    source.write_text(content)

    assert find_named_by_content([f"{tmp_path}-secret/my key"], [str(source)], [str(tmp_path)]) == ("", "")


class Counted(bytes):
    """Text that counts the bytes that `rfind` searches. The count must not grow with the square of the text's length."""

    searched = 0

    def rfind(self, mark: bytes, start: int, end: int) -> int:  # type: ignore[override]
        Counted.searched += end - start
        return super().rfind(mark, start, end)


def test_search_for_file_names_takes_linear_time_in_text_that_is_one_long_name() -> None:
    text = Counted(b"k" * 4_000)
    Counted.searched = 0

    assert len(list(reads._names(text, b"k"))) == len(reads._ENDS), "one name for each set of bytes that end a name"
    assert Counted.searched <= len(text) * sum(map(len, reads._ENDS))


def test_search_of_large_text_takes_linear_time(tmp_path: Path) -> None:
    source = tmp_path / "a.bin"
    source.write_text("k" * 40_000)

    assert find_named_by_content(["/secret/k"], [str(source)], []) == ("", "")


def test_system_and_python_files_are_allowed_but_secret_files_are_not() -> None:
    assert is_of_the_system("/usr/share/fonts/a.ttf")
    assert is_of_the_system(pytest.__file__)
    assert not is_of_the_system("/etc/passwd")
    assert not is_of_the_system("/proc/self/environ")
