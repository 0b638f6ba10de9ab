"""Failures of the same kind have the same cause for any file, line, number or name; different kinds have different causes."""

import pytest

from aptui.store.jobs.job_table import cause_of

SAME = [
    ("pack_00/a/item_00000.json:1:10: Expecting value", "b.json:77: Expecting value", "…: Expecting value"),
    ("cannot read '/x/y z.png': no such file", "cannot read 'q.png': no such file", "cannot read '…': no such file"),
    ('texture "rock" is missing', 'texture "sand" is missing', 'texture "…" is missing'),
    ("exit code 3 after 1,204 ms", "exit code 4 after 17 ms", "exit code # after # ms"),
    ("no asset {2336F175-E6FD-5A11-87B4-04B00088CADD}:1", "no asset {00112233-4455-6677-8899-aabbccddeeff}:2", "no asset #:#"),
    ("at 0x7ffe12 in /usr/lib/libfoo.so.6", "at 0xdead in C:\\bin\\foo.dll", "at # in …"),
]


@pytest.mark.parametrize(("one", "other", "cause"), SAME)
def test_paths_and_numbers_of_a_job_are_masked(one: str, other: str, cause: str) -> None:
    assert (cause_of(one), cause_of(other)) == (cause, cause)


def test_different_errors_have_different_causes_and_only_the_first_line_is_used() -> None:
    assert len({cause_of(text) for text in ("broken pipe\nmore", "no such preset", "levels: fatal", "a.png: too large", "")}) == 5
    assert cause_of("\n  broken pipe \nmore") == "broken pipe"


def test_very_long_line_without_an_end_has_a_cause() -> None:
    assert cause_of("a/" * 100_000 + "'" * 5000)
