import pytest

from aptui.builders.xml_builder import XML_ASSET_TYPE, XmlBuilder
from aptui.sdk import Result

BUILDER = XmlBuilder


def minified(bench, text):
    return bench.made(bench.write("a.xml", text), output="min")["a.xml"]


def test_a_product_is_a_copy_named_as_its_source(bench):
    text = '<?xml version="1.0"?>\n<a> <b x = "1"/> </a>\n'

    response = bench.process(bench.write("data/Level.xml", text))

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Level.xml", 0, XML_ASSET_TYPE)
    assert (bench.products_dir / "Level.xml").read_text() == text


@pytest.mark.parametrize(
    ("text", "wished"),
    [
        ("<a>\n  <b/>\n  <c>t</c>\n</a>", "<a><b/><c>t</c></a>"),
        ("<!-- x --><a><!-- y --><b/></a><!-- z -->", "<a><b/></a>"),
        ("<a> <b>in <i>mixed</i> text</b> </a>", "<a><b>in <i>mixed</i> text</b></a>"),
        ("<a> </a>", "<a> </a>"),
        ("<a>&#32;<b/></a>", "<a>&#32;<b/></a>"),
        ("<a><![CDATA[ ]]> <b/></a>", "<a><![CDATA[ ]]> <b/></a>"),
        ("<a xml:space='preserve'> <b/> </a>", "<a xml:space='preserve'> <b/> </a>"),
        (
            "<a xml:space='preserve'> <b xml:space='default'> <c/> </b> </a>",
            "<a xml:space='preserve'> <b xml:space='default'><c/></b> </a>",
        ),
        ("<!-- x -->\n<!DOCTYPE a [<!-- in it -->]>\n<a/>", "\n<!DOCTYPE a [<!-- in it -->]>\n<a/>"),
        ('<!DOCTYPE a SYSTEM "x"><a>&nbsp; <b/> </a>', '<!DOCTYPE a SYSTEM "x"><a>&nbsp; <b/> </a>'),
        ("<?p  i ?><a  x = \"1\" y='&lt;'/>", "<?p  i ?><a  x = \"1\" y='&lt;'/>"),
    ],
)
def test_min_leaves_out_comments_and_blanks_between_elements_alone(bench, text, wished):
    assert minified(bench, text) == wished.encode()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "iso-8859-1"])
def test_min_keeps_the_encoding(bench, encoding):
    name = "utf-16" if encoding.startswith("utf") else encoding
    text = f"<?xml version='1.0' encoding='{name}'?><a><!-- é --> <b>é</b> </a>"

    assert minified(bench, text.encode(encoding)) == text.replace("<!-- é --> ", "").replace("> </a", "></a").encode(encoding)


BROKEN = [
    ("empty", "", "a.xml:1:1: no element found"),
    ("tag", "<a>\n <b></a>", "a.xml:2:7: mismatched tag"),
    ("twice", "<a x='1' x='2'/>", "a.xml:1:10: duplicate attribute"),
    ("after", "<a/>\n<b/>", "a.xml:2:1: junk after document element"),
    ("reference", "<a>\n&nbsp;</a>", "a.xml:2:1: undefined entity"),
    ("bytes", b"<a>\xff</a>", "a.xml:1:4: not well-formed (invalid token)"),
    ("encoding", "<?xml version='1.0' encoding='x-y'?><a/>", "a.xml:1:1: unknown encoding: x-y"),
    (
        "laughs",
        '<!DOCTYPE a [\n<!ENTITY l "ha"><!ENTITY m "&l;&l;">]><a>&m;</a>',
        "a.xml:2:12: the entity 'l' is declared; entities are refused, as they can expand without end",
    ),
]


@pytest.mark.parametrize(("data", "error"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_document_fails_naming_line_and_column(bench, data, error):
    assert bench.error(bench.write("a.xml", data)) == error


def test_an_external_entity_is_not_read(bench):
    secret = bench.write("secret.txt", "hidden")

    assert "the entity 'x' is declared" in bench.error(
        bench.write("a.xml", f'<!DOCTYPE a [<!ENTITY x SYSTEM "{secret}">]><a>&x;</a>')
    )


def test_a_document_type_is_refused_where_it_is_forbidden(bench):
    source = bench.write("a.xml", "<!DOCTYPE a>\n<a/>")

    assert bench.made(source)
    assert "a document type declaration, which dtd: forbid refuses" in bench.error(source, dtd="forbid")


def test_deep_nesting_is_no_danger(bench):
    depth = 50_000

    assert bench.made(bench.write("a.xml", "<a>" * depth + "</a>" * depth), output="min")


def test_a_pointer_is_named_as_such(bench):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"

    assert bench.error(bench.write("a.xml", pointer)) == "a.xml: is a Git LFS pointer; run git lfs pull"


def test_parameters_are_checked_for_each_platform(bench):
    assert bench.analyse({}, {"server": {"output": "min"}}).result is Result.SUCCESS
    assert "platform 'server': parameter 'output'" in bench.analyse({}, {"server": {"output": "minn"}}).error


@pytest.mark.real
def test_equal_sources_give_equal_bytes_in_another_process(bench, made_elsewhere, digests_of):
    source = bench.write("a.xml", "<a> <b/> </a>")

    assert made_elsewhere(bench, source, output="min") == digests_of(bench.made(source, output="min"))
