import json
import re

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from aptui.features.sharing import record as records
from aptui.features.sharing.record import (
    MAX_PRODUCTS,
    MAX_RECORD_BYTES,
    MAX_VARIANTS,
    Seal,
    Variants,
    as_discovered,
    base_key,
    difference,
    flaw_of_report,
    is_name,
    part_sealed,
    read_key,
    seal_record,
    variant_key,
    with_field,
)
from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch
from tests.features.sharing.harness import TEAM, facts, key_file, open_record, product, record

BASE = base_key(facts())
SEAL = Seal()
UUID = "AAAAAAAAAAAAAAAAAAAAAQ=="


def forged(change):
    """A record that was encoded without validation."""
    _, _, body = part_sealed(seal_record(record(facts(), b"one", b"two"), SEAL))
    content = json.loads(body)
    change(content)
    return SEAL.seal_body("record", json.dumps(content).encode())


def test_record_is_unchanged_after_encoding_and_decoding():
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
    """A record is untrusted input, and its field `staged` would name a file of this machine."""
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


@pytest.mark.parametrize(
    ("name", "flaw"), [("A.png", "is not in lower case"), ("e\u0301.png", "is not in composed Unicode form (NFC)")]
)
def test_error_names_the_flaw_of_a_product_name_that_cannot_be_stored(name, flaw):
    with pytest.raises(UserError, match=re.escape(f"the result cannot be stored: product '{name}' {flaw}")):
        seal_record(record(facts(), products=(replace(product(b"x"), name=name),)), SEAL)


def test_number_of_products_in_a_record_is_limited():
    """A record has at most 10,000 entries."""
    one = product(b"x")
    many = record(facts(), products=tuple(replace(one, name=str(number), sub_id=number) for number in range(MAX_PRODUCTS + 1)))

    with pytest.raises(UserError, match="cannot be stored"):
        seal_record(many, SEAL)
    assert open_record(seal_record(replace(many, products=many.products[1:]), SEAL), SEAL, BASE)


def test_deeply_nested_record_is_refused():
    """A record is untrusted input: its nesting is limited."""
    with pytest.raises(Mismatch):
        open_record(SEAL.seal_body("record", b"[" * 1_000_000), SEAL, BASE)


def test_record_of_another_job_is_refused():
    """A record that names another job than the requested one is refused, even if no team key is used."""
    with pytest.raises(Mismatch, match="another job"):
        open_record(seal_record(record(facts("b.png"), b"one"), SEAL), SEAL, BASE)


def test_record_with_two_sizes_for_one_digest_is_refused():
    with pytest.raises(Mismatch, match="different sizes"):
        open_record(
            forged(lambda content: content["products"][0].update(digest=content["products"][1]["digest"], size=9)), SEAL, BASE
        )


def test_number_of_variants_is_limited_and_the_newest_variant_is_first():
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


def test_two_runs_of_a_job_are_compared_by_their_products():
    """A difference between two runs is reported, because it shows that the builder is not deterministic."""
    ours = record(facts(), b"one", b"two")

    assert difference(ours, record(facts(), b"one", b"two", log=(), duration_ms=9, writer="x")) == ""
    assert difference(ours, replace(ours, products=tuple(replace(item, flags=item.flags | 4) for item in ours.products))) == ""
    assert "'1.tex' differs" in difference(ours, record(facts(), b"one", b"TWO"))
    assert "'0.tex' differs" in difference(
        ours, replace(ours, products=(replace(ours.products[0], is_executable=True), ours.products[1]))
    )
    assert "only one of two runs of the job made the product '1.tex'" in difference(ours, record(facts(), b"one"))
    assert "'elsewhere'" in difference(ours, record(facts(), b"one", b"TWO"))


def test_record_accepts_source_names_in_upper_case():
    assert records.flaw_of("Textures/A.png", is_product=False) == ""


def test_record_with_different_code_inputs_or_platform_is_detected():
    ours = facts(code="22" * 32)

    assert flaw_of_report(record(ours, b"x"), ours) == ""
    assert "digest of code and tools" in flaw_of_report(record(ours, b"x", code="33" * 32), ours)
    assert "inputs that do not match" in flaw_of_report(record(ours, b"x", inputs=(("source", "a.png", "99" * 16),)), ours)
    assert "products for a platform that does not match" in flaw_of_report(record(ours, products=(product(b"x", flags=2),)), ours)


def test_job_key_stays_equal_on_all_machines_until_the_format_changes():
    assert base_key(facts()) == "807feaf0cd94a3364fb52828754685503962209d537d64a00520dd5e28c9b384"


@pytest.mark.parametrize(
    "changes",
    [
        {"manifest": (("builder", "image", "22" * 16), ("source", "a.png", "00" * 16))},
        {"manifest": (("builder", "image", "11" * 16), ("source", "b.png", "00" * 16))},
        {"manifest": (("builder", "image", "11" * 16), ("source", "a.png", "01" * 16))},
        {"manifest": (*facts().manifest, ("dependency", "c.png", "00" * 16))},
        {"platform": "android"},
        {"job_key": "Other"},
        {"builder": b"\3" * 16},
        {"abi": "2"},
    ],
)
def test_change_of_any_job_input_changes_the_key_of_the_job(changes):
    """A job's inputs: builder with version and code, platform, parameters, source, dependencies, and ABI version of the engine."""
    assert base_key(facts(**changes)) != base_key(facts())


def test_base_key_excludes_discovered_dependencies_and_labels():
    found = facts(manifest=(*facts().manifest, ("discovered", "x.h", "00" * 16)), builder_name="Bild")

    assert base_key(found) == base_key(facts())


