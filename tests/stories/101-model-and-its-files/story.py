"""The job of a model runs again when its buffer or picture changes.

It fails with the name of a missing file, and runs again when the file appears.
"""

import base64
import json

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: models, uses: model}]
"""
PICTURE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


def model(count):
    return json.dumps(
        {
            "asset": {"version": "2.0"},
            "buffers": [{"uri": "../numbers/rock.bin", "byteLength": 36}],
            "bufferViews": [{"buffer": 0, "byteLength": 36}],
            "accessors": [{"bufferView": 0, "componentType": 5126, "count": count, "type": "VEC3"}],
            "images": [{"uri": "rock%20face.png"}],
            "meshes": [{"name": "rock", "primitives": [{"attributes": {"POSITION": 0}}]}],
        }
    )


FILES = {
    "assets/models/rock.gltf": model(3),
    "assets/models/alone.gltf": '{"asset": {"version": "2.0"}}',
    "assets/models/rock face.png": PICTURE,
    "assets/numbers/rock.bin": bytes(36),
}
ROCK = "models/rock.gltf:models"


def play(story):
    story.run(ROCK, "models/alone.gltf:models")
    assert {name.rpartition("/")[2] for name in story.products()} == {"rock.glb", "alone.glb"}
    story.run()

    story.write("assets/numbers/rock.bin", bytes(4) + bytes([0, 0, 128, 63]) * 8)
    story.run(ROCK)

    story.delete("assets/models/rock face.png")
    story.run(f"{ROCK}!")
    assert story.errors() == {ROCK: "models/rock.gltf: image 0: the file 'models/rock face.png' is missing"}

    story.write("assets/models/rock face.png", PICTURE)
    story.run()  # all inputs are as they were when the product was made, so no job runs
    story.write("assets/models/rock.gltf", model(4))
    story.run(f"{ROCK}!")
    assert story.errors() == {
        ROCK: "models/rock.gltf: accessor 0 ('POSITION' of mesh 'rock', primitive 0): the elements end at byte 48 of "
        "buffer view 0, which has only 36 bytes"
    }
    story.write("assets/models/rock.gltf", model(2))
    story.run(ROCK)
    story.run(analysed=0)
