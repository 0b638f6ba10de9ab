"""`hostile-assets` and `names`: untrusted files and file names, against every builder and a real shell.

Canaries lie outside the project: a secret that must not be read, programs that must not run, a folder that must not change.
The kernel reports when canaries are opened (inotify), and the drill searches every file that the engine leaves for the secret.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import random
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from unittest import mock

from disk_project import Project
from msgspec.structs import replace

from aptui.core import settings
from aptui.core.command_template import Template
from aptui.core.project import Builder, Platform
from aptui.engine.pool.pool import Pool
from aptui.engine.pool.process import WorkerStart
from aptui.worker.commands.command import CommandError, invocation

from ..worlds.report import Report

_SECRET = "CANARY-that-nobody-may-read-7f3a"
_IN_OPEN, _IN_ACCESS, _IN_NONBLOCK = 0x20, 0x01, 0o4000

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: shared, path: shared}]
builders:
  - {name: model, uses: model}
  - {name: shaders, uses: shader, params: {compiler: COMPILER}}
  - {name: scripts, uses: lua}
  - {name: pictures, uses: image}
  - {name: xml, uses: xml}
  - {name: yaml, uses: yaml}
  - {name: json, uses: json}
  - {name: sounds, uses: audio}
  - {name: fonts, uses: font}
  - name: tool
    patterns: ["*.cmd"]
    command: "cat <<EOF > {products_dir}/out.txt\\n$(basename {source}) {rel}\\nEOF\\n\\
      cat {source} >> {products_dir}/out.txt # it's {name}\\nprintf '%s' \\"$(case a in a) echo {source};; esac)\\" >/dev/null"
    references: ['"needs": "([^"]+)"']
  - {name: adjusted, patterns: ["*.adj"], command: "{params.tool} {source} | cat > {products_dir}/{stem}.out", params: {tool: cat}}
"""


# ------------------------------------------------------------------------------------------------------------------- corpus


