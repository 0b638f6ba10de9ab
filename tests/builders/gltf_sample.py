"""A small valid glTF document for tests, with one element of every kind, and functions that write it."""

import base64
import io
import json
import struct

from PIL import Image

from aptui.builders.gltf.check import Checker
from aptui.builders.gltf.file import parse_document


def picture(kind="PNG"):
    stream = io.BytesIO()
    Image.new("RGB", (2, 2), (200, 30, 10)).save(stream, format=kind)
    return stream.getvalue()


class Sample:
    """A document: `tree` may be changed before writing; `numbers` are the bytes of its only buffer."""

    def __init__(self):
        self.numbers = b""
        views, accessors = [], []

        def add(form, values, component, shape, **more):
            self.numbers += bytes(-len(self.numbers) % 4)
            data = struct.pack(f"<{len(values)}{form}", *values)
            views.append({"buffer": 0, "byteOffset": len(self.numbers), "byteLength": len(data)})
            self.numbers += data
            size = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}[shape]
            accessor = {"bufferView": len(views) - 1, "componentType": component, "count": len(values) // size, "type": shape}
            accessors.append({**accessor, **more})

        add("f", [0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0], 5126, "VEC3", min=[0, 0, 0], max=[1, 1, 0])  # 0: positions
        add("f", [0, 0, 1] * 4, 5126, "VEC3")  # 1: normals
        add("f", [0, 0, 1, 0, 1, 1, 0, 1], 5126, "VEC2")  # 2: texture coordinates
        add("H", [0, 1, 2, 0, 2, 3], 5123, "SCALAR")  # 3: indices
        add("f", [float(at % 5 == 0) for at in range(16)] * 2, 5126, "MAT4")  # 4: inverse bind matrices
        add("f", [0, 0.5, 1], 5126, "SCALAR", min=[0], max=[1])  # 5: times
        add("f", [0, 0, 0, 1] * 3, 5126, "VEC4")  # 6: rotations
        add("B", [0, 0, 0, 0, 1, 1, 1, 1] * 2, 5121, "VEC4")  # 7: joints
        add("f", [1, 0, 0, 0] * 4, 5126, "VEC4")  # 8: weights
        attributes = {"POSITION": 0, "NORMAL": 1, "TEXCOORD_0": 2, "JOINTS_0": 7, "WEIGHTS_0": 8}
        self.tree = {
            "asset": {"version": "2.0"},
            "scene": 0,
            "scenes": [{"nodes": [0]}],
            "nodes": [{"name": "root", "children": [1, 2]}, {"mesh": 0, "skin": 0}, {"name": "joint"}],
            "meshes": [{"name": "rock", "primitives": [{"attributes": attributes, "indices": 3, "material": 0}]}],
            "materials": [{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}],
            "textures": [{"source": 0, "sampler": 0}],
            "samplers": [{}],
            "images": [{"uri": "rock%20face.png"}],
            "skins": [{"joints": [0, 2], "inverseBindMatrices": 4}],
            "animations": [
                {
                    "name": "walk",
                    "samplers": [{"input": 5, "output": 6}],
                    "channels": [{"sampler": 0, "target": {"node": 2, "path": "rotation"}}],
                }
            ],
            "buffers": [{"uri": "rock.bin", "byteLength": len(self.numbers)}],
            "bufferViews": views,
            "accessors": accessors,
        }

    def write(self, bench, name="rock.gltf", *, is_embedded=False):
        """Write the document, and the files that it names unless they are embedded; return its name."""
        folder = f"{name.rpartition('/')[0]}/".removeprefix("/")
        if is_embedded:
            self.tree["buffers"][0]["uri"] = data_uri(self.numbers)
            self.tree["images"][0]["uri"] = data_uri(picture())
        else:
            bench.write(f"{folder}rock.bin", self.numbers)
            bench.write(f"{folder}rock face.png", picture())
        return bench.write(name, json.dumps(self.tree))


def data_uri(data):
    return "data:application/octet-stream;base64," + base64.b64encode(data).decode()


def glb(tree, chunk=b"", version=2):
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    body = struct.pack("<II", len(text), 0x4E4F534A) + text
    if chunk:
        chunk += bytes(-len(chunk) % 4)
        body += struct.pack("<II", len(chunk), 0x004E4942) + chunk
    return struct.pack("<4sII", b"glTF", version, 12 + len(body)) + body


def read_glb(data):
    """Return (tree, chunk) of a GLB, read without the code under test."""
    assert struct.unpack_from("<4sII", data) == (b"glTF", 2, len(data))
    (size,) = struct.unpack_from("<I", data, 12)
    rest = data[20 + size :]
    return json.loads(data[20 : 20 + size]), rest[8:]


def mistakes(tree, numbers=b"", files=None):
    """Return the errors and warnings of a document whose buffer 0 is embedded in a GLB."""
    checker = Checker(parse_document(glb(tree, numbers)), lambda path: (files or {})[path])
    checker.check()
    return checker.errors, checker.warnings


def embedded(sample):
    """Embed the picture of a sample as a data URI and make its buffer the binary chunk of a GLB; return the sample."""
    del sample.tree["buffers"][0]["uri"]
    sample.tree["images"][0]["uri"] = data_uri(picture())
    return sample
