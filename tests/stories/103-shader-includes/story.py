"""A shader runs again when an included file changes, or a missing one appears. A shell script replaces the compiler."""

import os

TEXT = """
scan_folders: [{{name: game, path: assets}}]
builders: [{{name: shaders, uses: shader, params: {{compiler: "{root}/bin/glslang", include_paths: [inc]}}}}]
"""
CONFIG = TEXT.format(root="")
COMPILER = r"""#!/bin/sh
show() {
  cat "$1"
  for name in $(sed -n 's/^#include "\(.*\)"/\1/p' "$1"); do
    if [ -f "$name" ]; then show "$name"; elif [ -f "inc/$name" ]; then show "inc/$name"; fi
  done
}
for last; do :; done
grep -q broken "$last" && { echo "ERROR: $last:1: 'broken' : syntax error"; exit 2; }
while [ $# -gt 0 ]; do if [ "$1" = -o ]; then show "$last" > "$2"; fi; shift; done
"""
FILES = {
    "bin/glslang": COMPILER,
    "assets/a.frag": '#include "one.glsl"\n',
    "assets/b.frag": "void main() {}\n",
    "assets/inc/one.glsl": '#include "two.glsl"\n',
}


def play(story):
    os.chmod(story.path("bin/glslang"), 0o755)
    story.config(TEXT.format(root=story.root))
    story.run("a.frag:shaders", "b.frag:shaders")
    story.run()

    story.write("assets/inc/two.glsl", "// two\n")
    story.run("a.frag:shaders")
    assert story.texts()["a.frag.spv"].endswith("// two\n")
    story.write("assets/inc/two.glsl", "// other\n")
    story.run("a.frag:shaders")

    story.write("assets/one.glsl", "// nearer\n")
    story.run("a.frag:shaders")
    story.write("assets/inc/two.glsl", "// nobody's now\n")
    story.run()

    story.write("assets/b.frag", "broken\n")
    story.run("b.frag:shaders!")
    assert story.errors() == {"b.frag:shaders": "b.frag:1: 'broken' : syntax error"}
