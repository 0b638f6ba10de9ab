"""What help says beyond the options: verbs in groups, two examples for each, exit codes, environment variables.

`--help`, the man page, `aptui docs` and the reference pages are made of these texts. Tests: `tests/cli/test_verbs.py`.
"""

from __future__ import annotations

GROUPS: dict[str, tuple[str, ...]] = {
    "begin": ("demo", "init", "trust", "doctor", "docs", "help", "completion", "schema"),
    "build": ("batch", "reprocess", "rerun", "restore", "capsule", "verify", "check", "lint", "assetlist", "bundle", "compare"),
    "look": (
        "open",
        "status",
        "report",
        "jobs",
        "log",
        "logs",
        "why",
        "explain",
        "builders",
        "history",
        "size",
        "trace",
        "changes",
        "config",
        "web",
    ),
    "steer": ("serve", "start", "stop", "ps", "pause", "run-next", "resume", "drain", "interest", "hold", "rescan", "reload"),
    "graph": ("deps", "query", "affected", "scan-missing", "move", "delete", "identities"),
    "team": ("cache", "gateway", "token", "client", "worker"),
}
"""{group: verbs}; every verb is in one."""
GROUP_TEXTS = {
    "begin": "a first project, and help",
    "build": "make products, check them, pack them",
    "look": "what there is and why; nothing is changed",
    "steer": "the engine that stays up",
    "graph": "what needs what; moving and deleting",
    "team": "shared results, editors, games, clusters",
}
O3DE = """\
  A folder with O3DE's project.json opens as it is, with every verb; --engine-path names the engine.
  aptui init --from-o3de      write the aptui.yaml that says the same
  aptui batch --adopt-cache   take over a cache that O3DE made
  AssetProcessorBatch, AssetProcessor: the same engine with O3DE's command line"""
