"""`demo` writes and processes the demo project, `config` prints the settings of a project, `schema` prints their JSON Schema.

Tests: `tests/features/shipping/test_verbs.py`.
"""

from __future__ import annotations

import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing
from functools import partial
from pathlib import Path

from aptui import feature
from aptui.batch.options import RunOptions, consent, load_config, project_dir, refuse_ignored, refuse_second_folder
from aptui.batch.run import INTERRUPTED, JOBS_FAILED, run
from aptui.batch.summary import Summary
from aptui.config import configuration, dirs, load, packing
from aptui.config.dirs import asset_database
from aptui.shared import printing
from aptui.store.queries.reader import open_reader

_DEMO_FOLDER = "aptui-demo"

# -------------------------------------------------------------------------------------------------------------------- demo


def demo_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `demo`."""
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="DIR",
        help=f"folder of the demo: a new or empty folder, or an earlier demo; ./{_DEMO_FOLDER} by default",
    )
    parser.add_argument("--batch", action="store_true", help="process the demo without opening the screen")
    parser.add_argument(
        "--web", action="store_true", help="show the products of the demo in a browser, which updates when a source is saved"
    )


def demo(arguments: Namespace) -> int:
    """Write, process and explain the demo project; exit 0 if exactly the intended jobs fail.

    On a terminal the screen shows the progress, and the engine ends when the user leaves the screen.
    """
    from aptui.demo import demo_project

    refuse_second_folder(arguments)
    if arguments.web:
        refuse_ignored(arguments, ["batch"], "has no effect with '--web'")
    folder = Path(arguments.folder or arguments.project or _DEMO_FOLDER).absolute()
    show_page = feature.load_needed("demo_page") if arguments.web else None
    demo_project.write_project(folder, has_page=show_page is not None)
    config = load.load(folder)
    consent(config)
    if show_page is not None:
        return int(show_page(config))
    if not arguments.batch and printing.is_terminal(sys.stdin) and printing.is_terminal(sys.stdout):
        _show_demo(config)
    summary = run(config, RunOptions())
    if summary.is_interrupted:
        summary.print_summary()
        return INTERRUPTED
    if wrong := _find_unintended(summary, demo_project.INTENDED_FAILURES):
        summary.print_summary()
        for text in wrong:
            printing.say(text, "red")
        return JOBS_FAILED
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        printing.say(demo_project.explain(product.name for product in database.products()))
    summary.print_total()
    name = printing.line(shlex.quote(arguments.folder or arguments.project or _DEMO_FOLDER))
    printing.say(f"As intended, only the two jobs above failed. Products: {name}/Cache")
    printing.say(f"Next: aptui -C {name} (screen), aptui demo --web {name} (browser),")
    printing.say(f"or edit a file, and run aptui batch -C {name}: only its jobs run.")
    return 0


def _show_demo(config: configuration.Config) -> None:
    from aptui.cli.engine_verbs import stop_engines
    from aptui.cli.screen_verb import show

    try:
        show(config, Namespace(theme="", no_mouse=False))
    finally:
        stop_engines(config.cache_dir)


def _find_unintended(summary: Summary, intended: tuple[str, ...]) -> list[str]:
    failed = {failure.source for failure in summary.failures}
    wrong = [f"{printing.line(source)} failed, but should have succeeded" for source in sorted(failed - set(intended))]
    return wrong + [f"{source} succeeded, but should have failed" for source in intended if source not in failed]


# ------------------------------------------------------------------------------------------------------------------ config


def config_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `config`."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the configuration")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--explain", metavar="KEY", help="print the lines that set a key, and the values that they override")


def _explain(arguments: Namespace) -> int:
    """Print the values of one key in all configuration layers: the effective value first, then the values that it overrides."""
    messages = load.explain(project_dir(arguments), arguments.explain, arguments.set)
    for explain_more in feature.load_all("explain"):
        messages = [*messages, *explain_more(arguments.explain, partial(load_config, arguments))]
    if arguments.json:
        printing.say_json([{"where": each.where, "value": each.text} for each in reversed(messages)])
        return 0
    last = messages[-1]
    printing.say(f"{printing.line(arguments.explain)} is {_format_value(last.text)}")
    for before, each in zip(["set by", *["which overrode"] * len(messages)], reversed(messages), strict=False):
        printing.say(f"  {before:<15} {printing.line(each.where)}  {_format_value(each.text)}")
    return 0


def _format_value(text: str | None) -> str:
    return "removed" if text is None else printing.line(text)


def config(arguments: Namespace) -> int:
    """Print the effective configuration and the files that it was read from."""
    if arguments.explain is not None:
        return _explain(arguments)
    found = load_config(arguments)
    project = found.project
    if arguments.json:
        printing.say_json(packing.pack(found))
        return 0
    printing.say(f"project       {printing.line(found.name)}  {printing.line(str(found.project_dir))}")
    for file, _digest in found.layers:
        printing.say(f"layer         {printing.line(file)}")
    for platform in project.platforms:
        host = ", this machine's" if platform.id == project.host_platform else ""
        printing.say(f"platform      {platform.id}{host}  {' '.join(platform.tags)}")
    for folder in project.scan_folders:
        printing.say(f"scan folder   {printing.line(folder.name)}  {printing.line(folder.path)}  order {folder.order}")
    for builder in project.builders:
        patterns = " ".join(printing.line(pattern.text) for pattern in builder.patterns) or "(its code sets the patterns)"
        printing.say(f"builder       {printing.line(builder.name)}  {builder.kind.value}  {patterns}")
    printing.say(f"cache         {printing.line(str(found.cache_dir))}")
    printing.say(f"logs          {printing.line(str(found.log_dir))}")
    printing.say(f"workers       {found.workers}")
    return 0


# ------------------------------------------------------------------------------------------------------------------ schema


def schema_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `schema`."""
    parser.add_argument("--path", action="store_true", help="print the path of the schema file instead of its content")


def schema(arguments: Namespace) -> int:
    """Print the JSON Schema of `aptui.yaml`."""
    file = dirs.data_dir() / "config" / "aptui.schema.json"
    if arguments.path and file.is_file():
        printing.say(printing.line(str(file)))
        return 0
    from aptui.config.yaml.config_schema import SCHEMA

    printing.say(file.read_text(encoding="utf-8").rstrip() if file.is_file() else json.dumps(SCHEMA, indent=2))
    return 0
