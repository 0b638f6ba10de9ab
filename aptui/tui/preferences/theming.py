"""Reads themes (shipped ones and the user's), makes Textual's themes and the styles of roles, and chooses a theme for a terminal.

A *role* is the meaning of a colour (failed, path, muted …). Its style is a text such as `bold #ff6b6b`; a theme without colours
uses only attributes, such as `reverse`. Widgets get styles from `roles(app)` and never name a colour.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from aptui.config.dirs import data_dir
from aptui.shared.errors import UserError
from aptui.tui.preferences import yaml_files
from aptui.tui.terminal.safety import facts, prepare_terminal

if TYPE_CHECKING:
    from rich.color import Color
    from rich.color_triplet import ColorTriplet
    from rich.style import Style
    from textual.app import App
    from textual.theme import Theme

    from aptui.config.yaml.nodes import Node


LEAST_CONTRAST = 4.5
"""Minimum contrast of text against its background (WCAG 2.2, 1.4.3)."""
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_STEPS = (0, 95, 135, 175, 215, 255)
PALETTE = tuple(
    [(red, green, blue) for red in _STEPS for green in _STEPS for blue in _STEPS]
    + [(level, level, level) for level in range(8, 248, 10)]
)
_MIXES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)


def fit_colours(text: str, colours: int) -> str:
    """Return a style or a colour; on a terminal of 256 colours, each colour is replaced by the nearest of the 256.

    Rich would use the greys of the palette only for colours that are nearly grey; a slate-coloured bar would become teal.
    """
    return _HEX.sub(lambda found: _nearest(found[0].lower()), text) if colours == 256 else text


@lru_cache(maxsize=512)
def _nearest(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))

    def distance(other: tuple[int, int, int]) -> float:
        mean = (red + other[0]) / 2  # the weights approximate how well the eye distinguishes shades of red, green and blue
        weights = (2 + mean / 256, 4, 2 + (255 - mean) / 256)
        return sum(weight * (mine - theirs) ** 2 for weight, mine, theirs in zip(weights, (red, green, blue), other, strict=True))

    return "#{:02x}{:02x}{:02x}".format(*min(PALETTE, key=distance))


def show_colour(colour: Color, colours: int, *, is_foreground: bool = True) -> ColorTriplet:
    """Return the colour that a terminal with `colours` colours shows; it assumes the most common palette."""
    from rich.color import ColorSystem  # imported here to start faster
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME

    systems = {16: ColorSystem.STANDARD, 256: ColorSystem.EIGHT_BIT}
    downgraded = colour.downgrade(systems[colours]) if colours in systems else colour
    return downgraded.get_truecolor(DEFAULT_TERMINAL_THEME, foreground=is_foreground)


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    """Return the contrast of two colours by WCAG, from 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(triplet: ColorTriplet) -> float:
    def linear(value: int) -> float:
        part = value / 255
        return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)

    return 0.2126 * linear(triplet.red) + 0.7152 * linear(triplet.green) + 0.0722 * linear(triplet.blue)


def legible(colour: Color, behind: Color, colours: int) -> Color:
    """Return a colour that is legible on the background `behind`: the given colour, or the nearest lighter or darker colour."""
    from rich.color import Color  # imported here to start faster

    ground, own = show_colour(behind, colours, is_foreground=False), show_colour(colour, colours)
    goal = max(
        (Color.from_rgb(255, 255, 255), Color.from_rgb(0, 0, 0)), key=lambda aim: contrast(show_colour(aim, colours), ground)
    )
    aim = show_colour(goal, colours)
    for share in _MIXES:
        mixed = Color.from_rgb(*(round(mine + (theirs - mine) * share) for mine, theirs in zip(own, aim, strict=True)))
        found = mixed if share else colour
        if contrast(show_colour(found, colours), ground) >= LEAST_CONTRAST:
            return found
    return goal


ROLES: dict[str, str] = {
    "failed": "bold ansi_red",
    "warning": "ansi_yellow",
    "completed": "ansi_green",
    "processing": "ansi_cyan",
    "pending": "dim",
    "cancelled": "dim italic",
    "muted": "dim",
    "path": "",
    "match": "bold underline",
    "key": "bold",
    "value": "",
    "error": "bold ansi_red",
    "info": "",
    "debug": "dim",
    "accent": "bold",
    "cursor": "reverse",
    "mark": "bold",
    "header": "bold",
    "title": "bold",
    "rule": "dim",
}
"""{role: its style in Textual's own themes}."""

COLORS = ("background", "surface", "panel", "foreground", "primary", "secondary", "accent", "warning", "error", "success")
ATTRIBUTES = frozenset({"bold", "dim", "italic", "underline", "reverse", "strike"})
_KEYS = ("name", "description", "dark", "ansi", "extends", "colors", "roles")
_ANSI = frozenset(
    {
        "default",
        *(
            f"{bright}{name}"
            for bright in ("", "bright_")
            for name in ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]
        ),
    }
)
DEFAULT, ANSI_DEFAULT, WITHOUT_COLOUR = "dark", "ansi-dark", "monochrome"
_FEW = 16


