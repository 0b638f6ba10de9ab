"""Records the lines that the test suite reaches in all processes and threads, also in killed ones; CPython 3.13 and later.

A file with a byte for each line of the package is mapped by every process of this interpreter. The first run of a line
sets its byte and ends the monitoring of that line (`sys.monitoring`), so that it costs hardly any time. The lines of
a killed process are recorded, too; coverage.py would lose them. Here coverage.py only prints the report.

    python tests/reached.py begin FOLDER     make the map, and make all later processes of this interpreter record into it
    python tests/reached.py report FOLDER    report it with coverage.py: the table, checked against the minimum
"""

from __future__ import annotations

import mmap
import sys
from types import CodeType

_TOOL = 1
"""sys.monitoring.COVERAGE_ID, which coverage.py does not use during these runs."""
_MAP, _FILES = "map", "files"


def follow(folder: str) -> None:
    """Note in the map file of `folder` which lines this process runs; do nothing if a sandbox hides the map file."""
    try:
        with open(f"{folder}/{_FILES}", encoding="utf-8") as table, open(f"{folder}/{_MAP}", "r+b") as file:
            rows = [line.rstrip("\n").split(" ", 1) for line in table]
            lines = mmap.mmap(file.fileno(), 0, trackfd=False)  # type: ignore[call-arg,unused-ignore]  # since 3.13
    except OSError:
        return
    begins = {path: int(begin) for begin, path in rows}
    monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]  # since 3.12
    if monitoring.get_tool(_TOOL) is not None:
        return  # the second call: some interpreters read their .pth files twice

    def enter(code: CodeType, _offset: int) -> object:
        if code.co_filename in begins:
            monitoring.set_local_events(_TOOL, code, monitoring.events.LINE)
        return monitoring.DISABLE

    def run(code: CodeType, line: int) -> object:
        lines[begins[code.co_filename] + line] = 1
        return monitoring.DISABLE

    monitoring.use_tool_id(_TOOL, "reached")
    monitoring.register_callback(_TOOL, monitoring.events.PY_START, enter)
    monitoring.register_callback(_TOOL, monitoring.events.LINE, run)
    monitoring.set_events(_TOOL, monitoring.events.PY_START)


def begin(folder: str) -> None:
    """Make a map file with a zero byte for each line of the package `aptui`.

    Later processes of this interpreter change the bytes of the lines that they run to 1.
    """
    import sysconfig
    from pathlib import Path

    import aptui

    at, rows = 0, []
    for path in sorted(Path(aptui.__file__).parent.rglob("*.py")):
        rows.append(f"{at} {path}\n")
        at += path.read_text(encoding="utf-8").count("\n") + 2
    Path(folder).mkdir(parents=True)
    Path(folder, _FILES).write_text("".join(rows), encoding="utf-8")
    Path(folder, _MAP).write_bytes(bytes(at))
    packages = Path(sysconfig.get_path("purelib"))
    (packages / "_reached.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    (packages / "_reached.pth").write_text(f"import _reached; _reached.follow({folder!r})\n", encoding="utf-8")


def report(folder: str) -> float:
    """Print the report of reached lines, and return their share in percent."""
    from pathlib import Path

    import coverage

    data = coverage.CoverageData(str(Path(folder, "coverage")))
    lines = Path(folder, _MAP).read_bytes()
    rows = [row.split(" ", 1) for row in Path(folder, _FILES).read_text(encoding="utf-8").splitlines()]
    ends = [int(begin) for begin, _path in rows[1:]] + [len(lines)]
    reached = {
        path: [at for at, is_set in enumerate(lines[int(begin) : end]) if is_set]
        for (begin, path), end in zip(rows, ends, strict=True)
    }
    data.add_lines(reached)
    data.write()
    found = coverage.Coverage(data_file=str(Path(folder, "coverage")), config_file=str(Path(__file__).with_name("coverage.toml")))
    found.load()
    return found.report(skip_covered=True)


if __name__ == "__main__":
    word, place = sys.argv[1:]
    if word == "begin":
        begin(place)
    else:
        share = report(place)
        import tomllib

        with open(__file__.replace("reached.py", "coverage.toml"), "rb") as settings:
            floor = tomllib.load(settings)["report"]["fail_under"]
        print(f"{share:.1f} % of all lines; {floor} % at least")
        sys.exit(share < floor)
