"""A model in OBJ runs again when its material file, or a texture that the material file names, changes."""

import base64

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: meshes, uses: model, params: {scale: 2}}]
"""
PICTURES = [
    base64.b64decode(text)
    for text in (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==",
    )
]
TRIANGLE = "mtllib a.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 0 1\nusemtl wood\nf 1/1 2/2 3/3\n"
FILES = {
    "assets/m/a.obj": TRIANGLE,
    "assets/m/a.mtl": "newmtl wood\nmap_Kd ../t/one.png\n",
    "assets/t/one.png": PICTURES[0],
    "assets/t/two.png": PICTURES[0],
}
JOB = "m/a.obj:meshes"


def play(story):
    story.run(JOB)

    story.write("assets/t/one.png", PICTURES[1])
    story.write("assets/t/two.png", PICTURES[1])
    story.run(JOB)

    story.write("assets/m/a.mtl", "newmtl wood\nmap_Kd ../t/two.png\n")
    story.run(JOB)
    story.write("assets/t/one.png", PICTURES[0])
    story.run()
