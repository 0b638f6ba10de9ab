"""Runs a script inside of Blender as a persistent command. Copy this file into `tools/`, and write in a builder entry:

    command: blender -b --factory-startup --python-exit-code 1 -P tools/blender_adapter.py -- tools/convert.py 3>&1 1>&2
    tools: [{name: blender, files: [tools/blender_adapter.py, tools/convert.py]}]
    persistent: true

Blender prints to stdout whenever it likes, so the line sends that to the log, and this script writes answers to descriptor 3.

`convert.py` defines `convert(job)`. `job` is the request as a dict; the result is None, or a dict with fields of the answer
(`products`, `dependencies`, `facts`, `log`). Each job begins with an empty scene. An exception fails the job. For example:

    import bpy

    def convert(job):
        bpy.ops.wm.open_mainfile(filepath=job["source"])
        bpy.ops.export_scene.gltf(filepath=f"{job['products_dir']}/{job['stem']}.glb")
        return {"dependencies": [bpy.path.abspath(library.filepath) for library in bpy.data.libraries]}
"""

import json
import os
import runpy
import sys
import traceback

import bpy

answers = os.fdopen(3, "w")
convert = runpy.run_path(sys.argv[sys.argv.index("--") + 1])["convert"]
for line in sys.stdin:
    job = json.loads(line)
    os.chdir(job["temp_dir"])
    bpy.ops.wm.read_factory_settings(use_empty=True)
    try:
        answer = {"ok": True, **(convert(job) or {})}
    except Exception as error:
        traceback.print_exc()
        answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    sys.stdout.flush()
    print(json.dumps({"id": job["id"], **answer}), file=answers, flush=True)
sys.exit(0)