def corpus(outside: Path, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield (path below `assets`, bytes) of files whose content tries to reach the files in `outside`; `_links` makes links."""
    for number, name in enumerate(_names(outside)):
        yield from _models(f"n{number:02}", name)
        yield from _shaders(f"n{number:02}", name, rng)
        yield f"ref/n{number:02}.cmd", f'"needs": "{name}"'.encode()
    yield from _documents(outside)
    yield from _pictures()
    yield from _scripts(outside)
    yield from _settings(outside)
    for number, name in enumerate(_payloads(outside, rng, 24)):
        yield f"called/{number:02}{name}.cmd", b"plain"


def _names(outside: Path) -> list[str]:
    secret, up = f"{outside}/secret", "../../../outside/secret"
    return [
        secret,
        up,
        up.replace("../", "%2e%2e/"),
        up.replace("/", "%2F"),
        up.replace("/", "\\"),
        f"x/../{up}",
        f"./././{up}",
        f"file://{secret}",
        f"FILE:{secret}",
        "link_out",
        "folder_out/secret",
        "../pack/link_out",
        "/proc/self/environ",
        "../../../../../../../../../etc/passwd",
        "pipe",
        "zero",
    ]


def _models(number: str, name: str) -> Iterator[tuple[str, bytes]]:
    for kind in ("buffers", "images"):
        tree = {"asset": {"version": "2.0"}, kind: [{"uri": name, "byteLength": 8}]}
        yield f"pack/{number}{kind[0]}.gltf", json.dumps(tree).encode()
    face = "v 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nusemtl m\nf 1/1 2/1 3/1\n"
    yield f"pack/{number}lib.obj", f"mtllib {name}\n{face}".encode()
    yield f"pack/{number}tex.obj", f"mtllib {number}.mtl\n{face}".encode()
    yield f"pack/{number}.mtl", f"newmtl m\nmap_Kd {name}\nbump -bm 1 {name}\n".encode()
    ply = "ply\nformat ascii 1.0\ncomment TextureFile {}\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    ply += "element face 1\nproperty list uchar int vertex_indices\nend_header\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n"
    yield f"pack/{number}.ply", ply.format(name).encode()


def _shaders(number: str, name: str, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    forms = (
        '#include "{}"',
        "#include <{}>",
        '# /**/ include\t"{}"',
        '#inc\\\nlude "{}"',
        '\r#include "{}"\r',
        '/*"*/#include "{}"',
    )
    yield f"pack/{number}.frag", f"{rng.choice(forms).format(name)}\nvoid main() {{}}\n".encode()
    yield f"pack/{number}m.frag", f'#define N "{name}"\n#include N\n'.encode()


def _documents(outside: Path) -> Iterator[tuple[str, bytes]]:
    secret = f"{outside}/secret"
    entity = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{secret}">]><a>&x;</a>'
    yield "doc/entity.xml", entity.encode()
    yield "doc/dtd.xml", f'<!DOCTYPE a SYSTEM "file://{secret}"><a/>'.encode()
    yield "doc/parameter.xml", f'<!DOCTYPE a [<!ENTITY % x SYSTEM "{secret}"> %x;]><a/>'.encode()
    yield "doc/include.xml", f'<a xmlns:x="http://www.w3.org/2001/XInclude"><x:include href="{secret}" parse="text"/></a>'.encode()
    yield "doc/laughs.xml", b'<!DOCTYPE a [<!ENTITY b "' + b"x" * 99 + b'"><!ENTITY c "' + b"&b;" * 99 + b'">]><a>&c;</a>'
    yield "doc/tag.yaml", f"a: !!python/object/apply:os.system ['touch {outside}/ran']\n".encode()
    yield "doc/include.yaml", f"a: !include {secret}\n".encode()
    yield "doc/aliases.yaml", b"a: &a [x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (i, i) for i in range(20))
    yield "doc/deep.json", b"[" * 100_000
    yield "doc/schema.json", json.dumps({"$ref": f"file://{secret}"}).encode()


def _pictures() -> Iterator[tuple[str, bytes]]:
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(x) run\n%%EOF\n"
    for suffix in ("png", "jpg", "tga", "bmp", "gif", "tif", "webp"):
        yield f"pic/eps.{suffix}", eps
    yield "pic/eps2.png", b"\xc5\xd0\xd3\xc6" + struct.pack("<7I", 32, len(eps), 0, 0, 0, 0, 0) + eps
    yield "pic/eps.mtl", b"newmtl m\nmap_Kd eps.png\nmap_Ks eps.tga\n"
    yield "pic/eps.obj", b"mtllib eps.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nusemtl m\nf 1/1 2/1 3/1\n"
    for name, side in (("bomb", 30_000), ("large", 9_000)):
        head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
        body = b"IDAT" + zlib.compress(b"\0" * 1000)
        chunks = b"".join(
            struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (head, body, b"IEND")
        )
        yield f"pic/{name}.png", b"\x89PNG\r\n\x1a\n" + chunks
    yield "pic/font.ttf", b"\0\1\0\0\xff\xff" + b"\0" * 64
    yield "pic/sound.wav", b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\xff\xff" + b"\xff" * 64


def _scripts(outside: Path) -> Iterator[tuple[str, bytes]]:
    yield "lua/run.lua", f"os.execute('touch {outside}/ran')\n".encode()
    yield "lua/shebang.lua", f"#!/bin/sh touch {outside}/ran\nio.open('{outside}/secret'):read('a')\n".encode()
    yield "lua/bytecode.lua", b"\x1bLua" + b"\x54" * 64


def _settings(outside: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of several folders: each has a `.aptui.yaml` that sets a forbidden key, and a source that the key affects."""
    evil, secret = f"{outside}/evil", f"{outside}/secret"
    document = {
        "compiler": ("a.frag", f"shaders: {{params: {{compiler: {evil}}}}}"),
        "beside": ("a.frag", "shaders: {params: {compiler: ../../../../../assets/set/beside/evil}}"),
        "platform": ("a.frag", f"shaders: {{platforms: {{'*': {{compiler: {evil}}}}}}}"),
        "includes": ("a.frag", f"shaders: {{params: {{include_paths: [{outside}]}}}}"),
        "luac": ("a.lua", f"scripts: {{params: {{luac: {evil}}}}}"),
        "home": ("a.lua", "scripts: {params: {luac: ~/evil}}"),
        "schema": ("a.yaml", f"yaml: {{params: {{schema: {secret}}}}}"),
        "schema-up": ("a.yaml", "yaml: {params: {schema: ../../outside/secret}}"),
        "pixels": ("a.png", "pictures: {params: {max_megapixels: 100000}}"),
        "tool": ("a.adj", f"adjusted: {{params: {{tool: {evil}}}}}"),
        "option": ("a.adj", "adjusted: {params: {tool: '-x'}}"),
    }
    for folder, (source, text) in document.items():
        yield f"set/{folder}/.aptui.yaml", f"builders:\n  {text}\n".encode()
        yield f"set/{folder}/{source}", b'#include "secret"\nreturn 1\n' if source != "a.yaml" else b"a: 1\n"
    yield "set/beside/evil", b"#!/bin/sh\ntouch " + os.fsencode(f"{outside}/ran") + b"\n"


def _payloads(outside: Path, rng: random.Random, count: int) -> list[str]:
    """Return names of files, without slashes and with at most 150 bytes."""
    touch = "touch ran; cd ..; touch ran"
    pieces = [part.format(touch) for part in _PIECES]
    return list(dict.fromkeys("".join(rng.choices(pieces, k=rng.randint(1, 3)))[:150].replace("/", "") for _ in range(count)))


_PIECES = (
    "$({0})", "`{0}`", ";{0};", "\n{0}\n", "|{0}|", "&&{0}&", "'", '"', "\\", "$", "{{", "}}", " ", "*", "(", ")", "#", "~", "!",
    "\t",
    "\nEOF\n{0}\n", "a[$({0})]", "${{x:=$({0})}}", "';{0};'", '";{0};"', "x", ".", "%", "=", "<", ">", ";;{0};;", "caf\u00e9",
    "\r{0}\r",
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------- assets


def assets(folder: Path, seed: int, mutant: str = "", only: str = "") -> Report:
    """Build a project of hostile files (only files whose path begins with `only`) once, and check every canary."""
    report, rng = Report("hostile-assets"), random.Random(seed)
    folder = folder / "assets-drill"
    outside = _canaries(folder)
    project = Project(folder / "project", SETTINGS.replace("COMPILER", f"{folder}/tools/glslangValidator"))
    for rel, data in corpus(outside, rng):
        if not rel.startswith(only):
            continue
        try:
            path = project.write(f"assets/{rel}", data)
        except OSError:
            continue  # skip a name that the file system does not allow
        if path.name == "evil":
            path.chmod(0o755)
        report.faults += 1
    _links(project.root, outside)
    before = {path: path.read_bytes() for path in sorted(outside.iterdir()) if path.is_file()}
    environment = {"PATH": f"{folder}/tools:{os.environ['PATH']}", "HOME": str(outside), "XDG_CACHE_HOME": str(folder / "xdg")}
    environment["XDG_CONFIG_HOME"] = str(folder / "xdg")
    with mock.patch.dict(os.environ, environment), MUTANTS[mutant](), _watched(outside) as opened:
        project.engine_run()
    for name in sorted(opened()):
        report.violations.append(f"'{name}' was opened outside the project")
    if {path: path.read_bytes() for path in sorted(outside.iterdir()) if path.is_file()} != before:
        report.violations.append(f"something was written or run outside: {sorted(path.name for path in outside.iterdir())}")
    report.violations += [f"a program of strangers ran: '{path}'" for path in folder.rglob("ran")]
    report.violations += [f"the secret is in '{path}'" for path in _holders(project.cache)]
    return report


def _canaries(folder: Path) -> Path:
    outside, tools = folder / "outside", folder / "tools"
    outside.mkdir(parents=True)
    tools.mkdir()
    (outside / "secret").write_text(f"newmtl {_SECRET}\n")
    for path in (outside / "evil", tools / "gs"):
        path.write_text(f"#!/bin/sh\ntouch '{outside}/ran'\n")
        path.chmod(0o755)
    # This stand-in for a compiler reads every file that its input names, as real compilers do.
    (tools / "glslangValidator").write_text(
        '#!/bin/sh\nfor last; do :; done\nsed -n \'s/^.*include[ \\t]*["<]\\(.*\\)[">].*/\\1/p\' "$last" | while read -r name; do\n'
        'cat "$(dirname "$last")/$name" "$name"; done 2>/dev/null\n'
        'while [ "$1" != -o ] && [ $# -gt 0 ]; do shift; done; [ -n "$2" ] && echo made > "$2"; exit 0\n'
    )
    (tools / "glslangValidator").chmod(0o755)
    return outside


def _links(root: Path, outside: Path) -> None:
    (root / "shared").mkdir(exist_ok=True)
    for pack in ("pack", "set/includes"):
        place = root / "assets" / pack
        place.mkdir(parents=True, exist_ok=True)
        (place / "link_out").symlink_to(outside / "secret")
        (place / "folder_out").symlink_to(outside)
        (place / "zero").symlink_to("/dev/zero")
        os.mkfifo(place / "pipe")


def _holders(cache: Path) -> Iterator[Path]:
    """Yield files of the engine that contain the secret, plain or encoded."""
    secret = _SECRET.encode()
    forms = (secret, secret.hex().encode(), *(base64.b64encode(b"x" * shift + secret)[4:-4] for shift in range(3)))
    for path in sorted(cache.rglob("*")):
        if path.is_file() and not path.is_symlink() and any(form in path.read_bytes() for form in forms):
            yield path


@contextmanager
def _watched(folder: Path) -> Iterator[Callable[[], set[str]]]:
    """Let the kernel record which files in `folder` are opened; the returned function lists them."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(_IN_NONBLOCK)
    libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_OPEN | _IN_ACCESS)
    found: set[str] = set()

    def opened() -> set[str]:
        return found

    try:
        yield opened
        found |= set(_events(descriptor))
    finally:
        os.close(descriptor)


def _events(descriptor: int) -> Iterator[str]:
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            _, _, _, size = struct.unpack_from("iIII", data, at)
            name = data[at + 16 : at + 16 + size].rstrip(b"\0")
            if name:  # an event without a name reports that the folder itself was opened, which is allowed
                yield os.fsdecode(name)
            at += 16 + size


# -------------------------------------------------------------------------------------------------------------------- names


def names(folder: Path, count: int, seed: int, mutant: str = "") -> Report:
    """Run `count` random command templates in real shells, with file names that contain shell code, which must not run."""
    report, rng = Report("names"), random.Random(seed)
    shells = [shell for shell in ("/bin/sh", shutil.which("bash") or "") if shell]
    place = folder / "names-drill"
    with MUTANTS[mutant]():
        for number in range(count):
            here = place / f"{number:05}" / "deep"
            here.mkdir(parents=True)
            pieces = [piece.format("touch ran; cd ..; touch ran") for piece in _PIECES]
            for _ in range(10):  # several attempts, because most random templates are refused; only accepted ones count
                template, name = _template(rng), "".join(rng.choices(pieces, k=rng.randint(1, 4)))
                if _run(template, name, here, rng.choice(shells)):
                    report.faults += 1
                    break
            if list((place / f"{number:05}").rglob("ran")):
                report.violations.append(f"{template!r} ran the name {name!r}")
            shutil.rmtree(place / f"{number:05}")
    return report


def _run(template: str, name: str, here: Path, shell: str) -> int:
    values = {"source": f"{here}/{name}", "stem": name, "rel": name, "products_dir": str(here), "params.x": name}
    try:
        command = invocation(template, values)
    except CommandError:
        return 0
    words = (shell, *command.arguments[1:]) if command.program == "/bin/sh" else command.arguments
    environment = {"PATH": os.environ["PATH"], "HOME": str(here), **dict(command.environment)}
    try:
        subprocess.run(words, cwd=here, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False)
    except (subprocess.TimeoutExpired, OSError):
        return 1
    return 1


def _template(rng: random.Random, depth: int = 0) -> str:
    """Return a command template: mostly nested, sometimes invalid."""
    argument, command = lambda: _argument(rng, depth + 1), lambda: _template(rng, depth + 1)
    simple: tuple[Callable[[], str], ...] = (
        lambda: f"printf %s {argument()}",
        lambda: f"true {argument()} {argument()}",
        lambda: f'x={argument()}; printf %s "$x"',
        lambda: f"cat <<EOF\nx = {argument()}\nEOF\n",
        lambda: f"cat <<'EOF'\nx = {argument()}\nEOF\n",
        lambda: f'cat <<-"EOF"\n\tx {argument()}\n\tEOF\n',
        lambda: f'sh -c "printf %s {argument()}"',
        lambda: f"sh -c 'printf %s \"$1\"' sh {argument()}",
        lambda: f"eval printf %s {argument()}",
        lambda: f'find . -maxdepth 0 -exec sh -c "true {argument()}" \\;',
        lambda: f"sed -e 's|x|{argument()}|' /dev/null",
        lambda: f"awk 'BEGIN {{ print \"{argument()}\" }}'",
        lambda: f"echo $(( 1 + {argument()} ))",
        lambda: f"[ -n {argument()} ] && [[ {argument()} -eq 1 ]]",
        lambda: f"export Y={argument()}",
        lambda: f"echo ${{y:-{argument()}}}",
        lambda: f"printf -v {argument()} x",
    )
    if depth >= 3 or rng.random() < 0.4:
        return rng.choice(simple)()
    nested: tuple[Callable[[], str], ...] = (
        lambda: f"{command()}; {command()}",
        lambda: f"{command()} | cat",
        lambda: f"({command()})# it's … \"\n{command()}",
        lambda: f"case a in a) {command()};; b|c) {command()};; esac",
        lambda: f"if {command()}; then {command()}; fi",
        lambda: f"f() {{ {command()}; }}; f {argument()}",
        lambda: f'true \'it\'"s" \\" # {argument()}\n{command()}',
    )
    return rng.choice(nested)()


def _argument(rng: random.Random, depth: int) -> str:
    name = rng.choice(("{source}", "{stem}", "{rel}", "{params.x}"))
    plain: tuple[Callable[[], str], ...] = (
        lambda: name, lambda: f'"{name}"', lambda: f"'{name}'", lambda: f"a{name}b", lambda: f'"x{name}\'y"',
        lambda: f"out\\{name}",
        lambda: f'"out\\{name}"', lambda: f'"\\\\{name}"',
    )  # fmt: skip
    if depth >= 3 or rng.random() < 0.6:
        return rng.choice(plain)()
    command = _template(rng, depth + 1)
    return rng.choice((f"$({command})", f'"$({command})"', f"`{command}`", f'"`{command}`"', f'"$(case a in a) {command};; esac)"'))


# ------------------------------------------------------------------------------------------------------------------ mutants


def _pasted(self: Template) -> str:
    """Break the template on purpose: values become part of the command's text, so that the shell interprets them."""
    text = self.text
    for name, variable in self.variables.items():
        text = text.replace(f"{{{name}}}", f'$(sh -c "printf %s ${variable}")')
    return text


def _trusts_whole_disk(self: Pool, builders: Sequence[Builder], platforms: Sequence[Platform]) -> WorkerStart:
    """Break the engine on purpose: its workers treat the whole disk as the project."""
    start = _make_start(self, builders, platforms)
    return replace(start, setup=replace(start.setup, scan_folders=("/",)))


_make_start = Pool._make_start

MUTANTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "": nullcontext,
    "trusting-names": lambda: mock.patch.object(Pool, "_make_start", _trusts_whole_disk),
    "trusting-folders": lambda: mock.patch.object(settings, "_check_trust"),
    "pasting": lambda: mock.patch.object(Template, "line", _pasted),
}
