"""Themes: shipped themes are complete, mistakes of the user are reported with their position, a terminal gets a suitable theme."""

import pytest
from textual.events import AppFocus

from aptui.shared.errors import UserError
from aptui.tui.frame import theme_manager
from aptui.tui.frame.sheets import Toasts
from aptui.tui.preferences import theming, yaml_files
from tui.shell_harness import in_shell, text, until

pytestmark = pytest.mark.real

SHIPPED = {"dark", "light", "high-contrast", "deuteranopia", "monochrome", "ansi-dark", "ansi-light"}


@pytest.fixture(autouse=True)
def own(own_homes, tmp_path):
    folder = tmp_path / "XDG_CONFIG_HOME" / "aptui" / "themes"
    folder.mkdir(parents=True)
    return folder


def test_every_shipped_theme_is_complete():
    themes = theming.load_themes()

    assert themes.mistakes == []
    assert set(themes.by_name) == SHIPPED
    assert all(set(definition.roles) == set(theming.ROLES) and definition.description for definition in themes.by_name.values())
    assert all(
        theming.rich_style(style) is not None for definition in themes.by_name.values() for style in definition.roles.values()
    )


def test_monochrome_theme_has_only_attributes():
    definition = theming.load_themes().by_name["monochrome"]

    assert set(definition.colors.values()) == {"ansi_default"}
    assert not [style for style in definition.roles.values() if set(style.split()) - theming.ATTRIBUTES - {"ansi_default"}]


@pytest.mark.parametrize(
    ("body", "at", "what"),
    [
        ("colours: {}\n", "1:1", "unknown key of a theme 'colours'"),
        ("extends: dark\nroles:\n  faild: bold\n", "3:3", "unknown role 'faild'"),
        ("extends: dark\nroles:\n  failed: purple\n", "3:11", "'purple' cannot be part of a style"),
        ("extends: dark\ncolors: {error: '#12'}\n", "2:17", "'#12' is not a colour"),
        ("extends: dark\ndark: maybe\n", "2:7", "'dark' must be true or false"),
        ("- dark\n", "1:1", "a theme must be a mapping"),
        ("extends: nothing\n", "1:1", "cannot extend 'nothing'"),
        ("name: lonely\ncolors: {}\n", "1:1", "does not define every colour"),
        ("roles: {failed: bold\n", "", "not valid YAML"),
    ],
)
def test_mistake_in_a_theme_of_the_user_is_reported_with_its_position(own, body, at, what):
    (own / "mine.yaml").write_text(body)

    themes = theming.load_themes()

    assert set(themes.by_name) == SHIPPED
    assert [f"mine.yaml:{at}" in mistake.where and what in mistake.what for mistake in themes.mistakes] == [True]


def test_theme_of_the_user_extends_or_replaces_a_shipped_one(own):
    (own / "mine.yaml").write_text("extends: light\nroles: {failed: 'bold #ff0000'}\n")
    (own / "dark.yaml").write_text("extends: monochrome\n")

    themes = theming.load_themes()

    assert themes.by_name["mine"].roles["failed"] == "bold #ff0000"
    assert themes.by_name["mine"].roles["warning"] == themes.by_name["light"].roles["warning"]
    assert not themes.by_name["mine"].is_dark
    assert themes.by_name["dark"].is_ansi


def test_unchanged_theme_file_is_not_parsed(own, monkeypatch):
    theming.load_themes()
    monkeypatch.setattr("aptui.config.yaml.nodes.read_yaml", lambda *_: pytest.fail("read again"))

    assert set(theming.load_themes().by_name) == SHIPPED


def test_theme_file_with_a_dangling_link_is_reported_and_other_themes_are_read(own):
    (own / "mine.yaml").write_text("extends: dark\n")
    (own / "gone.yaml").symlink_to(own / "absent.yaml")

    themes = theming.load_themes()

    assert set(themes.by_name) == SHIPPED | {"mine"}
    assert ["cannot be read" in str(mistake) for mistake in themes.mistakes] == [True]
    assert themes.is_current()


