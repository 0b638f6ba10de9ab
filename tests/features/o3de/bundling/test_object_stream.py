"""ObjectStream: unchanged parts are written as they were read, new ones in the form of their neighbours."""

from pathlib import Path

import pytest

from aptui.features.o3de.bundling import object_stream
from aptui.features.o3de.bundling.object_stream import Element, dump, parse, stream_of, string
from aptui.shared.errors import UserError

SPACES = """<ObjectStream version="3">
  <Class name="AZStd::vector" type="{82FC5264-88D0-57CD-9307-FC52E4DAD550}">
    <Class name="AZStd::string" field="element" value='say "a&amp;b"' type="{03AAAB3F-5C47-5A66-9EBC-D5FA4DB353C9}"/>
    <Class name="Odd"   field="element" version="2" type="{00000000-0000-0000-0000-000000000001}"></Class>
  </Class>
</ObjectStream>"""


@pytest.mark.parametrize("text", [SPACES, SPACES + "\n", SPACES.replace("\n", "\r\n"), SPACES.replace("  ", "\t") + "\n\n"])
def test_unchanged_stream_is_written_byte_for_byte(text: str) -> None:
    assert dump(parse(text)) == text


def test_values_of_a_stream_are_unescaped() -> None:
    one, _odd = parse(SPACES).object.children

    assert one.value == 'say "a&b"'


def test_new_element_of_a_stream_uses_the_indentation_of_the_file() -> None:
    stream = parse(SPACES)
    stream.object.children.append(string("element", "<new>"))

    added = '    <Class name="AZStd::string" field="element" value="&lt;new&gt;" type="{03AAAB3F-5C47-5A66-9EBC-D5FA4DB353C9}"/>\n'
    assert dump(stream) == SPACES.replace("  </Class>\n</ObjectStream>", f"{added}  </Class>\n</ObjectStream>")


def test_new_stream_has_the_format_of_the_current_o3de_version() -> None:
    whole = Element("Whole", "{00000000-0000-0000-0000-000000000001}", version=1, children=[string("one", "1")])

    assert dump(stream_of(whole)) == (
        '<ObjectStream version="3">\n\t<Class name="Whole" version="1" type="{00000000-0000-0000-0000-000000000001}">\n'
        '\t\t<Class name="AZStd::string" field="one" value="1" type="{03AAAB3F-5C47-5A66-9EBC-D5FA4DB353C9}"/>\n'
        "\t</Class>\n</ObjectStream>\n\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an ObjectStream"),
        ("{}", "is not valid in"),
        ("<Class/>", "not an ObjectStream"),
        (SPACES[: SPACES.index("  </Class>")], "truncated"),
        (SPACES + "<ObjectStream>", "after the end"),
        ("<!DOCTYPE x>" + SPACES, "is not valid in"),
        ("<ObjectStream></Class>", "does not match its opening tag"),
        ("<ObjectStream>" + "<Class>" * 70, "too deep"),
    ],
)
def test_text_that_is_not_an_object_stream_is_refused(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        parse(text)


def test_error_names_the_file_whose_object_has_the_wrong_type_id(tmp_path: Path) -> None:
    path = tmp_path / "a.seed"
    path.write_text(SPACES)

    assert len(object_stream.load(path, "{82FC5264-88D0-57CD-9307-FC52E4DAD550}").object.children) == 2
    with pytest.raises(UserError, match=r"a\.seed' is damaged: the file contains an object of another type"):
        object_stream.load(path, "{00000000-0000-0000-0000-000000000001}")
