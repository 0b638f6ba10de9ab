"""The documents and the code describe the program as it is."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest
from textual.binding import Binding
from tools import FEATURES, MACHINE, MISSING, compare_skips, is_of_deleted_feature, needs_feature

import aptui
from aptui.cli import main
from aptui.cli.main import all_verbs
from aptui.core.machine import TABLE, Trigger
from aptui.core.model import JobState
from aptui.tui.screens.jobs.job_actions import ROW_ACTIONS
from aptui.tui.screens.jobs.jobs_pane import JobsPane

pytestmark = pytest.mark.real

ROOT = Path(aptui.__file__).parent
REPOSITORY = Path(__file__).parents[1]


def test_state_table_in_the_architecture_page_equals_the_code() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    text = text[text.index("| state · trigger |") :]
    text = text[: text.index("\n\n")]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("|---")]
    triggers = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]

    grid = {}
    for line in lines[1:]:
        state, *cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        grid[state] = {trigger: cell for trigger, cell in zip(triggers, cells, strict=True) if cell}

    wanted = {
        (state.value if state else "absent"): {
            trigger.value: (cell[0].value if cell[0] else "gone") for trigger, cell in row.items()
        }
        for state, row in TABLE.items()
    }
    assert set(triggers) == {trigger.value for trigger in Trigger}
    assert grid == wanted
    assert set(grid) == {"absent", *(state.value for state in JobState)}


@needs_feature("gateway")
def test_table_of_places_in_the_architecture_page_names_existing_code() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    text = text[text.index("| question | file | name |") :]
    rows = re.findall(r"^\| .+ \| `(\S+\.py)` \| `(\w+)` \|$", text[: text.index("\n\n")], re.MULTILINE)

    assert len(rows) == 10
    missing = [
        f"{file}: {name}"
        for file, name in rows
        if not re.search(rf"^(?:class |def )?{name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing
    assert any(key.key == "r" and key.action == "row('reprocess')" for key in JobsPane.BINDINGS if isinstance(key, Binding))
    assert "reprocess" in {action.id for action in ROW_ACTIONS}


@pytest.mark.parametrize("verb", all_verbs())
def test_every_verb_is_documented_and_prints_its_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "README.md", *ROOT.glob("*.md")))

    assert main.main([verb, "--help"]) == 0
    assert f"aptui {verb}" in capsys.readouterr().out
    assert re.search(rf"`(?:aptui )?{verb}\b", pages), f"no page mentions 'aptui {verb}'"


def test_readme_lists_every_exit_code() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")

    assert all(re.search(rf"(: |· |\n){code} ", text) for code in (0, 1, 2, 3, 4, 130))


def test_only_one_line_of_code_assigns_the_state_of_a_job() -> None:
    """Every assignment to an attribute `state` counts, except `self.state`: an object that assigns its own state is not a job."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in _list_modules()}
    places = [
        f"{name}:{node.lineno}"
        for name, text in texts.items()
        if ".state" in text or "setattr" in text
        for node in ast.walk(ast.parse(text))
        if _assigns_a_state(node)
    ]

    assert len(places) == 1, places
    assert places[0].startswith("core/machine.py:")


def _assigns_a_state(node: ast.AST) -> TypeGuard[ast.expr]:
    if isinstance(node, ast.Call):
        names = [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in {
            "setattr",
            "__setattr__",
            "force_setattr",
        } and names == ["state"]
    if not (isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.ctx, ast.Store)):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == "self")


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        ("job.state, effect = cell", True), ("row.job.state = cell[0]", True), ("each.state += 1", True),
        ("for found.state in states: pass", True), ("setattr(one, 'state', x)", True),
        ("self.state = x", False), ("state = job.state", False), ("job.state == x", False),
    ],
)  # fmt: skip
def test_state_check_finds_assignments_to_a_job_state(line: str, is_it: bool) -> None:
    assert any(map(_assigns_a_state, ast.walk(ast.parse(line)))) is is_it


