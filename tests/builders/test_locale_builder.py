"""The `locale` builder: tables of PO, CSV and XLIFF, and a line for every mistake of a translator."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.builders import locale_builder
from aptui.builders.files.catalogs import read_catalogs
from aptui.builders.files.json_text import BrokenTextError
from aptui.builders.locale_builder import LocaleBuilder, read_plural_forms

BUILDER = LocaleBuilder

HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'


def po(text):
    return HEADER + text


def tables(bench, source, **params):
    return {name: json.loads(data) for name, data in bench.build(source, **params).items()}


def test_po_becomes_a_table_with_contexts_and_plural_forms(bench):
    text = po(
        '#: game.c:1\nmsgid "Start"\nmsgstr ""\n"Los\\n"\n"gehts \\"jetzt\\""\n\nmsgctxt "menu"\nmsgid "Start"\nmsgstr "Beginn"\n'
        'msgid "%d level"\nmsgid_plural "%d levels"\nmsgstr[0] "%d Level"\nmsgstr[1] "%d Levels"\n\n'
        '#~ msgid "old"\n#~ msgstr "alt"\n'
    )

    assert tables(bench, bench.write("locale/de.po", text)) == {
        "de.json": {
            "": {"language": "de", "plural_forms": "nplurals=2; plural=(n != 1);"},
            "Start": 'Los\ngehts "jetzt"',
            "menu\x04Start": "Beginn",
            "%d level": ["%d Level", "%d Levels"],
        }
    }
    assert bench.warnings == []


def test_csv_becomes_one_table_for_each_language(bench):
    source = bench.write("texts.csv", "key,comment,en,pt_BR\nhi,a greeting,Hello {name},Oi {name}\nbye,,Bye,\n")

    assert tables(bench, source) == {
        "texts.en.json": {"": {"language": "en"}, "hi": "Hello {name}", "bye": "Bye"},
        "texts.pt_BR.json": {"": {"language": "pt_BR"}, "hi": "Oi {name}"},
    }
    assert bench.warnings == ["texts.csv:3: 'bye' has no text in pt_BR"]


XLIFF_1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file target-language="de"><body>
<group><trans-unit id="1" resname="hi"><source>Hi</source><target>Hallo <x id="1" equiv-text="{0}"/></target></trans-unit></group>
<trans-unit id="bye"><source>Bye</source></trans-unit></body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">
<unit id="hi"><segment><source>Hi</source><target>Hallo <ph id="1" equiv="{0}"/></target></segment></unit>
<unit id="bye"><segment><source>Bye</source></segment></unit></file></xliff>"""


@pytest.mark.parametrize("name", ["original", "id"])
def test_xliff_with_several_files_has_keys_that_begin_with_the_name_of_their_file(bench, name):
    unit = '<trans-unit id="title"><source>Title</source><target>{}</target></trans-unit>'
    files = [f'<file {name}="{each}" target-language="de"><body>{unit.format(each)}</body></file>' for each in ("menu", "shop")]
    xliff = f'<xliff version="1.2">{"".join(files)}</xliff>'

    made = tables(bench, bench.write("a.xlf", xliff))

    assert made == {"a.json": {"": {"language": "de"}, "menu\x04title": "menu", "shop\x04title": "shop"}}


@pytest.mark.parametrize("text", [XLIFF_1, XLIFF_2])
def test_xliff_becomes_a_table(bench, text):
    assert tables(bench, bench.write("a.xlf", text)) == {"a.json": {"": {"language": "de"}, "hi": "Hallo {0}"}}
    assert bench.warnings == ["a.xlf:3: 'bye' has no text in de"]


def test_xliff_unit_is_untranslated_if_one_segment_has_no_target(bench):
    parts = "<segment><source>Hi.</source><target>Hallo.</target></segment><ignorable><source> </source></ignorable>"
    done, open_ = (f"<segment><source>Go.</source>{target}</segment>" for target in ("<target>Los.</target>", "<target/>"))
    units = f'<unit id="done">{parts}{done}</unit>\n<unit id="open">{parts}{open_}</unit>'
    xliff = f'<xliff version="2.0" srcLang="en" trgLang="de"><file id="f">{units}</file></xliff>'

    assert tables(bench, bench.write("a.xlf", xliff)) == {"a.json": {"": {"language": "de"}, "done": "Hallo. Los."}}
    assert bench.warnings == ["a.xlf:2: 'open' has no text in de"]


