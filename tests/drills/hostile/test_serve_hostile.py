"""Short attacks on the gateway; if any single limit of the gateway is removed, the drill finds a violation."""

import pytest

from ..hostile import serve_hostile
from ..hostile.serve_hostile import attacked, floods_of_requests, followers, half_open, half_tls, lengths, revocation

pytestmark = pytest.mark.real


def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_hostile_clients_do_not_disturb_other_clients(tmp_path):
    report = attacked(project(tmp_path), 7, 0.3)

    assert report.faults == len(serve_hostile.ATTACKS)
    assert report.violations == []


def test_clients_without_tls_handshake_do_not_disturb_other_clients(tmp_path):
    report = attacked(project(tmp_path), 7, 0.3, attacks=serve_hostile.SAFE_ATTACKS, is_safe=True)

    assert report.violations == []


@pytest.mark.parametrize(
    ("mutant", "attack", "missed"),
    [
        ("endless-frames", lengths, "memory grew"),
        ("open-doors", half_open, "sockets of strangers"),
        ("open-handshakes", half_tls, "before their handshake"),
    ],
)
def test_gateway_drill_detects_a_missing_limit(tmp_path, mutant, attack, missed):
    report = attacked(project(tmp_path), 7, 0.3, mutant=mutant, attacks=(attack,), is_safe=attack is half_tls)

    assert any(missed in each for each in report.violations)


def test_gateway_drill_detects_missing_limits_for_clients_with_a_token(tmp_path):
    report = attacked(project(tmp_path), 7, 0.3, mutant="careless", attacks=(followers, revocation, floods_of_requests))

    for missed in ("streams of one token", "a revoked token listened", "audit log grew"):
        assert any(missed in each for each in report.violations)