_IRREGULAR = re.compile(
    "begun|built|chosen|done|drawn|fed|felt|forgotten|found|given|gone|grown|heard|held|hidden|kept|known|laid|led|left|lost|made|"
    "meant|met|paid|said|seen|sent|shown|sold|sorted|taken|thought|told|understood|written"
)
WORDS_IN_ED = re.compile("bleed|embed|exceed|feed|need|proceed|seed|shed|speed|succeed|weed")
PUBLIC_PARTICIPLES = frozenset({"located", "placed_name", "trusted_params", "affected", "affected_arguments"})
"""Allowed names that begin with a participle: public names of `aptui.sdk`, and functions of the verb `aptui affected`."""


def test_no_function_is_named_with_a_participle() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path, tree in _read_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_participle(node) and node.name not in PUBLIC_PARTICIPLES
    ]

    assert found == [], "begin the name of a function with a verb (`read_stored`, not `kept`)"


def _is_participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the name of a function begins with a participle; properties are excluded, because they describe a fact."""
    if any("property" in ast.unparse(each) or "setter" in ast.unparse(each) for each in function.decorator_list):
        return False
    word = function.name.strip("_").split("_")[0]
    return _IRREGULAR.fullmatch(word) is not None or (word.endswith("ed") and not WORDS_IN_ED.fullmatch(word))


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        ("def kept(): ...", True),
        ("async def _parsed(): ...", True),
        ("def feed(): ...", False),
        ("def read_stored(): ...", False),
    ],
)
def test_check_finds_a_function_named_with_a_participle(line: str, is_it: bool) -> None:
    (node,) = ast.parse(line).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    assert _is_participle(node) is is_it


BANNED_WORDS = {
    "asker askers": "client, requester",
    "believe believed": "trust",
    "chore chores errand errands journey journeys": "task, navigation",
    "court judge": "decide, check",
    "crew": "workers",
    "deaths": "failures",
    "deed deeds": "action, command",
    "departed": "removed",
    "desk desks": "handler",
    "dialect dialects": "format",
    "door doors": "listener, connection",
    "ghost": "suggestion",
    "glance look looked looks": "check, re-stat, lookup; a function may `look_up`",
    "hear heard hearing hears": "notice, subscription",
    "keeper kept": "guard, stored, remaining",
    "knot knots ring rings": "cycle, component",
    "nobody somebody": "none, other",
    "owe owed owes": "pending, due",
    "papers": "details",
    "patience": "timeout",
    "rests": "is_at_rest",
    "room rooms": "context, free_width, capacity",
    "said saying": "message, output, text",
    "shadow shadows stray": "duplicate, orphan",
    "stranger strangers": "undeclared, outside",
    "tell teller tellers telling tells told": "report, notify, print",
    "twin twins": "duplicates, same content",
    "wish wished wishes": "request",
    "witness": "stale-result check",
}
"""{words that are banned from our identifiers: the usual words for them}."""
WORDS_WITH_A_REASON = {
    "look_up": "English for asking a cache or an index",
    "_look_up": "the same",
    "_is_probed": "the same",
    "look_up_commit": "the same",
    "_ring_bell": "the terminal's bell",
}
"""{identifier: why it may have a banned word}: names on a wire, and English verbs."""


_STRING_OR_COMMENT = re.compile(
    r"""\"{3}(?s:.*?)\"{3}|'{3}(?s:.*?)'{3}|"(?:\\(?s:.)|[^"\\\n])*"|'(?:\\(?s:.)|[^'\\\n])*'|#[^\n]*"""
)
"""Matches a string or comment in Python code."""


def test_identifiers_contain_no_banned_word() -> None:
    found = {
        f"{path}:{line} {name}"
        for path in [*_list_modules(), *Path(__file__).parent.rglob("*.py")]
        for name, line in _list_banned_identifiers(path, path.read_text(encoding="utf-8"))
    }

    assert sorted(found) == [], "use the replacement in `BANNED_WORDS`"


@needs_feature(*FEATURES)
def test_every_exception_to_the_banned_words_is_still_needed() -> None:
    names = {name for path, tree in _read_trees() for name, _line in _list_identifiers(path, tree)}

    assert sorted(WORDS_WITH_A_REASON.keys() - names) == []


