"""Programs that replace O3DE's: the names, switches, printed lines, logs and control channel are O3DE's, the engine is aptui's.

This package does not import `daemon`, and `daemon` does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aptui.cli.manual import ReferencePage

_INTRODUCTION = """\
The switches that O3DE documents for its programs. A switch *works*, is *accepted* and ignored, or is *refused*. Each ignored
switch is reported in one line on standard output, with the reason. Switches have O3DE's names, in upper
or lower case, with `--`, `-` or, for the asset processor, `/` before them.

The last section is about the Editor, launchers and devices: they connect to a running engine through O3DE's own asset processor
protocol, at `remote_port`. An engine that stays up (`aptui`, `aptui serve`, `aptui start`) serves them in an O3DE project, and in
other projects if `serve: {o3de: true}` is set; `--set serve.o3de=false` switches this off. The protocol has no password. Programs
of the engine's user may connect. Programs of other users and of other machines need an entry in
`/Amazon/AzCore/Bootstrap/allowed_list` or `serve.allowed`. Even with an entry, programs of other users and machines can neither
move or delete sources, nor write settings (`@user@/Registry`, `@user@/project.json`). Virtual files are below
`@products@` (read-only), `@user@`, `@usercache@` and `@log@`; requests for other paths fail.

This is *experimental*: no Editor, launcher or device has connected yet. A program that was built from the sources of O3DE's own
AzCore, AzFramework and the Editor's asset classes (branch development, commit 354a2acc of 8 August 2025) has connected. Its
`AssetSystemComponent` connected, waited for jobs, raised the priority of jobs, and connected again after restarts. With the name of
another project, or with another branch token, it was refused, as intended. Its `AssetCatalog` loaded `assetcatalog.xml`, and
received changed, new and removed products. Its `RemoteFileIO` read, wrote and moved files. Its Editor classes asked for paths,
assets and jobs, and received changes of sources and the request to show an asset in the Asset Browser. The messages that its
classes write are equal to aptui's messages, byte for byte. Not tried: the Asset Browser itself. It also reads O3DE's asset
database, whose tables differ from those of aptui's asset database.
`aptui/features/o3de/connection/__init__.py` describes frames and negotiation.
"""


def reference_pages() -> dict[str, ReferencePage]:
    """Return the page that `aptui docs o3de` prints. `aptui docs` calls this function through the extension point `reference`."""
    from aptui.cli.manual import ReferencePage  # imported here, because only `aptui docs` needs it

    return {"o3de": ReferencePage("O3DE.md", "Switches of O3DE's programs", _INTRODUCTION, _page_sections)}


def _page_sections() -> dict[str, list[tuple[str, str]]]:
    from aptui.features.o3de.programs import asset_builder, bundler_switches, program_switches

    processor = [
        (f"--{each.name}", _write_accepted(each.name, each.why_ignored) if each.why_ignored else f"works: {each.help}")
        for each in program_switches.SWITCHES
    ]
    processor += [(f"--{old}", f"works: another name for --{new}") for old, new in program_switches.ALIASES.items()]
    builder = [(f"-{name}", f"works: {text}") for name, text in asset_builder.SWITCHES.items()]
    builder += [(f"-{name}", _write_accepted(name, why, "-")) for name, why in asset_builder.IGNORED.items()]
    refusal = f"{asset_builder.WHY_REFUSED}; {asset_builder.INSTEAD}"
    builder += [(f"-task={task}", f'refused: "-task={task} {refusal}"') for task in asset_builder.CHILDREN]
    sections = {"AssetProcessorBatch, AssetProcessor": processor, "AssetBuilder": builder}
    for command, table in {"any command": bundler_switches.PROJECT, **bundler_switches.COMMANDS}.items():
        rows = [(f"--{name}", f"works: {text}") for name, (_takes, text) in table.items()]
        sections[f"AssetBundlerBatch: {command}"] = rows
    sections["AssetBundlerBatch: any command"] += [
        (f"--{name}", _write_accepted(name, why)) for name, (_takes, why) in bundler_switches.IGNORED.items()
    ]
    sections["AssetBundlerBatch: bundles"].append(("--bundleVersion=3", 'refused: "bundles of version 3 are not written"'))
    sections["Messages of the Editor, launchers and devices (experimental)"] = _message_rows()
    return {name: rows for name, rows in sections.items() if rows}


def _message_rows() -> list[tuple[str, str]]:
    from aptui.features.o3de.connection.o3de_messages import EXCHANGES, SENT, UNSERVED

    return [(each.request.name, each.extent) for each in EXCHANGES] + [*SENT.items()] + [*UNSERVED.items()]


def _write_accepted(name: str, why: str, lead: str = "--") -> str:
    return f'accepted: "{lead}{name} is accepted and ignored: {why}."'