def test_variants_of_a_job_have_different_keys():
    base = base_key(facts())
    keys = {variant_key(base, found) for found in ((), (("x.h", "aa" * 32),), (("x.h", ""),), (("y.h", "aa" * 32),))}

    assert len(keys | {base}) == 5
    assert as_discovered([("b", "2"), ("a", "1"), ("b", "2")]) == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize("text", ["", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n", "g" * 64])
def test_only_a_hex_sha256_is_accepted_as_record_name(text):
    assert is_name("0f" * 32)
    assert not is_name(text)


BODY = b'{"x":1}'
CI = b"\7" * 32
PUBLIC = Ed25519PrivateKey.from_private_bytes(CI).public_key().public_bytes_raw()


def test_sealed_record_is_opened_with_its_key():
    seal = Seal(team_key=TEAM)

    assert seal.open_sealed(seal.seal_body("record", BODY)) == ("record", BODY)


@pytest.mark.parametrize("writer", [Seal(), Seal(team_key=b"another secret of some length")])
def test_record_without_the_team_seal_is_refused(writer):
    """The seal of a record is verified before its values are used."""
    with pytest.raises(Mismatch, match="team's key"):
        Seal(team_key=TEAM).open_sealed(writer.seal_body("record", BODY))


def test_modified_record_is_refused():
    """A changed record can have a valid checksum, but not a valid seal."""
    seal = Seal(team_key=TEAM)
    forged = Seal().seal_body("record", b'{"x":2}')
    _, fields, _ = part_sealed(seal.seal_body("record", BODY))

    with pytest.raises(Mismatch, match="team's key"):
        seal.open_sealed(with_field(forged, "mac", fields["mac"]))


def test_variant_list_is_refused_as_a_record():
    seal = Seal(team_key=TEAM)

    with pytest.raises(Mismatch):
        seal.open_sealed(seal.seal_body("variants", BODY).replace(b" variants ", b" record "))


def test_record_of_one_namespace_cannot_be_opened_in_another_namespace():
    """A record of an untrusted branch cannot be copied to the trusted namespace."""
    written = Seal("branch-7", TEAM, CI, (PUBLIC,)).seal_body("record", BODY)

    for trust in (Seal(team_key=TEAM), Seal(writers=(PUBLIC,))):
        with pytest.raises(Mismatch):
            trust.open_sealed(written)


def test_record_without_a_writer_signature_is_refused_if_writers_are_set():
    """Reading needs the team's key and writing needs a writer's key; developers have only the team's key."""
    trust = Seal(team_key=TEAM, writers=(PUBLIC,))

    assert trust.open_sealed(Seal(team_key=TEAM, signing_key=CI).seal_body("record", BODY)) == ("record", BODY)
    with pytest.raises(Mismatch, match="not signed by a configured writer; if the keys were changed, empty the store"):
        trust.open_sealed(Seal(team_key=TEAM).seal_body("record", BODY))
    with pytest.raises(Mismatch, match="not signed by a configured writer; if the keys were changed, empty the store"):
        trust.open_sealed(Seal(team_key=TEAM, signing_key=b"\10" * 32).seal_body("record", BODY))


def test_signature_of_another_record_is_refused():
    trust = Seal(writers=(PUBLIC,))
    _, fields, _ = part_sealed(Seal(signing_key=CI).seal_body("record", BODY))
    forged = with_field(with_field(Seal().seal_body("record", b"{}"), "by", fields["by"]), "sig", fields["sig"])

    with pytest.raises(Mismatch, match="not signed by a configured writer; if the keys were changed, empty the store"):
        trust.open_sealed(forged)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"<html>",
        b"aptui-shared/1 record\n{}",
        b"aptui-shared/1 record sha256=zz\n{}",
        b"aptui-shared/1 record sha256=" + b"0" * 64 + b"\n{}",
        b"aptui-shared/2" + Seal().seal_body("record", BODY)[14:],
        Seal().seal_body("record", BODY)[:-1],
        Seal().seal_body("record", BODY) + b" ",
        b"\xff" * 5000,
    ],
)
def test_damaged_record_is_refused(data):
    """A flipped bit in a store is noticed even without keys (Bazel #10070)."""
    with pytest.raises(Mismatch):
        Seal().open_sealed(data)


def test_record_above_the_maximum_length_is_refused():
    """Untrusted input is limited before it is parsed."""
    with pytest.raises(Mismatch, match="longer"):
        Seal().open_sealed(Seal().seal_body("record", b" " * MAX_RECORD_BYTES))


def test_policy_digest_depends_on_every_trust_setting():
    seals = [Seal(), Seal("branch"), Seal(team_key=TEAM), Seal(writers=(PUBLIC,)), Seal(team_key=b"x" * 16)]

    assert len({seal.policy for seal in seals}) == len(seals)
    assert replace(Seal(), signing_key=CI).policy == Seal().policy


def test_key_file_readable_by_other_users_is_refused(tmp_path):
    path = key_file(tmp_path, TEAM + b"\n")
    assert read_key(path) == TEAM

    (tmp_path / "key").chmod(0o640)
    with pytest.raises(UserError, match="other users"):
        read_key(path)


@pytest.mark.parametrize("text", [b"", b"short", b"x" * 5000])
def test_key_of_invalid_length_is_refused(tmp_path, text):
    with pytest.raises(UserError, match="bytes"):
        read_key(key_file(tmp_path, text))
    with pytest.raises(UserError, match="cannot be read"):
        read_key(str(tmp_path / "nowhere"))
