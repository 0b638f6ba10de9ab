import pytest

from aptui.features.sharing.record import as_discovered, base_key, is_name, variant_key
from tests.features.sharing.room import facts


def test_a_key_is_the_same_on_every_machine_and_in_every_version_with_this_format():
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
def test_every_input_of_a_job_changes_its_key(changes):
    """Builder, version and code, platform, parameters, source, dependencies, and the engine's part."""
    assert base_key(facts(**changes)) != base_key(facts())


def test_discovered_dependencies_and_labels_are_not_in_the_base_key():
    found = facts(manifest=(*facts().manifest, ("discovered", "x.h", "00" * 16)), builder_name="Bild")

    assert base_key(found) == base_key(facts())


def test_variants_of_a_job_have_different_keys():
    base = base_key(facts())
    keys = {variant_key(base, found) for found in ((), (("x.h", "aa" * 32),), (("x.h", ""),), (("y.h", "aa" * 32),))}

    assert len(keys | {base}) == 5
    assert as_discovered([("b", "2"), ("a", "1"), ("b", "2")]) == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize("text", ["", "a" * 63, "A" * 64, "../" + "a" * 61, "a" * 64 + "\n", "g" * 64])
def test_only_hex_sha256_is_a_name(text):
    assert is_name("0f" * 32)
    assert not is_name(text)