EXIT_CODES = {
    0: "everything is current",
    1: "a job failed, or a check found something",
    2: "trouble with the machine, or a bug",
    3: "your mistake: configuration, arguments",
    4: "another engine holds the cache",
    5: "stopped after so many failures",
    130: "interrupted",
}
ENVIRONMENT = {
    "ACCESSIBLE": "set to anything: a conversation in lines instead of a screen, as `--plain`",
    "APTUI_CACHE_TOKEN": "token that a shared cache over HTTP wants",
    "APTUI_EVENT": "said to the programs of `on:`: failed, mended or idle",
    "APTUI_GLYPHS": "`ascii` or `utf8`: which characters the screen is drawn with",
    "APTUI_OUTPUT": "`stock`: the screen is sent in whole regions, for a terminal that shows something wrong",
    "APTUI_SANDBOX": "`off`: workers run without a sandbox, unless the project requires one",
    "APTUI_TEXT": "said to the programs of `on:`: the news in one sentence",
    "APTUI_TOKEN": "token that `aptui client` shows to a gateway",
    "APTUI_TRACE": "a file that a running engine writes what it does to, for finding out where time goes",
    "APTUI_TRUST": "`1`: every project is trusted, and nothing asks; for machines",
    "NO_COLOR": "set to anything: no colours",
    "PAGER": "what `aptui docs` is shown with; less by default",
    "TERM": "`dumb`: plain lines instead of a screen",
    "XDG_CACHE_HOME": "where the store of this machine's results is, in `aptui/`",
    "XDG_CONFIG_HOME": "where your own layer, keys and themes are, in `aptui/`",
    "XDG_RUNTIME_DIR": "where sockets of engines are",
    "XDG_STATE_HOME": "where tokens, crash files and what the screen remembers are, in `aptui/`",
}
EXAMPLES: dict[str, tuple[str, str]] = {
    "trust": ("aptui trust", "aptui trust --list"),
    "open": ("aptui open Cache", "aptui open /mnt/build/Cache"),
    "batch": ("aptui batch", "aptui batch --platforms linux --junit report.xml --fail-on warning"),
    "serve": ("aptui serve", "aptui serve --workers 4"),
    "start": ("aptui start", "aptui start -C ../game"),
    "stop": ("aptui stop", "aptui stop --all"),
    "ps": ("aptui ps", "aptui ps --json"),
    "pause": ("aptui pause", "aptui pause -C ../game"),
    "run-next": ("aptui run-next", "aptui run-next textures/hero.png@linux"),
    "resume": ("aptui resume", "aptui resume -C ../game"),
    "drain": ("aptui drain", "aptui drain -C ../game"),
    "hold": ("aptui hold -- git checkout main", "aptui hold -- make assets"),
    "rescan": ("aptui rescan", "aptui rescan --full"),
    "reload": ("aptui reload", "aptui reload -C ../game"),
    "status": ("aptui status", "aptui status --json"),
    "jobs": ("aptui jobs --status failed", "aptui jobs --filter 'builder:image slower:2s'"),
    "why": ("aptui why textures/hero.png", "aptui why '#12'"),
    "explain": ("aptui explain textures/hero.png", "aptui explain textures/ --json"),
    "log": ("aptui log textures/hero.png --follow", "aptui log textures/hero.png --history"),
    "logs": ("aptui logs", "aptui logs --path"),
    "size": ("aptui size", "aptui size --by builder --diff last~1"),
    "report": ("aptui report", "aptui report --by owner"),
    "trace": ("aptui trace", "aptui trace last~1 --out trace.json"),
    "capsule": ("aptui capsule textures/hero.png@linux", "aptui capsule run hero.png@linux.capsule.tgz"),
    "history": ("aptui history", "aptui history --json"),
    "changes": ("aptui changes", "aptui changes --follow --jsonl"),
    "deps": ("aptui deps textures/hero.png", "aptui deps --in textures/hero.png"),
    "query": ("aptui query 'rdeps(textures/hero.png)'", "aptui query 'somepath(a.mat, b.png)'"),
    "affected": ("aptui affected --since main", "aptui affected --since HEAD~1 --json"),
    "assetlist": (
        "aptui assetlist levels/one.json --platform linux",
        "aptui assetlist 'levels/*' --platform linux --output one.list",
    ),
    "bundle": ("aptui bundle levels/one.json --output one.zip", "aptui bundle --list one.list --output one.zip"),
    "compare": ("aptui compare old.list new.list", "aptui compare old.list new.list --json"),
    "builders": ("aptui builders", "aptui builders --json"),
    "reprocess": ("aptui reprocess textures/hero.png", "aptui reprocess 'textures/*'"),
    "interest": ("aptui interest levels/one.json", "aptui interest 'textures/hero*' --json"),
    "restore": ("aptui restore textures/hero.png --run 2", "aptui restore '#12' --run 3 --json"),
    "rerun": ("aptui rerun textures/hero.png", "aptui rerun '#12'"),
    "move": ("aptui move textures/a.png textures/b.png", "aptui move textures/ art/ --update-references --confirm"),
    "delete": ("aptui delete textures/old.png", "aptui delete textures/old/ --confirm"),
    "identities": ("aptui identities", "aptui identities --repair"),
    "verify": ("aptui verify", "aptui verify --rebuild 5%"),
    "check": ("aptui check", "aptui check --only textures --json"),
    "lint": ("aptui lint", "aptui lint --fail --junit lint.xml --roots 'levels/*'"),
    "cache": ("aptui cache stats", "aptui cache ready HEAD"),
    "cache init": ("aptui cache init", "aptui cache init -C ../game"),
    "cache stats": ("aptui cache stats", "aptui cache stats --json"),
    "cache gc": ("aptui cache gc", "aptui cache gc --limit 5GiB"),
    "cache verify": ("aptui cache verify", "aptui cache verify --rebuild 5%"),
    "cache test": ("aptui cache test", "aptui cache test --json"),
    "cache prefetch": ("aptui cache prefetch", "aptui cache prefetch --platforms linux"),
    "cache ready": ("aptui cache ready HEAD", "aptui cache ready main --trust-code"),
    "cache serve": (
        "aptui cache serve --writable",
        "aptui cache serve --host 0.0.0.0 --certificate cert.pem --key key.pem --write-token-file tokens",
    ),
    "scan-missing": ("aptui scan-missing", "aptui scan-missing 'levels/*' --fail"),
    "gateway": ("aptui gateway", "aptui gateway --set serve.port=4000"),
    "token": ("aptui token add laptop", "aptui token add ci --scopes read --days 90"),
    "client": ("aptui client watch", "aptui client get textures/hero.webp --platform linux --output hero.webp"),
    "doctor": ("aptui doctor", "aptui doctor --json"),
    "init": ("aptui init --dry-run", "aptui init --copy '*.txt' '*.json'"),
    "demo": ("aptui demo --web", "aptui demo"),
    "web": ("aptui web", "aptui web --port 8080"),
    "config": ("aptui config", "aptui config --explain serve.port"),
    "worker": (
        "aptui worker --scheduler tls://head:8786 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key",
        "aptui worker --scheduler tcp://127.0.0.1:8786 --slots 4",
    ),
    "schema": ("aptui schema --path", "aptui schema > aptui.schema.json"),
    "help": ("aptui help batch", "aptui help cache gc"),
    "completion": ('eval "$(aptui completion bash)"', "aptui completion fish > ~/.config/fish/completions/aptui.fish"),
    "docs": ("aptui docs", "aptui docs --man > aptui.1"),
}  # fmt: skip
"""{verb, or verb and action: two examples}."""


def overview(verbs: dict[str, tuple[str, str]]) -> str:
    """Return the verbs in their groups, O3DE's programs and the exit codes, as `aptui --help` ends."""
    parts = []
    for group, names in GROUPS.items():
        lines = [f"  {name:<13} {verbs[name][1]}" for name in names if name in verbs]
        parts.append("\n".join([f"{group}: {GROUP_TEXTS[group]}", *lines]))
    parts.append(f"O3DE: projects of O3DE's\n{O3DE}")
    parts.append("\n".join(["exit codes:", *(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())]))
    parts.append("New here? 'aptui demo --web' shows what it does, 'aptui init' begins a project, 'aptui help VERB' says more.")
    return "\n\n".join(parts)


def ending(verb: str) -> str:
    """Return what stands below the options of a verb."""
    return "\n".join(["examples:", *(f"  {example}" for example in EXAMPLES.get(verb, ()))])
