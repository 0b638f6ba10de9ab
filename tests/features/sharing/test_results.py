import pytest

from aptui.features.sharing import publishing
from aptui.features.sharing.publishing import SharedResult
from aptui.features.sharing.record import Seal, Variants, base_key, decode_record, seal_record, variant_key
from aptui.shared.result_store import Mismatch
from tests.features.sharing.harness import TEAM, all_here, facts, record

SEAL = Seal()
BASE = base_key(facts())
A, B = ((("a.h", "aa" * 32),), (("a.h", "bb" * 32), ("b.h", "")))


class Records(dict):
    """A store in memory."""

    def get_record(self, key):
        return self.get(key)

    def put_record(self, key, data, *, if_absent=True):
        if if_absent and key in self:
            return False
        self[key] = data
        return True


def publish(store, one, seal=SEAL):
    return publishing.publish(store, seal.open_sealed, seal, SharedResult(one, seal_record(one, seal), one.base))


def read(store, present=all_here, seal=SEAL):
    found = publishing.read_result(store, seal.open_sealed, BASE, present)
    return found.record if found else None


def test_record_without_discovered_dependencies_is_stored_at_its_base_key():
    store = Records()
    assert publish(store, record(facts(), b"one")) is None

    assert set(store) == {BASE}
    assert read(store) == record(facts(), b"one")


def test_variant_with_matching_dependencies_is_restored():
    store = Records()
    one, other = record(facts(), b"one", discovered=A), record(facts(), b"other", discovered=B)
    publish(store, one)
    publish(store, other)

    assert read(store, lambda discovered: discovered == A) == one
    assert read(store, lambda discovered: discovered == B) == other
    assert read(store, lambda _discovered: False) is None


def test_record_without_discoveries_does_not_hide_later_variants():
    store = Records()
    plain, found = record(facts(), b"plain"), record(facts(), b"found", discovered=A)
    publish(store, plain)
    publish(store, found)

    assert read(store, lambda discovered: discovered in ((), A)) == found
    assert read(store, lambda discovered: discovered == ()) == plain
    assert publish(store, plain) == plain


def test_second_writer_receives_the_record_of_the_first_writer():
    """If several writers publish a record of the same job, the store keeps the first record."""
    store = Records()
    for changes in ({}, {"discovered": A}):
        first, second = record(facts(), b"first", **changes), record(facts(), b"second", **changes)

        assert publish(store, first) is None
        assert publish(store, second) == first
        assert read(store, lambda discovered: discovered == changes.get("discovered", ())) == first  # noqa: B023


@pytest.mark.parametrize("changes", [{}, {"discovered": A}])
def test_incomplete_record_is_replaced(changes):
    """A store may keep an incomplete upload."""
    store, one = Records(), record(facts(), b"one", **changes)
    for key in (BASE, variant_key(BASE, A)):
        store[key] = seal_record(one, SEAL)[:50]

    assert publish(store, one) is None
    assert read(store) == one


@pytest.mark.parametrize("changes", [{}, {"discovered": A}])
def test_untrusted_record_is_neither_read_nor_overwritten(changes):
    """A writer with a wrong key must not be able to overwrite the team's records."""
    store, theirs = Records(), record(facts(), b"theirs")
    publish(store, theirs)
    before = dict(store)
    team = Seal(team_key=TEAM)

    with pytest.raises(Mismatch):
        publish(store, record(facts(), b"ours", **changes), team)
    with pytest.raises(Mismatch):
        read(store, seal=team)
    assert before.items() <= store.items()


def test_variant_with_another_key_is_refused():
    """A faulty store may return the record of another variant of the same job."""
    store, key = Records(), variant_key(BASE, A)
    store[BASE] = seal_record(Variants(BASE, ((A, key),)), SEAL)
    store[key] = seal_record(record(facts(), b"other", discovered=B), SEAL)

    with pytest.raises(Mismatch, match="another variant"):
        read(store)
    store[key] = store[BASE]
    with pytest.raises(Mismatch):
        read(store)


def test_missing_variant_is_a_cache_miss():
    store = Records({BASE: seal_record(Variants(BASE, ((A, variant_key(BASE, A)),)), SEAL)})

    assert read(store) is None
    assert isinstance(decode_record(*SEAL.open_sealed(store[BASE]), BASE), Variants)