def _list_modules() -> list[Path]:
    """Return the modules of the package, without the examples that an installed package has below `_data`."""
    return sorted(path for path in ROOT.rglob("*.py") if "_data" not in path.parts)


@cache
def _read_trees() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in _list_modules()]


def _list_banned_identifiers(path: Path, text: str) -> Iterator[tuple[str, int]]:
    """Yield the identifiers of `_list_identifiers` that have a banned word.

    A file is parsed only if its code, without strings and comments, has such a word: parsing all files would take 14 s.
    """
    words = re.findall(r"\w+", _STRING_OR_COMMENT.sub(" ", text))
    if any(map(_is_banned, {path.stem, *words})):
        yield from ((name, line) for name, line in _list_identifiers(path, ast.parse(text)) if _is_banned(name))


@cache
def _is_banned(name: str) -> bool:
    banned = {word for words in BANNED_WORDS for word in words.split()}
    return bool(banned & _split_words(name)) and not name.startswith("test_") and name not in WORDS_WITH_A_REASON


def _split_words(name: str) -> set[str]:
    """Return the words of a name in either case: {"read", "run", "log"} for `ReadRunLog` and `_read_run_log`."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def _list_identifiers(path: Path, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name of the module, and each name that it binds, with its line."""
    yield path.stem, 1
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        ("told = 1", True), ("self._kept = 1", True), ("def tell_all(): ...", True), ("class RunTeller: ...", True),
        ("def of(wishes): ...", True), ("lambda owed: 1", True), ("for said in x: ...", True), ("if (heard := x): ...", True),
        ("x = '#'; told = 1", True), ("x = '\\''; told = '\\''", True), ('x = """\'"""; told = """"."""', True),
        ("class Retold: ...", False), ("bedroom = 1", False), ("x = {'told': 1}", False), ("print(x.told)", False),
    ],
)  # fmt: skip
def test_check_finds_a_banned_word_in_an_identifier(line: str, is_it: bool) -> None:
    assert any(_list_banned_identifiers(Path("x.py"), line)) is is_it


def test_docstrings_describe_only_existing_parameters() -> None:
    """`Args:` names only parameters of the function; for a class, parameters of `__init__`; for a record, its fields."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {', '.join(unknown)}"
        for path, tree in _read_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (unknown := _list_unknown_args(node))
    ]

    assert found == []


def _list_unknown_args(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """Return the names below `Args:` that are not parameters; [] for a class that inherits all its parameters."""
    _before, _mark, section = (ast.get_docstring(node) or "").partition("Args:\n")
    section = re.split(r"\n(?:Returns|Raises|Yields):", section)[0]
    listed = [name for line in re.findall(r"^    (\w+(?:, \w+)*):", section, re.MULTILINE) for name in line.split(", ")]
    function: ast.stmt | None = node
    fields: set[str] = set()
    if isinstance(node, ast.ClassDef):
        function = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
        fields = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
    names = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} if _is_function(function) else fields
    return [name for name in listed if names and name not in names]


def _is_function(node: ast.stmt | None) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


@pytest.mark.parametrize(
    ("code", "unknown"),
    [
        ('def f(a, *, b):\n    """X.\n\n    Args:\n        a, b: numbers.\n        c: gone.\n    """', ["c"]),
        ('class C:\n    """X.\n\n    Args:\n        old: gone.\n    """\n    def __init__(self, new): ...', ["old"]),
        ('class R:\n    """X.\n\n    Args:\n        size: in bytes.\n    """\n    size: int', []),
    ],
)
def test_check_finds_a_documented_parameter_that_does_not_exist(code: str, unknown: list[str]) -> None:
    node = ast.parse(code).body[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    assert _list_unknown_args(node) == unknown


MIRRORED = frozenset({
    "Builder", "CreateJobsRequest", "CreateJobsResponse", "JobDependency", "JobDescriptor", "JobLog", "JobProduct", "Outcome",
    "PlatformInfo", "ProcessJobRequest", "ProcessJobResponse", "ProductDependency", "ProductFlag",
})  # fmt: skip
"""Public class names that occur twice: `sdk` and `azlmbr` mirror O3DE's names, and the core has classes of the same names."""


