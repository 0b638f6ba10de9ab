"""Everything that people read is plain English, as far as a machine can see (`tests/prose.py`)."""

from pathlib import Path

import pytest
from tools import is_of_deleted_feature

from tests.prose import ALLOWED, DEFAULT, ROOT, Passage, Turn, find_turns, list_faults, list_passages

GOOD = (
    "Return the OS error text of a failed connection.",
    "No engine is running.",
    "There is no engine for this project.",
    "What happens when a worker dies?",
    "The file is no longer read.",
    "Shutdown timeout for pending uploads (seconds).",
    "`nobody` is a name in code.",
)
BAD = {
    "Return the system's word for why nobody can be reached.": "nobody",
    "What a stopped engine waits for.": "What a stopped engine waits for.",
    "'x' is no file of the project": "is no",
    "It is read anew.": "anew",
    "For so long a picture stays.": "For so long",
    "The sources that it is made of.": "is made of",
    "A list of what was found": "of what",
    "The worker knows the file.": "worker knows",
    "test who is told of it": "told",
    "Two lines of\nwhat was found": "of what",
    " ".join(["word"] * 41): "word word word word word word ...",
}


@pytest.mark.parametrize("text", GOOD)
def test_prose_check_accepts_a_plain_sentence(text: str) -> None:
    assert list(find_turns(Passage(Path("x.py"), 1, "docstring", text))) == []


@pytest.mark.parametrize(("text", "phrase"), BAD.items(), ids=list(BAD.values()))
def test_prose_check_finds_a_contorted_phrase(text: str, phrase: str) -> None:
    assert phrase in [turn.phrase for turn in find_turns(Passage(Path("x.py"), 1, "docstring", text))]


def test_phrase_in_the_second_line_is_reported_with_that_line() -> None:
    passage = Passage(Path("x.py"), 10, "comment", "The first line is fine.\nThe second is read anew.")

    assert [(turn.line, turn.phrase) for turn in find_turns(passage)] == [(11, "anew")]


def test_passages_of_a_module_are_docstrings_comments_messages_and_test_names(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""Head."""\n\n# Two lines\n# of comment.\n\ndef test_of_x():\n    raise ValueError(f"the file {1} is gone")\n',
        encoding="utf-8",
    )

    assert [(each.line, each.kind, each.text) for each in list_passages([path])] == [
        (1, "docstring", "Head."),
        (6, "test name", "test of x"),
        (7, "message", "the file `x` is gone"),
        (3, "comment", "Two lines\nof comment."),
    ]


def test_strings_of_a_test_module_are_messages_only_in_asserts(tmp_path: Path) -> None:
    path = tmp_path / "test_module.py"
    path.write_text('data = "a text for a file"\nassert data, "the file has no text"\n', encoding="utf-8")

    assert [(each.line, each.kind, each.text) for each in list_passages([path])] == [(2, "message", "the file has no text")]


def test_markdown_paragraphs_and_yaml_comments_are_passages(tmp_path: Path) -> None:
    page, config = tmp_path / "PAGE.md", tmp_path / "config.yaml"
    page.write_text("# Head\n\n```\nnobody\n```\n\nOne line\nand another.\n", encoding="utf-8")
    config.write_text("a: 1  # the first\n# the second\n", encoding="utf-8")

    assert [(each.line, each.text) for each in list_passages([page, config])] == [
        (1, "# Head"),
        (7, "One line and another."),
        (1, "the first\nthe second"),
    ]


def test_fault_says_what_to_write_instead() -> None:
    assert list(find_turns(Passage(Path("x.py"), 3, "message", "It is read anew."))) == [
        Turn(3, "anew", "restart, in the meantime, without result, also, always, still")
    ]


def list_parts() -> dict[str, list[Path]]:
    """Return {name: paths to check}: an entry for each folder of the program and of its tests, and one for the other files.

    Each entry is a test, because one test of all files could exceed its time limit on a busy machine.
    """
    split = [path for top in ("aptui", "tests") for path in sorted((ROOT / top).iterdir()) if path.name != "__pycache__"]
    rest = [ROOT / each for each in DEFAULT if each not in {"aptui", "tests"}]
    parts = {path.relative_to(ROOT).as_posix(): [path] for path in split if path.is_dir()}
    return {**parts, "rest": [*(path for path in split if path.is_file()), *rest]}


@pytest.mark.parametrize("part", list_parts())
def test_all_text_passes_the_prose_check(part: str) -> None:
    assert list_faults(list_parts()[part]) == []


def test_every_exception_of_the_prose_check_still_occurs() -> None:
    found = {
        f"{passage.path.relative_to(ROOT).as_posix()}: {turn.phrase.lower()}"
        for name in ALLOWED
        for passage in list_passages([ROOT / name.split(":")[0]])
        for turn in find_turns(passage)
    }

    assert [name for name in sorted(ALLOWED.keys() - found) if not is_of_deleted_feature(name)] == []