def test_theme_file_that_cannot_be_read_is_reported(own):
    with pytest.raises(UserError, match="cannot be read"):
        yaml_files.compile_file(own / "absent.yaml", theming.check_theme)


@pytest.mark.parametrize(
    ("wanted", "environment", "shown"),
    [
        ("light", {"TERM": "xterm-256color"}, "light"),
        ("light", {"TERM": "linux"}, "ansi-light"),
        ("dark", {"TERM": "screen"}, "ansi-dark"),
        ("gone", {"TERM": "xterm-256color"}, "dark"),
        ("dark", {"TERM": "xterm-256color", "NO_COLOR": "1"}, "monochrome"),
        ("ansi-dark", {"TERM": "xterm-256color"}, "ansi-dark"),
    ],
)
def test_suitable_theme_depends_on_the_chosen_theme_and_the_terminal(wanted, environment, shown):
    assert theming.suitable(wanted, theming.load_themes(), environment) == shown


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_app_starts_with_every_shipped_theme(tmp_path, name):
    async def definition(app, pilot, _session):
        assert app.theme == name
        assert theming.roles(app)["failed"].bold
        await pilot.press("colon", *"th")

        await until(pilot, lambda: "theme" in text(app))

    in_shell(tmp_path, definition, theme=name)


def test_no_colour_is_sent_to_a_terminal_without_colours(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def definition(app, _pilot, _session):
        colours = {
            colour.name
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None
        }

        assert colours <= {"default"}

    in_shell(tmp_path, definition)


def test_theme_picker_previews_a_theme_and_then_restores_or_keeps_it(tmp_path):
    async def pick(app, pilot, _session):
        await pilot.press("colon", *"theme", "enter")
        await pilot.press("down")
        await until(pilot, lambda: app.theme == "deuteranopia")
        await until(pilot, lambda: "told apart with" in text(app))  # the description of the theme is not cut
        await pilot.press("escape")
        await until(pilot, lambda: app.theme == "dark")
        assert not app.person.get("theme", "")
        await pilot.press("colon", *"theme", "enter")
        await pilot.press("up", "enter")
        await until(pilot, lambda: app.theme == "ansi-light" and app.focused.id == "pane-jobs-one")

    assert in_shell(tmp_path, pick).person.get("theme", "") == "ansi-light"


def test_theme_key_selects_the_next_theme_and_an_unknown_name_is_reported(tmp_path):
    async def cycle(app, pilot, _session):
        await pilot.press("T")
        await until(pilot, lambda: app.theme == "deuteranopia")
        await pilot.press("colon", *"theme nice", "enter")
        await until(pilot, lambda: "unknown theme 'nice'" in text(app))

    in_shell(tmp_path, cycle)


def test_edited_theme_file_is_applied(tmp_path, own, monkeypatch):
    monkeypatch.setattr(theme_manager, "CHECK_S", 0.05)
    (own / "mine.yaml").write_text("extends: dark\n")

    async def edit(app, pilot, _session):
        (own / "mine.yaml").write_text("extends: dark\nroles: {failed: 'underline #00ff00'}\n")
        await until(pilot, lambda: theming.roles(app)["failed"].underline)
        (own / "mine.yaml").write_text("rules: {}\n")
        await until(pilot, lambda: any("mine.yaml:1:1" in each[1] for each in app.query_one(Toasts).remembered))

    in_shell(tmp_path, edit, theme="mine")


def test_changed_theme_is_applied_when_the_focus_returns(tmp_path, own):
    (own / "mine.yaml").write_text("extends: dark\n")

    async def edit(app, pilot, _session):
        (own / "mine.yaml").write_text("extends: dark\nroles: {failed: 'underline #00ff00'}\n")
        app.post_message(AppFocus())
        await until(pilot, lambda: theming.roles(app)["failed"].underline)
        (own / "mine.yaml").write_text("rules: {}\n")
        await pilot.press("colon", *"theme reload", "enter")
        await until(pilot, lambda: any("mine.yaml:1:1" in each[1] for each in app.query_one(Toasts).remembered))

    in_shell(tmp_path, edit, theme="mine")
