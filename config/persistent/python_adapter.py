"""Runs a Python script as a persistent command. Copy this file into `tools/`, and write in a builder entry:

    command: python3 tools/python_adapter.py tools/convert.py
    tools: [{name: python3, files: [tools/python_adapter.py, tools/convert.py]}]
    persistent: true

`convert.py` defines `convert(job)`. `job` is the request as a dict; the result is None, or a dict with fields of the answer
(`products`, `dependencies`, `facts`, `log`). An exception fails the job. Its output goes to the log of the job.
"""

import json
import os
import runpy
import sys
import traceback

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # only answers may go to stdout: `print` goes to stderr
convert = runpy.run_path(sys.argv[1])["convert"]
for line in sys.stdin:
    job = json.loads(line)
    os.chdir(job["temp_dir"])
    try:
        answer = {"ok": True, **(convert(job) or {})}
    except Exception as error:
        traceback.print_exc()
        answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    sys.stdout.flush()
    print(json.dumps({"id": job["id"], **answer}), file=answers, flush=True)
