import json

import pytest
from msgspec.structs import replace

from aptui.features.sharing import record as records
from aptui.features.sharing.record import (
    MAX_PRODUCTS,
    MAX_VARIANTS,
    Variants,
    base_key,
    difference,
    flaw_of_report,
    open_record,
    seal_record,
    variant_key,
)
from aptui.features.sharing.seal import Seal, part_sealed
from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch
from tests.features.sharing.room import facts, product, record

BASE = base_key(facts())
SEAL = Seal()
UUID = "AAAAAAAAAAAAAAAAAAAAAQ=="


def forged(change):
    """A record that was encoded without validation."""
    _, _, body = part_sealed(seal_record(record(facts(), b"one", b"two"), SEAL))
    content = json.loads(body)
    change(content)
    return SEAL.seal_body("record", json.dumps(content).encode())


def test_record_survives_encoding():
    whole = record(
        facts(), b"one", b"two", discovered=(("x.h", "aa" * 32), ("y.h", "")), command_line="tool a.png", reprocess=("b.png",)
    )

    assert open_record(seal_record(whole, SEAL), SEAL, BASE) == whole
    assert seal_record(whole, SEAL) == seal_record(whole, SEAL)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "a\0b",
        "a\nb",
        "Upper",
        "e\u0301",
        "x" * 256,
        "a/" * 600 + "b",
    ],
)
def test_product_outside_the_cache_is_refused(name):
    """Paths are relative, in composed Unicode form, and stay in the folder."""
    with pytest.raises(Mismatch):
        open_record(forged(lambda content: content["products"][0].update(name=name)), SEAL, BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"staged": "/etc/passwd"},
        {"size": -1},
        {"size": 1 << 50},
        {"size": "3"},
        {"size": 1.5},
        {"digest": "AAAA"},
        {"asset_type": "AAAA"},
        {"sub_id": 1 << 32},
        {"sub_id": -1},
        {"flags": -1},
        {"hash64": 1 << 64},
        {"hash64": -1},
        {"name": "1.tex"},
        {"name": "1.tex/below"},
        {"links": [{"kind": 9}]},
        {"links": [{"kind": 2, "source_uuid": "AAAA"}]},
        {"links": [{"kind": 2, "source_uuid": "AAAAAAAAAAAAAAAAAAAAAA=="}]},
        {"links": [{"kind": 2, "source_uuid": UUID, "sub_id": 1 << 32}]},
        {"links": [{"kind": 2, "source_uuid": UUID, "flags": 1 << 63}]},
        {"links": [{"kind": 2, "source_uuid": UUID, "path": "x"}]},
        {"links": [{"kind": 1, "path": "../x"}]},
        {"links": [{"kind": 1, "path": "*?" * 40_000}]},
        {"legacy_sub_ids": [1 << 32]},
        {"legacy_sub_ids": [-1]},
        {"facts": {"width": 1 << 60}},
        {"facts": {"seconds": -1.0}},
        {"facts": {"format": "\u001b[2J"}},
        {"flags": 0},
        {"flags": 3},
        {"sub_id": 1},
    ],
)
def test_invalid_fields_of_a_product_are_refused(change):
    """Manifests are untrusted input; `staged` would be a file of this machine."""
    with pytest.raises(Mismatch):
        open_record(forged(lambda content: content["products"][0].update(change)), SEAL, BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"base": "../../x"},
        {"discovered": [["../x", ""]]},
        {"discovered": [["/x", ""]]},
        {"discovered": [["x", "aa"]]},
        {"reprocess": ["/etc/passwd"]},
        {"warnings": -1},
        {"warnings": 1 << 70},
        {"duration_ms": 1 << 70},
        {"written_ms": 1 << 50},
        {"log": [{"level": 1 << 70, "window": "", "text": "", "time_ms": 0}]},
        {"log": [{"level": 1, "window": "", "text": "", "time_ms": 1 << 50}]},
        {"products": None},
        {"log": "text"},
    ],
)
def test_invalid_fields_of_a_record_are_refused(change):
    """A record is untrusted input: paths, length and number of entries are limited."""
    with pytest.raises(Mismatch):
        open_record(forged(lambda content: content.update(change)), SEAL, BASE)


def test_number_of_products_in_a_record_is_limited():
    """At most 10,000 entries."""
    one = product(b"x")
    many = record(facts(), products=tuple(replace(one, name=str(number), sub_id=number) for number in range(MAX_PRODUCTS + 1)))

    with pytest.raises(UserError, match="cannot be shared"):
        seal_record(many, SEAL)
    assert open_record(seal_record(replace(many, products=many.products[1:]), SEAL), SEAL, BASE)


def test_deeply_nested_record_is_refused():
    """A record is untrusted input: its nesting is limited."""
    with pytest.raises(Mismatch):
        open_record(SEAL.seal_body("record", b"[" * 1_000_000), SEAL, BASE)


def test_the_record_of_another_job_is_refused():
    """A wrong answer of a store is noticed even without keys."""
    with pytest.raises(Mismatch, match="another job"):
        open_record(seal_record(record(facts("b.png"), b"one"), SEAL), SEAL, BASE)


def test_two_sizes_for_one_digest_are_refused():
    with pytest.raises(Mismatch, match="two sizes"):
        open_record(
            forged(lambda content: content["products"][0].update(digest=content["products"][1]["digest"], size=9)), SEAL, BASE
        )


def test_variants_are_limited_and_newest_first():
    listed = Variants(BASE)
    for number in range(MAX_VARIANTS + 2):
        found = ((f"{number}.h", "aa" * 32),)
        listed = listed.put_variant(found, variant_key(BASE, found))

    assert len(listed.variants) == MAX_VARIANTS
    assert listed.variants[0][0] == ((f"{MAX_VARIANTS + 1}.h", "aa" * 32),)
    assert open_record(seal_record(listed, SEAL), SEAL, BASE) == listed
    with pytest.raises(UserError):
        seal_record(replace(listed, variants=((listed.variants[0]), *listed.variants)), SEAL)
    with pytest.raises(UserError):
        seal_record(Variants(BASE, (((), "../x"),)), SEAL)


def test_two_runs_of_one_job_are_compared_by_their_products():
    """A difference is reported: a check of determinism without extra runs."""
    ours = record(facts(), b"one", b"two")

    assert difference(ours, record(facts(), b"one", b"two", log=(), duration_ms=9, writer="x")) == ""
    assert difference(ours, replace(ours, products=tuple(replace(item, flags=item.flags | 4) for item in ours.products))) == ""
    assert "'1.tex' differs" in difference(ours, record(facts(), b"one", b"TWO"))
    assert "'0.tex' differs" in difference(
        ours, replace(ours, products=(replace(ours.products[0], is_executable=True), ours.products[1]))
    )
    assert "only one of two runs made '1.tex'" in difference(ours, record(facts(), b"one"))
    assert "'elsewhere'" in difference(ours, record(facts(), b"one", b"TWO"))


def test_source_names_may_have_upper_case():
    assert records.flaw_of("Textures/A.png", is_product=False) == ""


def test_record_of_other_code_or_files_is_recognized():
    ours = facts(code="22" * 32)

    assert flaw_of_report(record(ours, b"x"), ours) == ""
    assert "other code" in flaw_of_report(record(ours, b"x", code="33" * 32), ours)
    assert "other files" in flaw_of_report(record(ours, b"x", inputs=(("source", "a.png", "99" * 16),)), ours)
    assert "another platform" in flaw_of_report(record(ours, products=(product(b"x", flags=2),)), ours)
