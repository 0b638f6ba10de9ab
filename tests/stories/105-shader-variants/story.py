"""When a matrix of macros changes, only jobs of new variants run; variants that stay keep their products.

The story has a stand-in for the compiler, whose product is its own command line.
"""

import os

TEXT = """
scan_folders: [{{name: game, path: assets}}]
builders: [{{name: sky, uses: shader, params: {{compiler: "{root}/bin/glslang", variants: {variants}, debug: {debug}}}}}]
"""
CONFIG = TEXT.format(root="", variants="{}", debug="false")
COMPILER = r"""#!/bin/sh
line="$*"
while [ $# -gt 0 ]; do if [ "$1" = -o ]; then echo "$line" | grep -o -e '-D.*' > "$2"; fi; shift; done
"""
FILES = {
    "bin/glslang": COMPILER,
    "assets/a.frag": "void main() {}\n",
    "assets/day/b.frag": "void main() {}\n",
}


def play(story):
    os.chmod(story.path("bin/glslang"), 0o755)

    def configure(variants, debug="false"):
        story.config(TEXT.format(root=story.root, variants=variants, debug=debug))

    configure("{LIGHTS: [1, 4]}")
    both = ("a.frag:sky.LIGHTS-1", "a.frag:sky.LIGHTS-4", "day/b.frag:sky.LIGHTS-1", "day/b.frag:sky.LIGHTS-4")
    story.run(*both, analysed=2)

    configure("{LIGHTS: [1, 4, 8]}")
    story.run("a.frag:sky.LIGHTS-8", "day/b.frag:sky.LIGHTS-8", analysed=2)
    assert story.texts()["a.frag.lights-8.spv"].startswith("-DLIGHTS=8 ")

    configure("{LIGHTS: [4, 8]}")
    story.run(analysed=2)
    assert sorted(story.texts()) == sorted(f"{name}.lights-{count}.spv" for name in ("a.frag", "day/b.frag") for count in (4, 8))

    configure("{LIGHTS: [4, 8], FOG: [null, 1]}")
    story.run(*(f"{name}:sky.FOG-1.LIGHTS-{count}" for name in ("a.frag", "day/b.frag") for count in (4, 8)), analysed=2)

    story.write("assets/day/.aptui.yaml", "builders: {sky: {params: {variants: {LIGHTS: [4, 2]}}}}\n")
    story.run("day/b.frag:sky.LIGHTS-2", analysed=1)
    story.delete("assets/day/.aptui.yaml")
    story.run(*(f"day/b.frag:sky.{name}" for name in ("LIGHTS-8", "FOG-1.LIGHTS-4", "FOG-1.LIGHTS-8")), analysed=1)

    configure("{LIGHTS: [4]}", debug="true")
    story.run("a.frag:sky.LIGHTS-4", "day/b.frag:sky.LIGHTS-4", analysed=2)
    story.run(analysed=0)
