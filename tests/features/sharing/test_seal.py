import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from aptui.features.sharing.seal import MAX_RECORD_BYTES, Seal, part_sealed, read_key, with_field
from aptui.shared.errors import UserError
from aptui.shared.result_store import Mismatch
from tests.features.sharing.room import TEAM, key_file

BODY = b'{"x":1}'
CI = b"\7" * 32
PUBLIC = Ed25519PrivateKey.from_private_bytes(CI).public_key().public_bytes_raw()


def test_sealed_record_opens_with_the_key():
    seal = Seal(team_key=TEAM)

    assert seal.open_sealed(seal.seal_body("record", BODY)) == ("record", BODY)


@pytest.mark.parametrize("writer", [Seal(), Seal(team_key=b"another secret of some length")])
def test_record_without_the_team_seal_is_refused(writer):
    """Values are authenticated before use."""
    with pytest.raises(Mismatch, match="team's key"):
        Seal(team_key=TEAM).open_sealed(writer.seal_body("record", BODY))


def test_modified_record_is_refused():
    """A changed record can have a valid checksum, but not a valid seal."""
    seal = Seal(team_key=TEAM)
    forged = Seal().seal_body("record", b'{"x":2}')
    _, fields, _ = part_sealed(seal.seal_body("record", BODY))

    with pytest.raises(Mismatch, match="team's key"):
        seal.open_sealed(with_field(forged, "mac", fields["mac"]))


def test_list_of_variants_is_not_accepted_as_a_record():
    seal = Seal(team_key=TEAM)

    with pytest.raises(Mismatch):
        seal.open_sealed(seal.seal_body("variants", BODY).replace(b" variants ", b" record "))


def test_a_record_of_one_namespace_does_not_open_in_another():
    """A record of an untrusted branch cannot be copied to the trusted namespace."""
    written = Seal("branch-7", TEAM, CI, (PUBLIC,)).seal_body("record", BODY)

    for trust in (Seal(team_key=TEAM), Seal(writers=(PUBLIC,))):
        with pytest.raises(Mismatch):
            trust.open_sealed(written)


def test_with_configured_writers_the_team_key_does_not_suffice():
    """Reading needs the team's key, writing another one; developers have only the first."""
    trust = Seal(team_key=TEAM, writers=(PUBLIC,))

    assert trust.open_sealed(Seal(team_key=TEAM, signing_key=CI).seal_body("record", BODY)) == ("record", BODY)
    with pytest.raises(Mismatch, match="not signed by a configured writer"):
        trust.open_sealed(Seal(team_key=TEAM).seal_body("record", BODY))
    with pytest.raises(Mismatch, match="not signed by a configured writer"):
        trust.open_sealed(Seal(team_key=TEAM, signing_key=b"\10" * 32).seal_body("record", BODY))


def test_signature_of_another_record_is_refused():
    trust = Seal(writers=(PUBLIC,))
    _, fields, _ = part_sealed(Seal(signing_key=CI).seal_body("record", BODY))
    forged = with_field(with_field(Seal().seal_body("record", b"{}"), "by", fields["by"]), "sig", fields["sig"])

    with pytest.raises(Mismatch, match="not signed by a configured writer"):
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


def test_too_long_record_is_refused():
    """Untrusted input is limited before it is parsed."""
    with pytest.raises(Mismatch, match="longer"):
        Seal().open_sealed(Seal().seal_body("record", b" " * MAX_RECORD_BYTES))


def test_policy_digest_depends_on_every_trust_setting():
    seals = [Seal(), Seal("branch"), Seal(team_key=TEAM), Seal(writers=(PUBLIC,)), Seal(team_key=b"x" * 16)]

    assert len({seal.policy for seal in seals}) == len(seals)
    assert replace(Seal(), signing_key=CI).policy == Seal().policy


def test_key_readable_by_others_is_refused(tmp_path):
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
