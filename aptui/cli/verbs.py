"""The verbs that do not belong to a feature, and the texts of help: groups, examples, exit codes, environment variables.

`--help`, the man page, `aptui docs` and the reference pages are generated from these texts. Features declare their own verbs
(`aptui.feature`). Tests: `tests/cli/test_manual.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from aptui import feature
from aptui.feature import VerbInfo

GROUP_TEXTS = {
    "begin": "create a first project, and get help",
    "build": "make products, check them, pack them",
    "look": "read states and reasons; these verbs do not change anything",
    "steer": "run and control an engine in the background",
    "graph": "show dependencies, and move or delete sources",
    "team": "share results, and connect editors, games and clusters",
    "more": "other verbs",
}
"""{group of verbs: heading}, in the order of the help; a verb without a group is in the last group."""
O3DE = """\
  Every verb works in a folder with O3DE's project.json; --engine-path names the engine.
  aptui init --from-o3de      write the equivalent aptui.yaml
  aptui batch --adopt-cache   use a cache that O3DE made
  AssetProcessorBatch, AssetProcessor: the same engine with O3DE's command line"""
EXIT_CODES = {
    0: "success: all products are up to date",
    1: "a job failed, or a check found something",
    2: "stopped by a problem of the machine, or by a bug in aptui",
    3: "stopped by a mistake in the configuration or the arguments",
    4: "another engine holds the cache",
    5: "stopped at the failure limit (--stop-after)",
    130: "interrupted",
}
ENVIRONMENT = {
    "ACCESSIBLE": "if set: plain lines of text instead of a screen, as with `--plain`",
    "APTUI_CACHE_TOKEN": "token for a shared cache over HTTP",
    "APTUI_EVENT": "event that a program started by the setting `on:` receives: `failed`, `mended` or `idle`",
    "APTUI_GLYPHS": "`ascii` or `utf8`: draw the screen with these characters",
    "APTUI_OUTPUT": "`stock`: always send whole regions of the screen; use it if the terminal displays the screen wrongly",
    "APTUI_SANDBOX": "`off`: run workers without a sandbox, unless the project requires one",
    "APTUI_TEXT": "message that a program started by the setting `on:` receives, in one sentence",
    "APTUI_TOKEN": "token that `aptui client` sends to a gateway",
    "APTUI_TRACE": "file to which an engine writes a trace of its work, to find slow parts",
    "APTUI_TRUST": "`1`: trust every project without asking; for build machines",
    "NO_COLOR": "if set: print without colours",
    "PAGER": "program that shows the pages of `aptui docs`; `less` by default",
    "TERM": "`dumb`: plain lines instead of a screen",
    "XDG_CACHE_HOME": "folder of the local store, in `aptui/`",
    "XDG_CONFIG_HOME": "folder of your own settings, keys and themes, in `aptui/`",
    "XDG_STATE_HOME": "folder of tokens, trust records, crash files, engines' sockets and the screen's state, in `aptui/`",
}
VERBS: Mapping[str, VerbInfo] = {
    "demo": VerbInfo(
        "aptui.cli.project_verbs",
        "write a small project, build it, and explain the result",
        "begin",
        ("aptui demo --web", "aptui demo"),
    ),
    "init": VerbInfo(
        "aptui.cli.init_verb",
        "write an aptui.yaml for a folder",
        "begin",
        ("aptui init --dry-run", "aptui init --copy '*.txt' '*.json'"),
    ),
    "trust": VerbInfo(
        "aptui.cli.trust_verb",
        "trust a project: allow its commands, hooks, checks and Python files to run",
        "begin",
        ("aptui trust", "aptui trust --yes", "aptui trust --list"),
    ),
    "doctor": VerbInfo(
        "aptui.cli.doctor",
        "check versions, limits, disk, cache and database, and print remedies",
        "begin",
        ("aptui doctor", "aptui doctor --json"),
    ),
    "docs": VerbInfo(
        "aptui.cli.manual",
        "show the reference of all verbs and options, or one of its pages",
        "begin",
        ("aptui docs", "aptui docs --man > aptui.1"),
    ),
    "help": VerbInfo("aptui.cli.manual", "show the help of a verb", "begin", ("aptui help batch", "aptui help cache gc")),
    "completion": VerbInfo(
        "aptui.cli.manual",
        "print the completion script of bash, zsh or fish",
        "begin",
        ('eval "$(aptui completion bash)"', "aptui completion fish > ~/.config/fish/completions/aptui.fish"),
    ),
    "schema": VerbInfo(
        "aptui.cli.project_verbs",
        "print the JSON Schema of aptui.yaml, for editors",
        "begin",
        ("aptui schema --path", "aptui schema > aptui.schema.json"),
    ),
    "batch": VerbInfo(
        "aptui.batch.run",
        "run all new, changed and failed jobs, then exit",
        "build",
        ("aptui batch", "aptui batch --platforms linux --junit report.xml --fail-on warning"),
    ),
    "reprocess": VerbInfo(
        "aptui.cli.run_verbs",
        "run the jobs of some sources again",
        "build",
        ("aptui reprocess textures/hero.png", "aptui reprocess 'textures/*'"),
    ),
    "rerun": VerbInfo(
        "aptui.cli.run_verbs",
        "run one job in the foreground, and keep the folder with its products",
        "build",
        ("aptui rerun textures/hero.png", "aptui rerun '#12'"),
    ),
    "builder": VerbInfo(
        "aptui.cli.builder_verb",
        "write a new builder, or run a builder on one file",
        "build",
        ("aptui builder run atlas ui.atlas", "aptui builder new words"),
    ),
    "verify": VerbInfo(
        "aptui.cli.verify_verb",
        "compare every product with its recorded digest, and list unknown files",
        "build",
        ("aptui verify", "aptui verify --rebuild 5%"),
    ),
    "open": VerbInfo(
        "aptui.cli.screen_verb",
        "show a cache on the screen, without an engine",
        "look",
        ("aptui open Cache", "aptui open /mnt/build/Cache"),
    ),
    "status": VerbInfo(
        "aptui.cli.read_verbs",
        "print the number of jobs in each state, failures, and sizes",
        "look",
        ("aptui status", "aptui status --json"),
    ),
    "jobs": VerbInfo(
        "aptui.cli.read_verbs", "list jobs", "look", ("aptui jobs --status failed", "aptui jobs --filter 'builder:image slower:2s'")
    ),
    "log": VerbInfo(
        "aptui.cli.log_verb",
        "print the log of a job",
        "look",
        ("aptui log textures/hero.png --follow", "aptui log textures/hero.png --history"),
    ),
    "logs": VerbInfo(
        "aptui.cli.log_verb",
        "print the end of the engine's log, or the paths of its logs",
        "look",
        ("aptui logs", "aptui logs --path"),
    ),
    "why": VerbInfo(
        "aptui.cli.why_verb",
        "explain why a job ran, waits or failed, or why a file has no jobs",
        "look",
        ("aptui why textures/hero.png", "aptui why '#12'"),
    ),
    "explain": VerbInfo(
        "aptui.cli.explain_verb",
        "print the builders, rules and settings that apply to a path, with file and line",
        "look",
        ("aptui explain textures/hero.png", "aptui explain textures/ --json"),
    ),
    "builders": VerbInfo(
        "aptui.cli.read_verbs",
        "list builders with their job counts and run times",
        "look",
        ("aptui builders", "aptui builders --json"),
    ),
    "config": VerbInfo(
        "aptui.cli.project_verbs",
        "print the effective configuration",
        "look",
        ("aptui config", "aptui config --explain serve.port"),
    ),
    "serve": VerbInfo(
        "aptui.cli.engine_verbs",
        "run the engine in the foreground and keep all products up to date",
        "steer",
        ("aptui serve", "aptui serve --workers 4"),
    ),
    "start": VerbInfo(
        "aptui.cli.engine_verbs", "start the engine in the background", "steer", ("aptui start", "aptui start -C ../game")
    ),
    "stop": VerbInfo("aptui.cli.engine_verbs", "stop the engine", "steer", ("aptui stop", "aptui stop --all")),
    "ps": VerbInfo("aptui.cli.engine_verbs", "list the running engines", "steer", ("aptui ps", "aptui ps --json")),
    "pause": VerbInfo(
        "aptui.cli.engine_verbs",
        "pause the engine: running jobs finish, and no new jobs start",
        "steer",
        ("aptui pause", "aptui pause -C ../game"),
    ),
    "run-next": VerbInfo(
        "aptui.cli.engine_verbs",
        "run one job before all others, even if the engine is paused",
        "steer",
        ("aptui run-next", "aptui run-next textures/hero.png@linux"),
    ),
    "resume": VerbInfo(
        "aptui.cli.engine_verbs", "continue after 'pause' or 'drain'", "steer", ("aptui resume", "aptui resume -C ../game")
    ),
    "drain": VerbInfo(
        "aptui.cli.engine_verbs",
        "finish pending jobs, and do not process new changes until 'resume'",
        "steer",
        ("aptui drain", "aptui drain -C ../game"),
    ),
    "interest": VerbInfo(
        "aptui.cli.run_verbs",
        "process some sources before others for 90 seconds",
        "steer",
        ("aptui interest levels/one.json", "aptui interest 'textures/hero*' --json"),
    ),
    "hold": VerbInfo(
        "aptui.cli.engine_verbs",
        "run a command, and process its changes together when it has ended",
        "steer",
        ("aptui hold -- git checkout main", "aptui hold -- make assets"),
    ),
    "rescan": VerbInfo("aptui.cli.engine_verbs", "check all files for changes", "steer", ("aptui rescan", "aptui rescan --full")),
    "reload": VerbInfo(
        "aptui.cli.engine_verbs", "read the configuration again", "steer", ("aptui reload", "aptui reload -C ../game")
    ),
}
"""The verbs of the kernel. A verb's module has `<verb>_arguments(parser)` and `<verb>(arguments)`, which returns the exit code."""