NOT_MODULES = frozenset(
    {
        "batch.alerts", "builders.textures.params", "engine.json", "jobs.sort", "keymap.yaml", "loop.set_exception_handler",
        "model.version", "run.sh", "shared_cache.store", "http.client", "messages.LogLevel", "project.json", "serve.enabled",
    }
)  # fmt: skip
"""Words with a dot that are not references to modules, but keys of the configuration, file names or attributes."""
_REFERENCE = re.compile(r"`((?:tests|aptui|config|themes)/[\w./-]+\.\w+|[a-z_]+(?:\.[A-Za-z_]+)+)`")


def test_modules_and_files_named_in_docstrings_exist() -> None:
    found = [
        f"{path.relative_to(ROOT)}: `{match[1]}`"
        for path, _tree in _read_trees()
        for match in _REFERENCE.finditer(path.read_text(encoding="utf-8"))
        if not _resolves(match[1])
    ]

    assert found == [], "the module or file was moved or renamed: update the reference"


def _resolves(reference: str) -> bool:
    """Return whether a reference names a file of the project, or a module and a name in it. Other words with dots pass."""
    if "/" in reference or reference in NOT_MODULES:
        return reference in NOT_MODULES or (REPOSITORY / reference).exists() or is_of_deleted_feature(reference)
    parts, modules = reference.split("."), _index_modules()
    if is_of_deleted_feature(f"aptui/{'/'.join(parts)}"):
        return True
    for length in range(len(parts), 0, -1):
        if places := modules.get(".".join(parts[:length])):
            return length == len(parts) or any(parts[length] in _list_names(module) for module in places)
    return parts[0] not in {each.name for each in ROOT.iterdir() if each.is_dir()}


@cache
def _index_modules() -> dict[str, list[Path]]:
    """Return {end of a dotted module name: modules}. The module `engine.cache` has two entries, `cache` and `engine.cache`."""
    index: dict[str, list[Path]] = {}
    for path, _tree in _read_trees():
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for start in range(len(parts)):
            index.setdefault(".".join(parts[start:]), []).append(path)
    return index


@cache
def _list_names(path: Path) -> frozenset[str]:
    """Return every word of a module that is a name, an attribute or a parameter."""
    tree = dict(_read_trees())[path]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    names |= {path.stem for path in path.parent.iterdir()} if path.stem == "__init__" else set()
    return frozenset(names | {name for name, _line in _list_identifiers(path, tree)})


def test_no_two_public_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in _read_trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert {name: lines for name, lines in places.items() if len(lines) > 1 and name not in MIRRORED} == {}


def test_sql_statements_have_no_numbered_parameters() -> None:
    """Python 3.12.0 to 3.12.3 treat `?1` as a name, and warn if the values are a sequence. Statements use `?` or `:name`."""
    numbered = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "store").rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\?\d", line)
    ]

    assert numbered == []


def test_no_code_uses_a_connection_to_a_database_as_its_only_context_manager() -> None:
    """`with sqlite3.connect(...)` leaves the connection open. Use `with closing(...) as database, database:`."""
    left_open = [
        f"{path.relative_to(ROOT.parent)}:{number}"
        for folder in (ROOT, ROOT.parent / "tests")
        for path in folder.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r"\s*with sqlite3\.connect\(", line)
    ]

    assert left_open == []


