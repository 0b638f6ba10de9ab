"""Templates of commands: places where placeholders are allowed, and places where they are refused."""

from __future__ import annotations

import pytest

from aptui.core.command_template import Around, TemplateError, examine_template

REFUSED = {
    "sh -c 'tool {source}'": "sh -c",
    'sh -c "tool {source}"': "sh -c",
    "/bin/bash -ec 'x {stem}'": "bash -ec",
    "env X=1 nice -n 5 dash -c {source}": "dash -c",
    "find . -exec sh -c 'x {source}' \\;": "sh -c",
    "ls | xargs -0 sh -c 'x {source}'": "sh -c",
    'sh -c "x $(cat {source})"': "sh -c",
    "true; eval x {source}": "eval",
    "if true; then eval {source}; fi": "eval",
    'trap "rm {source}" EXIT': "trap",
    "export {stem}=1": "export",
    "[[ {stem} -eq 1 ]]": "[[",
    "test -v {stem}": "test -v",
    "python3 -c 'open(\"{source}\")'": "python3 -c",
    "perl -ne 'print \"{stem}\"' x": "perl -ne",
    "sed 's|NAME|{name}|' {source}": "the script of sed",
    "sed -n -e p -e 's/x/{name}/' x": "sed -e",
    "awk -F : '{{ print \"{name}\" }' x": "the script of awk",
    "ssh host cat {source}": "ssh",
    'echo "`basename {source}`"': "backticks",
    "echo $(( 1 + {params.n} ))": "$(( ))",
    "(( x = {params.n} ))": "(( ))",
    "echo ${x:-{source}}": "${ }",
    "cat <<'EOF'\n{source}\nEOF\n": "a here-document whose delimiter is quoted",
    "cat <<{stem}\nx\n": "the delimiter of a here-document",
    'echo "out\\{source}"': "a backslash",
    "echo \\{source}": "a backslash",
    'sh +e -c "tool {source}"': "sh -c",
    'bash +o posix -c "tool {source}"': "bash -c",
    "bash <<EOF\ntool {source}\nEOF\n": "a here-document, because 'bash' would run it as code",
    "dash -eu <<-EOF\n\ttool {source}\n\tEOF\n": "because 'dash'",
    "sh -s x <<EOF && true\ntool $(cat {source})\nEOF\n": "because 'sh'",
    "zsh -o pipefail <<'EOF'\ntool {source}\nEOF\n": "because 'zsh'",
    "<<EOF bash\ntool {source}\nEOF\n": "because 'bash'",
    'python3 - <<EOF\nprint("{source}")\nEOF\n': "because 'python3'",
    "env -u X python3.11 -u /dev/stdin a <<EOF\nprint({stem})\nEOF\n": "because 'python3.11'",
    "perl <<EOF\nprint {stem}\nEOF\n": "because 'perl'",
    "node - <<EOF\n{stem}\nEOF\n": "because 'node'",
    "sudo -u someone bash <<EOF\n{stem}\nEOF\n": "because 'bash'",
    ". /dev/stdin <<EOF\n{stem}\nEOF\n": "because '.'",
    "sed -f - x <<EOF\ns/x/{stem}/\nEOF\n": "because 'sed'",
    'gnuplot <<EOF\nplot "{source}"\nEOF\n': "because 'gnuplot'",
    'bash <<< "tool {source}"': "a here-string, because 'bash' would run it as code",
    "cat <<EOF | bash\ntool {source}\nEOF\n": "because 'bash'",
    "( bash ) <<EOF\n{stem}\nEOF\n": "because 'bash'",
    "while true; do bash; done <<EOF\n{stem}\nEOF\n": "because 'bash'",
    "x=$(bash <<EOF\n{stem}\nEOF\n)": "because 'bash'",
}
ALLOWED = (
    "sh -c 'tool \"$1\"' sh {source}",
    "echo {source} # it's `not` code: {stem}",
    "sed -n p {source}",
    "sed -f script.sed {source}",
    "awk -v name={name} '{ print name }' {source}",
    "python3 tool.py -c {source}",
    'x={source}; echo "${x}"',
    "case {ext} in a) echo {source};; esac",
    "cat <<EOF\n{source} `date` $(echo {stem})\nEOF\ntrue {source}",
    "echo watch {source}; sh script.sh -c {source}",
    "cat {source} > {products_dir}/{stem}.out 2>&1",
    "cat 'unbalanced {source}",
    "test -n {source} && [ 1 -eq 1 ]",
    "sh -s {source} <<'EOF'\ntool \"$1\"\nEOF\n",
    "bash tool.sh <<EOF\n{source}\nEOF\n",
    "bash -eu tool.sh <<EOF\n{source}\nEOF\n",
    "python3 -c 'import sys; sys.stdin.read()' <<EOF\n{source}\nEOF\n",
    "python3 -m json.tool <<EOF\n{source}\nEOF\n",
    "cat <<EOF | tool || bash\n{source}\nEOF\n",
    "bash <<'A'; cat <<EOF\ntrue\nA\n{source}\nEOF\n",
    'tool <<< "{source}"; bash other.sh',
)


@pytest.mark.parametrize("text", REFUSED)
def test_unsafe_placeholder_is_refused_with_an_error_that_names_its_place(text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        examine_template(text)

    assert REFUSED[text] in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("text", ALLOWED)
def test_template_with_only_safe_placeholders_is_accepted(text: str) -> None:
    assert examine_template(text).slots


def test_placeholder_becomes_a_variable_that_suits_the_quotes_around_it() -> None:
    found = examine_template('cat {source} "x {source}" \'y {stem}\' $(a "{rel}") # {name}\ncat <<EOF\n{ext}\nEOF\n')

    assert [slot.around for slot in found.slots] == [
        Around.NOTHING,
        Around.DOUBLE,
        Around.SINGLE,
        Around.DOUBLE,
        Around.COMMENT,
        Around.DOCUMENT,
    ]
    assert found.line() == (
        'cat "${APTUI_SOURCE}" "x ${APTUI_SOURCE}" \'y \'"${APTUI_STEM}"\'\' $(a "${APTUI_REL}") # {name}\n'
        "cat <<EOF\n${APTUI_EXT}\nEOF\n"
    )


def test_placeholders_with_similar_names_get_different_variables() -> None:
    assert examine_template("x {params.a.b} {params.a-b}").variables == {
        "params.a.b": "APTUI_PARAMS_A_B",
        "params.a-b": "APTUI_PARAMS_A_B_1",
    }
    found = examine_template("x {params.a_b_2} {params.a.b} {params.a-b} {params.a_b}").variables
    assert len(set(found.values())) == 4


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("{params.tool} {params.size} {source}", ("tool",)),
        ("cat {source} | X=1 env Y=2 {params.tool} -x {params.size}", ("tool",)),
        ("true && ( {params.a}/bin/x {params.b} )", ("a",)),
        ("x=$({params.a} {params.b})", ("a",)),
        ("tool {params.size}", ()),
    ],
)
def test_template_lists_the_parameters_that_name_the_program_of_a_command(text: str, params: tuple[str, ...]) -> None:
    assert examine_template(text).program_params == params
