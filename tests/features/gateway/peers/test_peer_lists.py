"""Changes on the Connections screen are written to the configuration, or kept as overrides."""

import pytest
from msgspec.structs import replace

from aptui.config import edit
from aptui.config.load import load
from aptui.features.gateway.peers import peer_settings
from aptui.shared.connections.peers import Dial, PeerAction, PeerOrder
from aptui.shared.errors import HostError

PROJECT = """\
scan_folders: [{name: game, path: assets}]
builders: [{name: files, copy: ["*.txt"]}]
serve:
  # who may not
  rejected:
    - 1.2.3.4      # the printer
    - 10.1.2.3/8   # the office
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "game"
    (folder / "assets").mkdir(parents=True)
    (folder / "aptui.yaml").write_text(PROJECT, encoding="utf-8")
    return folder


def do(project, order, sets=()):
    stored_settings = peer_settings.read_peer_settings(load(project, sets=sets).serve)
    return peer_settings.change_settings(project / "Cache" / peer_settings.PLACE, stored_settings, order, project)


def test_access_list_change_is_written_to_the_configured_list(project):
    change = do(project, PeerOrder(PeerAction.REJECT, entry="5.6.7.8"))

    text = PROJECT + '    - "5.6.7.8"\n'
    assert (project / "aptui.yaml").read_text(encoding="utf-8") == text
    assert not (project / "Cache" / peer_settings.PLACE).exists()
    assert change.settings == change.configured == peer_settings.read_peer_settings(load(project).serve)

    do(project, PeerOrder(PeerAction.ALLOW, entry="1.2.3.4"))
    after = text.replace("    - 1.2.3.4      # the printer\n", "") + '  allowed: ["1.2.3.4"]\n'
    assert (project / "aptui.yaml").read_text(encoding="utf-8") == after


def test_changed_connections_and_a_disabled_list_are_written_to_yaml(project):
    do(project, PeerOrder(PeerAction.ADD, dial=Dial("phone", "192.168.1.20")))
    do(project, PeerOrder(PeerAction.DISABLE, "phone"))
    do(project, PeerOrder(PeerAction.LIST_OFF))

    serve = load(project).serve
    assert serve.connections == (Dial("phone", "192.168.1.20", is_auto=False),)
    assert serve.has_allow_list is False
    assert "# the office" in (project / "aptui.yaml").read_text(encoding="utf-8")


def test_access_list_change_is_written_to_the_user_file_that_has_the_list(project):
    own = edit.writable_files(project)[1]
    own.parent.mkdir(parents=True)
    own.write_text("serve: {rejected: [9.9.9.9]}  # mine\n", encoding="utf-8")

    do(project, PeerOrder(PeerAction.REJECT, entry="5.6.7.8"))

    assert own.read_text(encoding="utf-8") == 'serve: {rejected: [9.9.9.9, "5.6.7.8"]}  # mine\n'
    assert (project / "aptui.yaml").read_text(encoding="utf-8") == PROJECT


def test_change_of_a_list_that_the_command_line_sets_is_stored_as_an_override(project):
    change = do(project, PeerOrder(PeerAction.REJECT, entry="5.6.7.8"), sets=["serve.rejected=[7.7.7.7]"])

    assert (project / "aptui.yaml").read_text(encoding="utf-8") == PROJECT
    assert change.settings.rejected == ("7.7.7.7", "5.6.7.8")
    assert peer_settings.overridden(change.settings, change.configured) == {"serve.rejected": ["7.7.7.7", "5.6.7.8"]}


def test_access_list_change_is_an_override_if_the_configuration_is_read_only(project, monkeypatch):
    def refuse(*_):
        raise HostError("read-only file system")

    monkeypatch.setattr(edit, "rewrite", refuse)
    change = do(project, PeerOrder(PeerAction.REJECT, entry="5.6.7.8"))

    stored = peer_settings.read_stored(project / "Cache" / peer_settings.PLACE)
    assert stored.effective_settings(change.configured) == change.settings
    assert change.configured.rejected == ("1.2.3.4", "10.0.0.0/8")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.parent / "XDG_CONFIG_HOME"))
    later = do(project, PeerOrder(PeerAction.LIST_OFF))
    assert later.configured == replace(change.settings, has_allow_list=False), "the override is written when the file is writable"
    assert not (project / "Cache" / peer_settings.PLACE).exists()


def test_project_without_a_configuration_file_stores_changes_as_overrides(project):
    stored_settings = peer_settings.read_peer_settings(load(project).serve)
    (project / "aptui.yaml").unlink()

    change = peer_settings.change_settings(
        project / "Cache" / peer_settings.PLACE, stored_settings, PeerOrder(PeerAction.LIST_OFF), project
    )

    assert not (project / "aptui.yaml").exists()
    assert peer_settings.read_stored(project / "Cache" / peer_settings.PLACE).settings == change.settings
