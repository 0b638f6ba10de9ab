import pytest

from aptui.builders.xml_builder import XML_ASSET_TYPE, XmlBuilder

BUILDER = XmlBuilder


def minified(bench, text):
    return bench.build(bench.write("a.xml", text), output="min")["a.xml"]


def test_product_is_a_copy_with_the_name_of_its_source(bench):
    text = '<?xml version="1.0"?>\n<a> <b x = "1"/> </a>\n'

    response = bench.process(bench.write("data/Level.xml", text))

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Level.xml", 0, XML_ASSET_TYPE)
    assert (bench.products_dir / "Level.xml").read_text() == text


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_minified_xml_lacks_only_comments_and_blanks_between_elements(bench, text, expected):
    assert minified(bench, text) == expected.encode()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "iso-8859-1"])
def test_minified_xml_keeps_its_encoding(bench, encoding):
    name = "utf-16" if encoding.startswith("utf") else encoding
    text = f"<?xml version='1.0' encoding='{name}'?><a><!-- é --> <b>é</b> </a>"

    assert minified(bench, text.encode(encoding)) == text.replace("<!-- é --> ", "").replace("> </a", "></a").encode(encoding)


BROKEN = [
    ("empty", "", "a.xml:1:1: no element found"),
    ("tag", "<a>\n <b></a>", "a.xml:2:7: mismatched tag"),
    ("twice", "<a x='1' x='2'/>", "a.xml:1:10: duplicate attribute"),
    ("after", "<a/>\n<b/>", "a.xml:2:1: junk after document element"),
    ("reference", "<a>\n&nbsp;</a>", "a.xml:2:1: undefined entity"),
    ("bytes", b"<a>\xff</a>", "a.xml:1:4: invalid UTF-8 at byte offset 3; save the file as UTF-8"),
    (
        "encoding",
        "<?xml version='1.0' encoding='x-y'?><a/>",
        "a.xml:1:1: the encoding 'x-y' is not supported; save the file as UTF-8",
    ),
    (
        "laughs",
        '<!DOCTYPE a [\n<!ENTITY l "ha"><!ENTITY m "&l;&l;">]><a>&m;</a>',
        "a.xml:2:12: the file declares the entity 'l'; remove it, because entities can expand without end and are not allowed",
    ),
]


@pytest.mark.parametrize(("data", "error"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_broken_document_fails_with_line_and_column(bench, data, error):
    assert bench.fail(bench.write("a.xml", data)) == error


def test_file_of_an_external_entity_is_not_read(bench):
    secret = bench.write("secret.txt", "hidden")

    assert "the file declares the entity 'x'" in bench.fail(
        bench.write("a.xml", f'<!DOCTYPE a [<!ENTITY x SYSTEM "{secret}">]><a>&x;</a>')
    )


def test_document_type_is_refused_if_the_parameter_forbids_it(bench):
    source = bench.write("a.xml", "<!DOCTYPE a>\n<a/>")

    assert bench.build(source)
    assert "the file has a document type declaration, which dtd: forbid does not allow" in bench.fail(source, dtd="forbid")


def test_deeply_nested_xml_is_minified(bench):
    depth = 50_000

    assert bench.build(bench.write("a.xml", "<a>" * depth + "</a>" * depth), output="min")


@pytest.mark.real
def test_equal_sources_give_equal_bytes_in_another_process(bench, made_elsewhere, digests_of):
    source = bench.write("a.xml", "<a> <b/> </a>")

    assert made_elsewhere(bench, source, output="min") == digests_of(bench.build(source, output="min"))


EAST_ASIAN = [
    ("Shift_JIS", "shift_jis", "日本"),
    ("windows-31j", "cp932", "日本"),
    ("EUC-JP", "euc_jp", "日本"),
    ("ISO-2022-JP", "iso2022_jp", "日本"),
    ("GB2312", "gb2312", "中国"),
    ("gbk", "gbk", "中國"),
    ("GB18030", "gb18030", "中國"),
    ("Big5", "big5", "中國"),
    ("EUC-KR", "euc_kr", "한국"),
]


@pytest.mark.parametrize(("name", "codec", "word"), EAST_ASIAN)
def test_east_asian_encodings_are_read_and_kept(bench, name, codec, word):
    text = f'<?xml version="1.0" encoding="{name}"?>\n<a> <!-- {word} --><b c="{word}">{word}</b> </a>'
    source = bench.write("a.xml", text.encode(codec))

    assert bench.build(source) == {"a.xml": text.encode(codec)}
    expected = text.replace(f" <!-- {word} -->", "").replace("> </a", "></a").replace("?>\n", "?>\n")
    assert bench.build(source, output="min") == {"a.xml": expected.encode(codec)}


def test_east_asian_encoding_error_has_line_and_column(bench):
    text = '<?xml version="1.0" encoding="Shift_JIS"?>\n<a>日本</b>'

    assert bench.fail(bench.write("a.xml", text.encode("shift_jis"))) == "a.xml:2:8: mismatched tag"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"<a>\n<b>\xe9</b></a>", "a.xml:2:4: invalid UTF-8 at byte offset 7; save the file as UTF-8"),
        (
            b'<?xml version="1.0" encoding="Shift_JIS"?>\n<a>\x81\xff</a>',
            "a.xml:2:4: invalid Shift_JIS at byte offset 46; save the file as UTF-8",
        ),
        (
            b'<?xml version="1.0" encoding="utf-7"?><a/>',
            "a.xml:1:1: the encoding 'utf-7' is not supported; save the file as UTF-8",
        ),
        ("<a/>".encode("utf-32"), "a.xml:1:"),
    ],
)
def test_invalid_bytes_are_reported_with_line_and_column(bench, data, error):
    assert bench.fail(bench.write("a.xml", data)).startswith(error)


def test_very_deep_and_very_wide_documents_are_accepted(bench):
    deep = "<a>" * 100_000 + "</a>" * 100_000
    wide = "<a " + " ".join(f"a{number}='1'" for number in range(50_000)) + "/>"

    assert bench.build(bench.write("deep.xml", deep))
    assert bench.build(bench.write("wide.xml", wide))