def all_verbs() -> dict[str, VerbInfo]:
    """Return the verbs of the kernel and of all features, in the order of their groups."""
    verbs = {**VERBS, **{name: verb for name, verb in feature.verbs().items() if name not in VERBS}}
    groups = list(GROUP_TEXTS)
    return dict(sorted(verbs.items(), key=lambda item: groups.index(group_of(item[1]))))


def group_of(verb: VerbInfo) -> str:
    """Return the group of a verb: a key of `GROUP_TEXTS`."""
    return verb.group if verb.group in GROUP_TEXTS else "more"


def examples_of(name: str) -> list[str]:
    """Return two examples of a verb (such as `cache`), or of its action (such as `cache gc`)."""
    verb, _, action = name.partition(" ")
    examples = all_verbs()[verb].examples
    return [each for each in examples if f"{each} ".startswith(f"aptui {name} ")] if action else list(examples[:2])


def overview() -> str:
    """Return the end of `aptui --help`: the verbs in their groups, O3DE's programs and the exit codes."""
    parts: dict[str, list[str]] = {}
    for name, verb in all_verbs().items():
        parts.setdefault(group_of(verb), []).append(f"  {name:<13} {verb.help}")
    texts = ["\n".join([f"{group}: {GROUP_TEXTS[group]}", *lines]) for group, lines in parts.items()]
    texts.append(f"O3DE:\n{O3DE}")
    texts.append("\n".join(["exit codes:", *(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())]))
    texts.append("New here? Try 'aptui demo --web', begin a project with 'aptui init', and read 'aptui help VERB'.")
    return "\n\n".join(texts)


def ending(name: str) -> str:
    """Return the text below the options of a verb, or of its action."""
    return "\n".join(["examples:", *(f"  {example}" for example in examples_of(name))])
