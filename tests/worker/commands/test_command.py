"""Builders that are a command line: quoting, execution, parsing of the output, products found by glob."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import zlib
from pathlib import Path

import pytest
from msgspec.structs import replace
from run_harness import Harness
from waiting import until

from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome
from aptui.core.project import Builder, BuilderKind, CommandRule
from aptui.worker import answers
from aptui.worker.commands import command as commands
from aptui.worker.commands.command import CommandError, execute, find_lines_without_colon, find_products, invocation, parse_depfile
from aptui.worker.output import BoundedText

HOSTILE = [
    "plain.txt",
    "two words.txt",
    "it's.txt",
    'say "x".txt',
    "$(touch pwned).txt",
    "`touch pwned`.txt",
    "$HOME.txt",
    "a;touch pwned;.txt",
    "a&&b|c>d.txt",
    "*.txt",
    "-rf",
    "back\\slash.txt",
    "ends\\",
    "new\nline.txt",
    "{stem}.txt",
    "~root",
    "#x.txt",
    "!x.txt",
    "caf\udce9.txt",
    'it\'s "$(touch pwned)" `x` \\',
]
TEMPLATES = {
    "direct": "printf %s {source}",
    "direct, in single quotes": "printf %s '{source}'",
    "direct, in double quotes": 'printf %s "{source}"',
    "shell": "true && printf %s {source}",
    "shell, in single quotes": "true && printf %s '{source}'",
    "shell, in double quotes": 'true && printf %s "{source}"',
    "shell, quoted before": 'true "it\'s" \'a"b\' \\" && printf %s {source}',
    "substitution": "printf %s $(true; printf %s {source} >out; cat out >&2)",
    "substitution in double quotes": 'printf %s "$(printf %s "{source}")"',
    "comment with an apostrophe": "true # don't\nprintf %s {source}",
    "here-document": "cat <<EOF | tr -d '\\n'\nx{source}x\nEOF\n",
    "case in a substitution": 'printf %s "$(case a in a) printf %s {source};; esac)"',
    "comment after a parenthesis": "(true)# it's …\nprintf %s {source}",
    "script with an argument": "sh -c 'printf %s \"$1\"' sh {source}",
    "script that reads the environment": "true && : {source}; sh -c 'printf %s \"$APTUI_SOURCE\"'",
    "exec of find": "find . -maxdepth 0 -exec printf %s {source} \\;",
    "function": 'f() { printf %s "$1"; }; f {source}',
    "variable": 'x={source}; printf %s "$x"',
    "value in a comment": "true # {source}\nprintf %s {source}",
    "parameter expansion with a hash": 'x=ab && true ${x#a} "it" && printf %s {source}',
}


def builder(command, *products, **rule):
    return Builder(b"b" * 16, "tool", BuilderKind.COMMAND, command=CommandRule(command, products, **rule))


def output_of(command):
    return execute(command, dict(os.environ)).output


# ----------------------------------------------------------------------------------------------------------------- template


@pytest.mark.real
@pytest.mark.parametrize("template", TEMPLATES)
def test_hostile_file_name_stays_one_word_of_the_command(tmp_path, monkeypatch, template):
    monkeypatch.chdir(tmp_path)

    printed = [bytes(output_of(invocation(TEMPLATES[template], {"source": name})).head) for name in HOSTILE]

    if template == "here-document":
        assert printed == [b"x" + os.fsencode(name).replace(b"\n", b"") + b"x" for name in HOSTILE]
    else:
        assert printed == [os.fsencode(name) for name in HOSTILE]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("template", ["cat {source}", 'cat "{source}" -n', "tool{params.x} a=b {source}"])
def test_command_without_shell_syntax_is_started_directly(template, monkeypatch):
    monkeypatch.setattr(commands, "find_program", lambda word: f"/bin/{word}")

    command = invocation(template, {"source": "a b; c", "params.x": "1"})

    assert command.program != "/bin/sh"
    assert "a b; c" in command.arguments
    assert command.arguments[0] in command.line


@pytest.mark.parametrize(
    "template",
    [
        "cat {source} | wc",
        "cat {source} > x",
        "X=1 cat {source}",
        "cat *.txt",
        "cat $HOME",
        "cat ${source}",
        "a\nb",
        "cd {source}x",
        "cat 'x",
    ],
)
def test_shell_syntax_is_run_by_the_shell(template):
    command = invocation(template, {"source": "a b"})

    assert command.program == "/bin/sh"
    assert command.arguments[:2] == ("/bin/sh", "-c")
    assert "a b" not in command.arguments[2]


@pytest.mark.real
@pytest.mark.parametrize("name", HOSTILE)
def test_command_line_in_the_log_can_be_pasted_into_a_shell(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    line = invocation("true && printf %s {source}", {"source": name}).line

    printed = execute(commands.Invocation("/bin/sh", ("/bin/sh", "-c", line), line), dict(os.environ))

    assert bytes(printed.output.head) == os.fsencode(name)
    assert not (tmp_path / "pwned").exists()
    assert invocation("true && cat {source}", {"source": "/a/b.up"}).line == "true && cat /a/b.up"


@pytest.mark.parametrize("template", ["cat {stem}", "x=1; tool --name {name}", "tool '{rel}'"])
def test_a_file_name_that_looks_like_an_option_is_refused(template):
    with pytest.raises(CommandError, match="'-rf', which a program would read as an option"):
        invocation(template, {"stem": "-rf", "name": "-rf", "rel": "-rf"})

    assert invocation(template.replace("{", "./{"), {"stem": "-rf", "name": "-rf", "rel": "-rf"})
    assert invocation("true > {stem}", {"stem": "-rf"})


def test_error_about_a_missing_parameter_names_the_parameter():
    with pytest.raises(CommandError, match=r"the command uses \{params.quality\}, but the builder has no parameter 'quality'"):
        invocation("cat {params.quality}", {})


def test_placeholders_inside_values_are_not_replaced():
    command = invocation("cat {source} {name}", {"source": "{name}", "name": "{source}"})

    assert command.arguments == ("cat", "{name}", "{source}")


# ---------------------------------------------------------------------------------------------------------------- execution


@pytest.mark.real
@pytest.mark.parametrize(
    ("command", "error", "kind"),
    [
        ("true", "", ""),
        ("exit 0", "", ""),
        ("false", "command exited with status 1", "exit 1"),
        ("exit 77", "command exited with status 77", "exit 77"),
        ("kill -SEGV $$", "command killed by SIGSEGV", "crash"),
        ("kill -KILL $$", "command killed by SIGKILL: likely out of memory", "memory"),
        ("kill -TERM $$", "command killed by SIGTERM", "crash"),
    ],
)
def test_error_of_a_command_contains_its_exit_status_or_signal(command, error, kind):
    ended = execute(invocation(command, {}), dict(os.environ))

    assert (ended.error, ended.kind) == (error, kind)


@pytest.mark.real
def test_command_has_empty_stdin_and_default_signals():
    ended = execute(invocation("cat; yes | head -n 1", {}), dict(os.environ))

    assert (bytes(ended.output.head), ended.error) == (b"y\n", "")


@pytest.mark.real
def test_long_command_output_is_limited_and_mentions_the_omitted_part():
    ended = execute(invocation("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end >&2", {}), dict(os.environ))

    lines = ended.output.lines()
    assert len(ended.output.head) + len(ended.output.tail) == 2 * 128 << 10
    assert lines[1] == f"[… {3_000_000 + 9 - (256 << 10)} bytes of output left out …]"
    assert lines[-1] == "the end"


@pytest.mark.real
def test_process_left_with_open_output_does_not_delay_the_end_of_the_run():
    ended = execute(invocation("sleep 3600 & echo $!", {}), dict(os.environ))

    os.kill(int(ended.output.head), signal.SIGKILL)
    assert ended.error == ""


@pytest.mark.real
def test_error_about_a_program_that_cannot_be_started_names_the_program():
    with pytest.raises(CommandError, match="'/no/such' cannot be started: No such file or directory"):
        execute(commands.Invocation("/no/such", ("x",), "x"), {})


@pytest.mark.real
def test_program_that_the_shell_did_not_find_is_named_in_the_error(harness):
    result = harness.run(builder("no-such-tool-here {source}"))

    assert result.outcome == Outcome.FAILED
    printed = "command exited with status 127 (program 'no-such-tool-here' was not found in the PATH that aptui was started with)"
    assert result.error.startswith(printed)
    assert "no-such-tool-here: not found" in "".join(record.text for record in result.log)


# ----------------------------------------------------------------------------------------------------------------- products


@pytest.fixture
def products(tmp_path):
    for name in ("a.png", "b.PNG", "sub/c.png", "sub/deep/d.txt", ".hidden.png", "[x].png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return str(tmp_path)


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        (("*.png",), [".hidden.png", "[x].png", "a.png"]),
        (("**/*.png",), [".hidden.png", "[x].png", "a.png", "sub/c.png"]),
        (("sub/**",), ["sub/c.png", "sub/deep/d.txt"]),
        (("{stem}.png",), ["[x].png"]),
        (("a.*", "a.png", "b.*"), ["a.png", "b.PNG"]),
        ((), [".hidden.png", "[x].png", "a.png", "b.PNG", "sub/c.png", "sub/deep/d.txt"]),
    ],
)
def test_products_are_found_by_glob_and_sorted(products, globs, found):
    assert find_products(globs, products, {"stem": "[x]"}) == found


def test_error_about_products_names_the_globs_without_a_match(products, tmp_path):
    with pytest.raises(CommandError, match=r"the command made no product that matches '\*.dds', 'x\*'"):
        find_products(("*.dds", "x*"), products, {})
    with pytest.raises(CommandError, match="no product"):
        find_products(("sub",), products, {})
    os.mkdir(tmp_path / "empty")
    with pytest.raises(CommandError, match="the command made no product"):
        find_products((), str(tmp_path / "empty"), {})


@pytest.mark.parametrize("globs", [(), ("**",), ("deep/**/*.txt",)])
def test_product_glob_that_reaches_a_link_to_a_folder_is_refused(tmp_path, globs):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").touch()
    (tmp_path / "deep" / "disk").symlink_to("/")

    with pytest.raises(CommandError, match="a link to a folder: 'deep/disk'"):
        find_products(globs, str(tmp_path), {})
    assert find_products(("deep/*.txt",), str(tmp_path), {}) == ["deep/a.txt"]


@pytest.mark.real
def test_sub_id_of_a_product_depends_only_on_its_name(harness):
    three = builder("touch {products_dir}/a.x {products_dir}/B.x {products_dir}/c.x")
    two = builder("mkdir {products_dir}/d && touch {products_dir}/d/b.x {products_dir}/z.x")

    first, second = harness.run(three), harness.run(two)

    ids = {product.name: product.sub_id for product in first.products}
    others = {product.name: product.sub_id for product in second.products}
    assert ids == {"a.x": zlib.crc32(b"a.x"), "b.x": ids["b.x"], "c.x": ids["c.x"]}
    assert len(set(ids.values())) == 3
    assert others["b.x"] == ids["b.x"]


@pytest.mark.real
def test_single_product_has_sub_id_0_and_the_asset_type_of_its_builder(harness):
    result = harness.run(replace(builder("cp {source} {products_dir}/{stem}.{ext}.{platform}"), asset_type=bytes(range(16))))

    (product,) = result.products
    assert (product.name, product.sub_id, product.asset_type, product.flags) == ("a.txt.linux", 0, bytes(range(16)), 1)
    assert result.command_line.startswith("cp ")
    assert result.peak_rss_bytes > 0


@pytest.mark.real
def test_products_of_the_common_platform_are_intermediates(harness):
    result = harness.run(builder("cp {source} {products_dir}"), harness.order(platform="common"))

    assert [product.flags for product in result.products] == [2]


@pytest.mark.real
@pytest.mark.parametrize("name", ["two words.txt", "it's.txt", "$(x).txt", "[a].txt", "-v.txt", "caf\udce9.txt"])
def test_command_runs_with_any_source_name(harness, name):
    order = replace(harness.order(name), rel=name.replace("\udce9", "\U0010ffe9"))

    result = harness.run(builder('cp {source} "{products_dir}/{stem}.out"', "{stem}.out"), order)

    assert (result.outcome, result.error) == (Outcome.SUCCEEDED, "")
    assert Path(os.fsdecode(result.products[0].staged.replace("\U0010ffe9", "\udce9"))).read_bytes() == b"hello"


@pytest.mark.real
def test_parameters_of_builder_platform_and_job_reach_the_command(harness):
    tool = replace(
        builder("echo {params.a} {params.b} {params.c} {params.d} > {products_dir}/x"),
        params='{"a":true,"b":1.5,"c":"x y"}',
        platform_params=(("linux", '{"b":2}'), ("mars", '{"b":3}')),
    )

    result = harness.run(tool, harness.order(params='{"d":"$(job)"}'))

    assert Path(result.products[0].staged).read_text() == "true 2 x y $(job)\n"


# ------------------------------------------------------------------------------------------------------------- dependencies


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.o: a.c b.h\n", ["a.c", "b.h"]),
        ("a.o: a.c \\\n  b.h \\\r\n c.h\n", ["a.c", "b.h", "c.h"]),
        ("a.o b.o: a.c\n", ["a.c"]),
        ("a.o : a.c\n", ["a.c"]),
        (r"a.o: two\ words.h hash\#.h colon\:.h cash$$.h", ["two words.h", "hash#.h", "colon:.h", "cash$.h"]),
        (r"odd\ target.o: a.c", ["a.c"]),
        (r"a.o: back\slash.h C:\x\y.h", [r"back\slash.h", r"C:\x\y.h"]),
        ("a.o: a.c\n\nb.h:\n\nc.h:\n", ["a.c"]),
        ("a.o: a.c # b.h\n# c.h: d.h\n", ["a.c"]),
        ("a.o: a.c\nb.o: b.c\n", ["a.c", "b.c"]),
        ("a.o:\\\n a.c", ["a.c"]),
        ("", []),
        ("no rule at all", []),
        ("out.o:a.h\n", ["a.h"]),
        ("out.o:a.h b.h\n", ["a.h", "b.h"]),
        ("a.o b.o:a.h \\\n b.h\n", ["a.h", "b.h"]),
        ("out.o :a.h\n", ["a.h"]),
        ("out.o:: a.h\n", ["a.h"]),
        (r"C:/out.o:a.h", ["a.h"]),
        (r"C:\out.o: a.h", ["a.h"]),
        (r"out.o:C:/a.h", ["C:/a.h"]),
        (r"odd\:target.o:a.h", ["a.h"]),
        ("out.o: a.h \\", ["a.h"]),
        ("out.o: a.h\\", ["a.h"]),
        ("out.o: a.h \\\r\n", ["a.h"]),
        ("out.o: a.h \\ \n", ["a.h"]),
        ("a.o: caf\xa0e.h b\u2028c.h\x0cd.h\n", ["caf\xa0e.h", "b\u2028c.h", "d.h"]),
    ],
)
def test_prerequisites_of_makefile_rules_are_parsed(text, found):
    assert list(parse_depfile(text)) == found


def test_program_that_was_moved_to_another_folder_of_the_path_is_found(tmp_path, monkeypatch):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    (old / "moving-tool").touch(0o755)
    monkeypatch.setenv("PATH", f"{old}:{new}")
    before = invocation("moving-tool {source}", {"source": "a"}).program

    (old / "moving-tool").rename(new / "moving-tool")

    assert (before, invocation("moving-tool {source}", {"source": "a"}).program) == (
        str(old / "moving-tool"),
        str(new / "moving-tool"),
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [("a.h b.h\n", ["a.h b.h"]), ("a.o: a.h\n  b.h\n", ["b.h"]), ("a.o: a.h \\\n b.h\n# c\n\n", []), ("C:/a.h", ["C:/a.h"])],
)
def test_lines_without_a_colon_in_a_dependency_file_are_found(text, lines):
    assert find_lines_without_colon(text) == lines


@pytest.mark.real
def test_line_without_a_colon_in_a_dependency_file_causes_a_warning(harness):
    result = harness.run(builder("cp {source} {products_dir} && echo a.h b.h > {depfile}"))

    assert (result.outcome, result.warnings) == (Outcome.SUCCEEDED, 1)
    assert result.log[0].text.endswith("has a line without a colon, which is ignored: 'a.h b.h'")


@pytest.mark.real
def test_files_in_a_dependency_file_are_hashed(harness):
    header = harness.source("some where/b.h")
    tool = builder("cp {source} {products_dir} && printf 'x: %s here\\\\ too.h' \"$(echo {source}/../b.h)\" > {depfile}")

    result = harness.run(tool, harness.order())
    escaped = str(header).replace(" ", "\\\\ ")
    other = harness.run(builder(f"cp {{source}} {{products_dir}} && printf 'x: {escaped}' > {{depfile}}"))

    # `b.h` and `here too.h` are missing. The run reports them, because the job must run again when they exist.
    assert [path.rpartition("/")[2] for path, _ in result.discovered] == ["b.h", "here too.h"]
    assert [path for path, digest in other.discovered if digest] == [str(header)]


@pytest.mark.real
def test_missing_dependency_file_causes_a_warning(harness):
    result = harness.run(builder("cp {source} {products_dir}", depfile="{stem}.d"))

    assert (result.outcome, result.warnings) == (Outcome.SUCCEEDED, 1)
    assert "wrote no dependency file 'a.d'" in result.log[0].text


@pytest.mark.real
@pytest.mark.parametrize("key", ["depfile", "links_file"])
@pytest.mark.parametrize(
    ("writes", "why"), [("printf '\\0'", "contains a NUL"), ("head -c 200 /dev/zero | tr '\\0' x", "more than 100 characters")]
)
def test_answer_file_of_a_command_must_be_text_of_limited_size(harness, monkeypatch, key, writes, why):
    monkeypatch.setattr(answers, "MOST_CHARS", 100)

    result = harness.run(builder(f"cp {{source}} {{products_dir}}; {writes} > {{products_dir}}/../temp/told", **{key: "told"}))

    assert result.outcome == Outcome.FAILED
    assert "'told' that the command wrote" in result.error
    assert why in result.error


@pytest.mark.real
@pytest.mark.parametrize("regex", [r"^note: including (?P<path>.*)", r"^note: including (.*)", r"(?<=^note: including ).*"])
def test_dependency_lines_of_the_output_are_removed_from_the_log(harness, regex):
    header = harness.source("b.h")
    tool = builder(f"cp {{source}} {{products_dir}}; echo compiling; echo 'note: including {header} '", dependency_regex=regex)

    result = harness.run(tool)

    assert [path for path, _ in result.discovered] == [str(header)]
    assert [record.text for record in result.log] == ["compiling"]


@pytest.mark.real
def test_a_run_fails_if_its_output_is_too_long_to_find_all_dependencies(harness, monkeypatch):
    monkeypatch.setattr(commands, "DEPENDENCY_OUTPUT_BYTES", 1000)

    result = harness.run(builder("cp {source} {products_dir}; seq 10000", dependency_regex="^x"))

    assert result.outcome == Outcome.FAILED
    assert "too long to find all dependencies" in result.error


# ------------------------------------------------------------------------------------------------------------------- output


@pytest.mark.real
def test_errors_and_warnings_in_output_are_logged_with_file_and_line(harness):
    tool = builder(
        "cat {source}; exit 2",
        error_regex=r"(?P<file>\S+):(?P<line>\d+): fatal (?P<message>.*)",
        warning_regex=r"^odd",
    )
    harness.source("a.txt", b"fine\nodd thing\na.c:12: fatal no such thing\nwarning: as usual\n")

    result = harness.run(tool)

    assert [(record.level, record.text, record.context) for record in result.log] == [
        (LogLevel.INFO, "fine", ()),
        (LogLevel.WARNING, "odd thing", ()),
        (LogLevel.ERROR, "no such thing", (("file", "a.c"), ("line", "12"))),
        (LogLevel.WARNING, "as usual", ()),
        (LogLevel.ERROR, "command exited with status 2: no such thing", ()),
    ]
    assert result.error == "command exited with status 2: no such thing"
    assert (result.warnings, result.errors) == (2, 2)


@pytest.mark.real
def test_logged_lines_have_the_time_at_which_they_arrived(harness):
    result = harness.run(builder("cp {source} {products_dir}; echo one; sleep 0.3; echo two"))

    one, two = (record.time_ms for record in result.log)
    assert {type(record.text) for record in result.log} == {str}, "the worker's protocol accepts only plain strings"
    assert two - one >= 40


def test_truncated_output_keeps_the_time_of_each_line():
    text = BoundedText(8)
    for time_ms, data in ((1000, b"a\nb"), (1002, b"c\n"), (2000, b"d\n"), (3000, b"x" * 40 + b"\n"), (4000, b"end\n")):
        text.add(data, time_ms)

    lines = text.lines()
    assert lines[:3] == ["a", "bc", "d"]
    assert [getattr(line, "time_ms", 0) for line in lines] == [1000, 1000, 2000, 3000, 0, 3000, 4000]


@pytest.mark.real
def test_a_run_fails_and_names_the_regular_expression_that_is_wrong(harness):
    result = harness.run(builder("cp {source} {products_dir}; echo x", error_regex="(["))

    assert result.outcome == Outcome.FAILED
    assert "the regular expression '([' is wrong" in result.error


@pytest.mark.real
def test_undecodable_bytes_are_escaped(harness):
    result = harness.run(builder(r"cp {source} {products_dir}; printf 'caf\351\n'"))

    assert [record.text for record in result.log] == [r"caf\xe9"]


@pytest.mark.real
def test_the_log_of_a_command_with_many_lines_is_limited(harness):
    result = harness.run(builder("cp {source} {products_dir}; seq 10000"))

    texts = [record.text for record in result.log]
    assert (len(texts), texts[0], texts[-1]) == (2001, "1", "10000")
    assert texts[1000] == "[… 8000 lines left out …]"


@pytest.mark.real
def test_child_process_that_existed_before_the_run_does_not_fail_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(["sleep", "3600"]) as left:
        result = Harness(tmp_path).run(builder("cp {source} {products_dir}", "*.txt"))

        assert (result.outcome, result.error) == (Outcome.SUCCEEDED, "")
    assert left.returncode is not None


@pytest.mark.real
def test_interrupted_command_is_killed_with_its_group_and_keeps_its_output(harness, monkeypatch, capfdbinary):
    read, received = commands._read, []

    def interrupted(reader, output):
        read(reader, output)
        if output.head.endswith(b"\n"):
            received.append(bytes(output.head))
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_read", interrupted)

    with pytest.raises(KeyboardInterrupt):
        output_of(invocation("sleep 3600 & echo $$ $!; wait", {}))

    assert capfdbinary.readouterr().out.startswith(received[0])
    assert [pid for pid in received[0].split() if not has_ended(int(pid))] == []


def has_ended(pid):
    """Wait until a process has ended; return whether it ended within 5 s."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 5.0)[0])
    finally:
        os.close(descriptor)


@pytest.mark.real
def test_command_over_its_time_limit_is_killed_with_its_group() -> None:
    ended = execute(invocation("echo begun; sleep 300 & echo $!; sleep 300", {}), dict(os.environ), limit_s=0.5)

    begun, pid = ended.output.lines()
    assert (begun, ended.error, ended.kind) == ("begun", "command took longer than 0.5 s", "timeout")
    state = Path(f"/proc/{pid}/stat")
    until(lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX", "the end of the child")