def test_keys_are_compared_with_the_template_beside_the_source(bench):
    bench.write("locale/messages.pot", 'msgid ""\nmsgstr ""\n\nmsgid "Start"\nmsgstr ""\n\nmsgid "Quit"\nmsgstr ""\n')
    source = bench.write("locale/de.po", po('msgid "Start"\nmsgstr "Los"\n\nmsgid "Old"\nmsgstr "Alt"\n'))

    assert bench.dependencies(source, template="./messages.pot") == ["locale/messages.pot"]
    assert tables(bench, source, template="./messages.pot")["de.json"]["Old"] == "Alt"
    assert bench.warnings == [
        "locale/messages.pot:7: 'Quit' has no text in de (locale/de.po)",
        "locale/de.po:9: 'Old' is unused: the template locale/messages.pot does not have this key",
    ]
    assert bench.fail(source, template="locale/none.pot") == "locale/de.po: the file 'locale/none.pot' is missing"


@pytest.mark.parametrize(
    ("entry", "warning"),
    [
        ('msgid "%d of %s"\nmsgstr "%s"', "'%d of %s' has the placeholders %1$d, %2$s, but its translation has %1$s"),
        ('msgid "%d of %s"\nmsgstr "%s von %d"', "'%d of %s' has the placeholders %1$d, %2$s, but its translation has %1$s, %2$d"),
        ('msgid "%(n)s"\nmsgstr "%(m)s"', "'%(n)s' has the placeholders %(n)s, but its translation has %(m)s"),
        ('msgid "{name}"\nmsgstr "{Name}"', "'{name}' has the placeholders {name}, but its translation has {Name}"),
        ('msgid "{} {}"\nmsgstr "{}"', "'{} {}' has the placeholders {0}, {1}, but its translation has {0}"),
        (
            'msgid "a"\nmsgid_plural "%d a"\nmsgstr[0] "%s a"\nmsgstr[1] "%d a"',
            "has the placeholders %1$d, but its translation has %1$s",
        ),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] "x"', "'a' has 1 plural form, but the language de needs 2"),
        ('#, fuzzy\nmsgid "a"\nmsgstr "x"', "'a' is marked as fuzzy in de"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] "x"\nmsgstr[1] ""', "'a' has no text in de"),
    ],
)
def test_mistake_in_a_translation_gives_a_warning_with_its_line(bench, entry, warning):
    source = bench.write("de.po", po(entry + "\n"))
    line = 7 if entry.startswith("#") else 6

    assert bench.build(source)
    (found,) = bench.warnings
    assert found.startswith(f"de.po:{line}: ")
    assert found.endswith(warning)
    assert bench.fail(source, strict=True) == found