class ThemeFile(Struct, frozen=True):
    """A complete theme from a file; `is_ansi`: the theme uses the sixteen colours of the terminal."""

    name: str
    description: str
    is_dark: bool
    is_ansi: bool
    colors: Mapping[str, str]
    roles: Mapping[str, str]


class ThemeFiles(Struct):
    """All themes by name, the mistakes in the user's files, and the time stamps of all files at the time of reading."""

    by_name: dict[str, ThemeFile] = field(default_factory=dict)
    mistakes: list[UserError] = field(default_factory=list)
    stamps: tuple[tuple[str, int], ...] = ()

    def is_current(self) -> bool:
        """Return whether the theme files are unchanged: none was added, removed or edited since the reading."""
        return self.stamps == _stamps()


def load_themes() -> ThemeFiles:
    """Read all themes. A broken theme is reported; a theme of the user replaces the shipped theme of the same name."""
    themes = ThemeFiles(stamps=_stamps())
    parts: dict[str, dict[str, Any]] = {}
    for file, _ in themes.stamps:
        try:
            part = yaml_files.compile_file(Path(file), check_theme)
            parts[part.get("name") or Path(file).stem] = part
        except UserError as mistake:
            themes.mistakes.append(mistake)
    for name in parts:
        try:
            themes.by_name[name] = _complete(name, parts)
        except UserError as mistake:
            themes.mistakes.append(mistake)
    return themes


def _stamps() -> tuple[tuple[str, int], ...]:
    """Return (file, mtime_ns) of the shipped theme files, then of the user's."""
    found: list[tuple[str, int]] = []
    for folder in (data_dir() / "themes", yaml_files.config_home() / "themes"):
        with suppress(OSError), os.scandir(folder) as entries:
            found += sorted((entry.path, _mtime_ns(entry)) for entry in entries if entry.name.endswith(".yaml"))
    return tuple(found)


def _mtime_ns(entry: os.DirEntry[str]) -> int:
    """Return the time of a file, 0 for a dangling link, so that `load_themes` reports that the file cannot be read."""
    try:
        return entry.stat().st_mtime_ns
    except OSError:
        return 0


def check_theme(root: Node) -> dict[str, Any]:
    """Return a theme file as plain data.

    Raises:
        UserError: the first mistake, with its place.
    """
    children = yaml_files.mapping(root, "a theme")
    for key in children:
        yaml_files.check_key(root, key, _KEYS, "key of a theme")
    data: dict[str, Any] = {"where": root.where}
    for key in ("name", "description", "extends"):
        if key in children:
            data[key] = yaml_files.text(children[key], f"'{key}'")
    for key in ("dark", "ansi"):
        if key in children:
            data[key] = _flag(children[key], key)
    data["colors"] = _check_colors(children["colors"]) if "colors" in children else {}
    data["roles"] = _check_roles(children["roles"]) if "roles" in children else {}
    return data


def _flag(node: Node, key: str) -> bool:
    if not isinstance(node.value, bool):
        raise UserError(f"'{key}' must be true or false", where=node.where)
    return node.value


def _check_colors(node: Node) -> dict[str, str]:
    colors = {}
    for key, child in yaml_files.mapping(node, "'colors'").items():
        yaml_files.check_key(node, key, COLORS, "colour")
        colors[key] = yaml_files.text(child, f"colour '{key}'")
        if not _is_color(colors[key]):
            raise UserError(
                f"'{colors[key]}' is not a colour", where=child.where, hint="write a colour such as '#ff8800' or 'ansi_red'"
            )
    return colors


def _check_roles(node: Node) -> dict[str, str]:
    roles = {}
    for key, child in yaml_files.mapping(node, "'roles'").items():
        yaml_files.check_key(node, key, tuple(ROLES), "role")
        roles[key] = yaml_files.text(child, f"role '{key}'")
        for word in roles[key].split():
            if word not in ATTRIBUTES and word != "on" and not _is_color(word):
                hint = f"a style consists of {', '.join(sorted(ATTRIBUTES))}, a colour, and 'on' with a colour"
                raise UserError(f"'{word}' cannot be part of a style", where=child.where, hint=hint)
    return roles


def _is_color(word: str) -> bool:
    return _HEX.fullmatch(word) is not None or (word.startswith("ansi_") and word[5:] in _ANSI)


def _complete(name: str, parts: Mapping[str, dict[str, Any]], seen: tuple[str, ...] = ()) -> ThemeFile:
    """Return a theme, completed with the values of the theme that it extends."""
    part = parts[name]
    base: ThemeFile | None = None
    parent = part.get("extends")
    if parent is not None:
        if parent in (*seen, name) or parent not in parts:
            raise UserError(
                f"theme '{name}' cannot extend '{parent}'", where=part["where"], hint=f"the themes are {', '.join(sorted(parts))}"
            )
        base = _complete(parent, parts, (*seen, name))
    colors = {**(base.colors if base else {}), **part["colors"]}
    roles = {**(base.roles if base else {}), **part["roles"]}
    for what, lacking in (("colour", set(COLORS) - set(colors)), ("role", set(ROLES) - set(roles))):
        if lacking:
            hint = f"add {', '.join(sorted(lacking))}, or write 'extends: {DEFAULT}'"
            raise UserError(f"theme '{name}' does not define every {what}", where=part["where"], hint=hint)
    is_dark = part.get("dark", base.is_dark if base else True)
    is_ansi = part.get("ansi", base.is_ansi if base else False)
    return ThemeFile(name, part.get("description", ""), is_dark, is_ansi, colors, roles)


