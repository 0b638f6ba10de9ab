"""`explain`: which scan folder, rules, builders and settings apply to a path, and which line of which file says so."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from typing import Any

from aptui.batch.options import project_dir
from aptui.shared import printing
from aptui.verbs.graph.explanation import explain as explained
from aptui.verbs.graph.explanation import kind_word

_WIDTH = 13
_NOT_A_SOURCE = {
    "missing": "there is no such file; if there were, this would apply to it",
    "settings": "a settings file is never a source; this is what it, and those above it, adjust here",
    "folder": "a folder; this is what settings adjust below it",
}


def explain_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `explain`."""
    parser.add_argument("path", metavar="PATH", help="a source, existing or not, or a folder")
    parser.add_argument("--platforms", metavar="A,B", help="exactly these platforms")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the configuration")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = "'aptui why' tells what became of a source; this verb tells which settings apply to it, and needs no database."


def explain(arguments: Namespace) -> int:
    """Explain a path."""
    answer = explained(arguments)
    if arguments.json:
        printing.say_json(answer)
        return 0
    prefix = os.path.join(os.path.abspath(project_dir(arguments)), "")
    for text, colour in _format_answer(answer, lambda place: printing.line(place.replace(prefix, ""))):
        printing.say(text, colour)
    return 0


Shown = Callable[[str], str]
"""Makes a place safe and short."""


def _format_answer(answer: dict[str, Any], shown: Shown) -> Iterator[tuple[str, str]]:
    """Yield (line, colour) for people."""
    yield printing.line(answer["path"]), "bold"
    if answer["is"] in _NOT_A_SOURCE:
        yield f"  {_NOT_A_SOURCE[answer['is']]}", ""
    if answer["ignored_by"]:
        yield f"  {'ignored':{_WIDTH}} by {shown(answer['ignored_by'])}: nothing below applies", "yellow"
    if answer["scan_folder"]:
        yield f"  {'scan folder':{_WIDTH}} {_holder(answer['scan_folder'], shown)}", ""
    for holder in answer["overridden"]:
        yield f"  {'also in' if answer['is'] == 'folder' else 'overrides':{_WIDTH}} {_holder(holder, shown)}", ""
    for file in answer["settings"]:
        yield f"  {'settings':{_WIDTH}} {shown(file['file'])}", ""
        if file["problem"]:
            yield f"  {'':{_WIDTH}} {shown(file['problem'])}", "red"
            yield f"  {'':{_WIDTH}} until that is fixed, all sources below it fail and keep their last good products", "red"
    for companion in answer["companions"]:
        there = "" if companion["exists"] else ", not there"
        yield f"  {'companion':{_WIDTH}} {printing.line(companion['path'])}{there}  {_from(companion, shown)}", ""
    for builder in answer["builders"]:
        yield from _describe_builder(builder, shown)
    if not answer["builders"]:
        nothing = "nothing is adjusted here" if answer["is"] in ("folder", "settings") else "none: no builder's pattern matches"
        yield f"  {'builder':{_WIDTH}} {nothing}", "yellow"


def _holder(holder: dict[str, str], shown: Shown) -> str:
    return f"{printing.line(holder['name'])}  ({shown(holder['file'])})"


def _from(item: dict[str, Any], shown: Shown) -> str:
    return f"({shown(item['from'])})" if item["from"] else ""


def _describe_builder(builder: dict[str, Any], shown: Shown) -> Iterator[tuple[str, str]]:
    pattern = f", by {printing.line(builder['pattern'])!r}" if builder["pattern"] else ""
    head = f"  {'builder':{_WIDTH}} {printing.line(builder['builder'])}, {kind_word(builder['kind'])}{pattern}"
    yield f"{head}  {_from(builder, shown)}".rstrip(), "bold"
    for platform in builder["platforms"]:
        yield from _describe_platform(platform, shown)
    word = "environment"
    for variable in builder["environment"]:
        state = f"{'set' if variable['is_set'] else 'not set'} here; an engine that runs uses those of where it was started"
        yield f"    {word:{_WIDTH}} {printing.line(variable['name'])}, {state}  {_from(variable, shown)}".rstrip(), ""
        word = ""
    for name, limit in builder["limits"].items():
        word = {"time_s": "time limit", "memory_bytes": "memory limit", "analysis_s": "analysis"}[name]
        if name == "memory_bytes":
            value = (
                "a share of the machine's"
                if limit["value"] == "auto"
                else printing.size(limit["value"])
                if limit["value"]
                else "none"
            )
        else:
            value = printing.duration(limit["value"])
        yield f"    {word:{_WIDTH}} {value}  {_from(limit, shown)}", "dim"


def _describe_platform(platform: dict[str, Any], shown: Shown) -> Iterator[tuple[str, str]]:
    name = printing.line(platform["platform"])
    if not platform["enabled"]:
        yield f"    {name:{_WIDTH}} {printing.line(platform['said'])}  {_from(platform, shown)}".rstrip(), "yellow"
    elif not platform["params"]:
        yield f"    {name:{_WIDTH}} no parameters", ""
    for param, value in platform["params"].items() if platform["enabled"] else ():
        text = json.dumps(value["value"], ensure_ascii=False)
        yield f"    {name:{_WIDTH}} {printing.line(param)} = {printing.line(text)}  {_from(value, shown)}", ""
        name = ""