@pytest.mark.parametrize(
    "entry",
    [
        'msgid "%d of %s"\nmsgstr "%2$s: %1$d"',
        'msgid "%d%% of %i"\nmsgstr "%d %% von %d"',
        'msgid "100 percent"\nmsgstr "100%ig"',
        '#, no-c-format\nmsgid "50%d"\nmsgstr "50%s"',
        'msgid "{name}, {name}, {{x}}"\nmsgstr "{name} {{y}}"',
        'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] "eine Datei"\nmsgstr[1] "%d Dateien"',
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "eine Datei"\nmsgstr[1] "%d Dateien"',
        'msgid "{size:.2f} {unit!r}"\nmsgstr "{unit} {size}"',
    ],
)
def test_correct_translation_gives_no_warning(bench, entry):
    bench.build(bench.write("de.po", po(entry + "\n")))

    assert bench.warnings == []


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("nplurals=2; plural=(n != 1);", (2, "")),
        ("nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2", (3, "")),
        ("nplurals=1; plural=0;", (1, "")),
        ("nplurals=2; plural=n;", (0, "Plural-Forms: for n=2 the rule chooses form 2, but the forms are 0 to 1")),
        ("nplurals=2; plural=1/n;", (0, "Plural-Forms: '1/n' is not a valid expression with the variable n")),
        (
            "nplurals=2; plural=__import__('os');",
            (0, "Plural-Forms: '__import__('os')' is not a valid expression with the variable n"),
        ),
        ("nplurals=2; plural=n==!1;", (0, "Plural-Forms: 'n==!1' is not a valid expression with the variable n")),
        ("nplurals=999; plural=0;", (0, "Plural-Forms: nplurals=999 is not a possible number of forms")),
        ("", (0, "the header has no valid Plural-Forms, but some texts have plural forms")),
    ],
)
def test_plural_forms_header_is_parsed_or_its_fault_is_named(header, expected):
    assert read_plural_forms(header) == expected


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.po", 'msgid "a"\n', "a.po:1: an entry has no msgstr"),
        ("a.po", 'msgid "a"\nmsgstr "x"\n\nmsgid "a"\nmsgstr "y"\n', "a.po:4: 'a' is defined twice, first on line 1"),
        (
            "a.po",
            'msgid "a"\nmsgstr "x\n',
            "a.po:2: the line is not valid in a PO file: a keyword, such as msgid, and a text in quotes were expected",
        ),
        ("a.po", 'msgid "a"\nmsgid "b"\n', "a.po:2: an entry has a second msgid"),
        ("a.po", b'msgid "a"\nmsgstr "\xe9"\n', "a.po:2:9: invalid UTF-8 at byte offset 18"),
        ("a.po", '"Content-Type: text/plain; charset=nonsense"', "a.po: the text is not in the charset 'nonsense' that the header"),
        ("a.csv", "key,comment\na,b\n", "a.csv:1: no column has the name of a language, such as en or pt_BR"),
        ("a.csv", "key,en\n", "a.csv: the file has no texts, because no row follows its header"),
        ("a.csv", "key,en\n,b\n", "a.csv:2: the row has no key: its column 'key' is empty"),
        ("a.xlf", "<a/>", "a.xlf:1: the root element is <a>, not <xliff>"),
        ("a.xlf", "<xliff>", "a.xlf:1:8: no element found"),
        ("a.xlf", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "a.xlf:1:25: the file declares the entity 'b'; remove it"),
        (
            "a.xlf",
            "<xliff>" + "<group>" * 5000,
            "a.xlf:1:1401: the file has more than 2,000,000 elements, or is nested deeper than 200 levels",
        ),
        ("a.txt", "", "a.txt: '.txt' is not a supported format of translations; use po, pot, csv, tsv, xlf or xliff"),
    ],
)
def test_damaged_translation_file_fails_with_the_line_of_the_damage(bench, name, text, error):
    assert bench.fail(bench.write(name, text)).startswith(error)


@pytest.mark.parametrize(("name", "text"), [("DE.PO", 'msgid "a"\nmsgstr "b"\n'), ("A.CSV", "key,DE\na,b\n"), ("DE.XLF", XLIFF_1)])
def test_extension_in_upper_case_names_the_same_format(bench, name, text):
    assert bench.build(bench.write(name, text))


def test_missing_texts_give_one_warning_and_the_log_lists_them(bench, monkeypatch):
    monkeypatch.setattr(locale_builder, "MOST_SHOWN", 3)

    bench.build(bench.write("a.csv", "key,en\n" + "".join(f"k{number},\n" for number in range(5))))

    assert bench.warnings == ["a.csv:2: 'k0' has no text in en (the log of the job lists 4 more mistakes of this kind)"]
    listed = [text for _severity, text in bench.lines if "has no text" in text]
    assert listed[1:] == ["a.csv:3: 'k1' has no text in en", "a.csv:4: 'k2' has no text in en"]


def test_wrong_placeholders_above_the_limit_give_one_summary_warning(bench, monkeypatch):
    monkeypatch.setattr(locale_builder, "MOST_SHOWN", 2)

    bench.build(bench.write("a.csv", "key,en,de\n" + "".join(f"{number},{{a}},{{b}}\n" for number in range(5))))

    assert bench.warnings[2:] == ["a.csv: the log leaves out 3 more mistakes of the kind 'placeholder'"]


def test_po_file_is_read_in_the_charset_that_its_header_names(bench):
    text = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-15\\n"\nmsgid "a"\nmsgstr "€"\n'

    assert tables(bench, bench.write("a.po", text.encode("iso-8859-15")))["a.json"]["a"] == "€"


@given(data=st.binary(max_size=300), name=st.sampled_from(["a.po", "a.csv", "a.xlf"]))
def test_random_bytes_give_catalogs_or_an_error_of_one_line(data, name):
    wrong = ""
    try:
        read_catalogs(name, data)
    except BrokenTextError as error:
        wrong = str(error)

    assert "\n" not in wrong


@pytest.mark.real
def test_equal_sources_give_equal_bytes_in_another_process(bench, made_elsewhere, digests_of):
    source = bench.write("a.csv", "key,en,de\nhi,Hi,Hallo\n")

    assert made_elsewhere(bench, source) == digests_of(bench.build(source))