# ── conversion to Textual's themes ────────────────────────────────────────────────────────────────────────────────────


def theme_of(theme: ThemeFile) -> Theme:
    """Return the Textual theme for a theme that was read from a file.

    Its variables have, for each role, `role-<name>` (a colour, for CSS) and `role-<name>-style` (colours and attributes, for
    content).
    """
    from textual.theme import Theme  # imported here to start faster

    colors = {name: fit_colours(color, facts().colours) for name, color in theme.colors.items()}
    variables = {name: fit_colours(value, facts().colours) for name, value in _stock_variables(theme).items()}
    for role, style in theme.roles.items():
        words = style.split()
        before = words[: words.index("on")] if "on" in words else words
        first = next((word for word in before if word not in ATTRIBUTES), colors["foreground"])
        variables[f"role-{role}"] = fit_colours(first, facts().colours)
        variables[f"role-{role}-style"] = style
    return Theme(name=theme.name, dark=theme.is_dark, ansi=theme.is_ansi, variables=variables, **cast("dict[str, Any]", colors))


def _stock_variables(theme: ThemeFile) -> dict[str, str]:
    """Return variables for Textual's widgets (input, option list, palette) in the colours of the theme."""
    plain, paper, accent = theme.colors["foreground"], theme.colors["background"], theme.colors["accent"]
    is_bare = plain == accent == "ansi_default"
    ours = {
        "block-cursor-foreground": plain if is_bare else paper if not theme.is_ansi else "ansi_black",
        "block-cursor-background": paper if is_bare else accent,
        "block-cursor-text-style": "reverse bold" if is_bare else "bold",
        "input-cursor-foreground": plain if is_bare else paper if not theme.is_ansi else "ansi_black",
        "input-cursor-background": paper if is_bare else plain if not theme.is_ansi else "ansi_white",
        "input-cursor-text-style": "reverse" if is_bare else "none",
    }
    if theme.is_ansi:
        # Textual reads `_ANSI_VARIABLES` from an ANSI theme, so exactly these variables are set.
        ours |= {name: plain if is_bare else "ansi_blue" if name.endswith("background") else plain for name in _ANSI_VARIABLES}
        ours |= {"ansi-background": paper, "ansi-foreground": plain}
    return ours


_ANSI_VARIABLES = (
    "border-blurred", "input-selection-background", "input-selection-foreground", "screen-selection-background",
    "screen-selection-foreground",
)  # fmt: skip


class Roles:
    """The styles of one theme: `roles["failed"]` is a Rich style for segments, `roles.text("failed")` its text for `Content`."""

    def __init__(self, styles: Mapping[str, str]) -> None:
        self._texts = {role: fit_colours(text, facts().colours) for role, text in {**ROLES, **styles}.items()}
        self._styles = {role: rich_style(text) for role, text in self._texts.items()}

    def __getitem__(self, role: str) -> Style:
        return self._styles[role]

    def text(self, role: str) -> str:
        """Return the style text of a role, for `Content.styled` and `Content.assemble`."""
        return self._texts[role]


@lru_cache(maxsize=256)
def rich_style(text: str) -> Style:
    """Parse the style text as a Rich style."""
    from rich.style import Style  # imported here to start faster

    return Style.parse(text.replace("ansi_", "")) if text else Style()


_made: dict[int, tuple[Theme, Roles]] = {}


def roles(app: App[Any]) -> Roles:
    """Return the styles of the current theme; for Textual's own themes, they come from `ROLES`."""
    theme = app.current_theme
    known = _made.get(id(theme))
    if known is None or known[0] is not theme:
        _made.clear()
        styles = {role: theme.variables[f"role-{role}-style"] for role in ROLES if f"role-{role}-style" in theme.variables}
        known = _made[id(theme)] = (theme, Roles(styles))
    return known[1]


def suitable(wanted: str, themes: ThemeFiles, environment: Mapping[str, str] | None = None) -> str:
    """Return the name of the theme to begin with: `wanted` if the terminal can show it.

    If the user or the terminal requires a screen without colours, return a theme without colours.
    """
    colours = prepare_terminal(os.environ if environment is None else environment).colours
    if colours == 0:
        return WITHOUT_COLOUR
    theme = themes.by_name.get(wanted)
    if colours > _FEW or (theme is not None and theme.is_ansi):
        return wanted if theme is not None else DEFAULT
    return ANSI_DEFAULT if theme is None or theme.is_dark else "ansi-light"
