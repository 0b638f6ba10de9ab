"""`verify`: every product's bytes against the digest that the database has, and with `--repair` what is wrong made again.

What `--rebuild` does is in `rebuild`.

Tests: `tests/features/shipping/test_verbs.py`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from msgspec import to_builtins

from aptui.batch.options import RunOptions, load_config, load_to_run
from aptui.batch.run import INTERRUPTED, run
from aptui.cli.opening import open_for_reading
from aptui.cli.rebuild import share
from aptui.config.model import Config
from aptui.core.paths import key_of
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.integrity import Finding, OrphanFile, examine_products, orphans, still_orphans

DAMAGED = 1


def verify_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `verify`."""
    parser.add_argument("--repair", action="store_true", help="run the jobs of what is damaged or missing again")
    parser.add_argument(
        "--rebuild",
        type=share,
        metavar="SHARE",
        help="instead, run 5%% (or so many) of the completed jobs twice more, in private, and compare what they make",
    )
    parser.add_argument("--seed", type=int, metavar="NUMBER", help="with --rebuild: the same number chooses the same jobs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def verify(arguments: Namespace) -> int:
    """Compare all products; exit 1 when something is wrong (and was not repaired)."""
    config = load_to_run(arguments) if arguments.rebuild or arguments.repair else load_config(arguments)
    if arguments.rebuild:
        from aptui.cli.rebuild import rebuild

        if arguments.repair:
            raise UserError("'--repair' cannot be used with '--rebuild'", hint="a builder that differs has to be fixed")
        with open_for_reading(arguments, config) as project:
            return rebuild(config, project, arguments.rebuild, arguments.seed, as_json=arguments.json)
    checked, unknown, findings, leftovers = _check(arguments, config)
    code = DAMAGED if findings else 0
    repaired = False
    if findings and arguments.repair:
        code, repaired = _repair(arguments, config, findings)
    if arguments.json:
        printing.say_json(
            {
                "products": checked,
                "without_digest": unknown,
                "repaired": repaired,
                "findings": [to_builtins(finding) for finding in findings],
                "unknown_files": [leftover.name for leftover in leftovers],
            }
        )
        return code
    for finding in findings:
        printing.say(f"{finding.problem}: {printing.line(finding.product)}, made of {printing.line(finding.source)}", "red")
    for leftover in leftovers:
        fate = "the next scan deletes it" if leftover.is_watched else "it stays, because aptui did not make its folder"
        printing.say(f"unknown: {printing.line(leftover.name)} belongs to no product; {fate}", "yellow")
    printing.say(_verdict(checked, unknown, findings, is_repaired=repaired))
    return code


def _check(arguments: Namespace, config: Config) -> tuple[int, int, list[Finding], list[OrphanFile]]:
    """Return (how many products, how many of them without a digest, what is wrong, files that belong to no product)."""
    checked = unknown = 0
    findings = []
    with open_for_reading(arguments, config) as project:
        for product, finding in examine_products(project.database, config.cache_dir):
            checked += 1
            unknown += not product.digest
            findings += [finding] if finding else []
        platforms = [platform.id for platform in config.project.platforms]
        unknown_files = [file for _folder, files in orphans(project.database, config.cache_dir, platforms) for file in files]
        leftovers = still_orphans(unknown_files, project.database, config.cache_dir)
    return checked, unknown, sorted(findings, key=lambda finding: finding.product), leftovers


def _repair(arguments: Namespace, config: Config, findings: list[Finding]) -> tuple[int, bool]:
    """Run the jobs of these products again; return the exit code, and whether all is well now."""
    summary = run(config, RunOptions(sources=tuple(sorted({key_of(finding.source) for finding in findings}))))
    if summary.is_interrupted:
        return INTERRUPTED, False
    is_well = not _check(arguments, config)[2]
    return (0 if is_well else DAMAGED), is_well


def _verdict(checked: int, unknown: int, findings: list[Finding], *, is_repaired: bool) -> str:
    without = f", {unknown:,} without a recorded digest" if unknown else ""
    if not findings:
        return f"{printing.count(checked, 'product')} as recorded{without}"
    if is_repaired:
        return f"{len(findings):,} of {printing.count(checked, 'product')} made again"
    sources = list(_first_sources(findings))
    return (
        f"{len(findings):,} of {printing.count(checked, 'product')} not as recorded{without}; "
        f"'aptui verify --repair' makes them again, or 'aptui reprocess {' '.join(sources)}'"
    )


def _first_sources(findings: list[Finding], limit: int = 3) -> Iterator[str]:
    from shlex import quote

    sources = list(dict.fromkeys(finding.source for finding in findings))
    yield from (quote(printing.line(source)) for source in sources[:limit])
    if len(sources) > limit:
        yield "…"