@pytest.mark.real
def test_modules_of_batch_runs_do_not_import_libraries_of_the_screen() -> None:
    code = (
        "import sys, aptui.cli.main, aptui.batch.run, aptui.engine.loop.engine, aptui.engine.pool.pool, "
        "aptui.store.db.writer, aptui.sdk\n"
        "print([name for name in ('textual', 'pygments', 'aiohttp', 'peewee', 'ruamel') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


def test_every_module_has_or_names_a_test_module() -> None:
    tests = Path(__file__).parent
    lost = []
    for file in _list_modules():
        place = file.relative_to(ROOT)
        if place.parts[0] == "_data":
            continue  # an installed package has its configuration examples here; in a checkout they are in `config/`
        if file.name == "__init__.py" or (tests / place.parent / f"test_{file.name}").is_file():
            continue
        essay = file.read_text(encoding="utf-8").split('"""', 2)[1]
        named_test = re.search(r"Tests: `(tests/[\w/]+\.py)`", essay)
        if named_test is None or not ((tests.parent / named_test[1]).is_file() or is_of_deleted_feature(named_test[1])):
            lost.append(str(place))

    assert lost == []


def test_every_skip_reason_names_a_program_or_a_limit_of_the_machine() -> None:
    """`.ci/run` runs all tests twice, with and without optional programs, and compares the skip reasons (`tests/tools.py`)."""
    tests = REPOSITORY / "tests"
    skips = re.compile(r"pytest\.skip\((?!MACHINE|MISSING)|skipif\([^\n]*reason=(?!MACHINE|MISSING)[^\n]*")
    files = [file for file in tests.rglob("*.py") if file.name not in ("test_meta.py", "tools.py")]

    assert [f"{file.relative_to(tests)}: {hit[0]}" for file in files for hit in skips.finditer(file.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("had", "had_not", "missing", "wrong"),
    [
        ({}, {"a": MISSING + "glslc"}, set(), []),
        ({"a": MISSING + "glslc"}, {"a": MISSING + "glslc"}, {"glslc"}, []),
        ({"a": MISSING + "glslc"}, {"a": MISSING + "glslc"}, set(), ["although the program is installed"]),
        ({"a": MISSING + "glslc"}, {}, {"glslc"}, ["run without them"]),
        ({}, {"a": "could not import 'x'"}, set(), ["neither a program nor the machine"]),
        ({"a": MACHINE + "no root"}, {"a": MACHINE + "no root"}, set(), []),
    ],
)
def test_wrongly_skipped_and_wrongly_run_tests_are_reported(
    had: dict[str, str], had_not: dict[str, str], missing: set[str], wrong: list[str]
) -> None:
    found = compare_skips(had, had_not, missing)

    assert [text in line for text, line in zip(wrong, found, strict=True)] == [True] * len(wrong)


def test_source_distribution_contains_exactly_the_tracked_files() -> None:
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        included = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(MACHINE + "no clone")
    tracked = {name.partition("/")[0] for name in listed.stdout.splitlines()}

    assert {f"/{name}" for name in tracked} == {*included, "/pyproject.toml"}


def test_every_dependency_has_a_version_limit_and_a_locked_version() -> None:
    with open(REPOSITORY / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    shipped = [*project["dependencies"], *(item for name in extras.keys() - {"test", "lint"} for item in extras[name])]
    wanted = {re.split(r"[^\w.-]", item)[0].lower().replace(".", "-") for item in shipped} - {"aptui"}
    lock = (REPOSITORY / "config" / "requirements-lock.txt").read_text(encoding="utf-8")
    packages = re.findall(r"^([\w.-]+)==.*((?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)*)$", lock, re.MULTILINE)

    assert [item for item in shipped if "~=" not in item and "<" not in item and not item.startswith("aptui[")] == []
    assert wanted - {name for name, _ in packages} == set()
    assert [name for name, hashes in packages if not hashes] == []
    assert "://" not in lock


def test_no_document_or_script_installs_aptui_from_a_package_index() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(MACHINE + "no clone")
    pages = [
        name for name in listed.stdout.splitlines() if name.endswith((".md", ".py", ".yaml", ".yml", ".service", "Dockerfile"))
    ]
    wrong = re.compile(r"(?:pipx?|uv pip|uv tool) install (?:-\S+ )*['\"]?aptui(?![\w/-])(?!(?:\[[\w,]+\])? @ )")

    assert [name for name in pages if name != "tests/test_meta.py" and wrong.search((REPOSITORY / name).read_text("utf-8"))] == []
