"""`python -m tests.bench hub [--count N]`: a game whose products need each other, and the cost of touching its hub.

N sources, each with four product dependencies: one by asset id, three by path. Every hundredth source reads the hub, a material
that all share. Touching the hub must run only the hub and the sources that read it, once each; touching a source that others
need only at run time must run only that source.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.bench.measure import aptui, run, say, settle

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench

_PER_FOLDER = 100
_READERS = 100
"""Every hundredth source depends on the file `hub.mat` and reads it."""
_BUILDER = """
import os, uuid
from aptui import sdk

HUB = "hub.mat"

class Linked:
    name = "linked"
    version = "1"
    patterns = ("*.obj", "*.mat")

    def create_jobs(self, request):
        response = sdk.CreateJobsResponse(sdk.Result.SUCCESS)
        if request.read_source().startswith(b"hub"):
            response.source_dependencies.append(sdk.SourceDependency(HUB))
        response.jobs = [sdk.JobDescriptor("linked", item.id) for item in request.platforms]
        return response

    def process_job(self, request):
        data = request.read_source()
        if data.startswith(b"hub"):
            with open(os.path.join(request.scan_folder, HUB), "rb") as file:
                data += file.read()
        name = os.path.basename(request.source) + ".out"
        with open(request.product_path(name), "wb") as file:
            file.write(data)
        words = data.decode().split("\\n")[0].split()[1:]
        product = sdk.JobProduct(name, 1, dependencies_handled=True)
        product.path_dependencies = [sdk.PathDependency(word, sdk.PathDependencyKind.SOURCE_FILE) for word in words[:3]]
        product.dependencies = [sdk.ProductDependency(uuid.UUID(word), 1) for word in words[3:]]
        return sdk.ProcessJobResponse(sdk.Result.SUCCESS, [product])
"""


def hub(bench: Bench) -> None:
    """Build the game, then change `hub.mat`, and then a source that nothing reads; fail if the number of jobs run is wrong."""
    from aptui.core.paths import path_uuid

    count, folder = bench.count, bench.base / f"hub-{bench.count}"
    names = [f"d{at // _PER_FOLDER}/f{at}.obj" for at in range(count)]
    (folder / "builders").mkdir(parents=True, exist_ok=True)
    (folder / "builders" / "linked.py").write_text(_BUILDER)
    (folder / "aptui.yaml").write_text("scan_folders: [{name: game, path: game}]\nbuilders: []\n")
    for at, name in enumerate(names):
        path = folder / "game" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        others = [names[(at * 7 + step) % count] for step in (1, 11, 101, 1009)]
        word = "hub" if at % _READERS == 0 else "plain"
        path.write_text(f"{word} {' '.join(others[:3])} {path_uuid(others[3]).hex()}\n")
    (folder / "game" / "hub.mat").write_text("first\n")

    settle()
    cold = run(aptui(folder))
    built = json.loads(cold.output[cold.output.index("{") :])
    expected = {"hub": 1 + len(names[::_READERS]), "plain": 1}
    say("hub", f"{count} sources, {4 * count} product dependencies: cold {cold.wall_s:.1f} s, {built['jobs_run']} jobs")
    for what, path in (("hub", "hub.mat"), ("plain", names[1])):
        with (folder / "game" / path).open("a") as file:
            file.write("touched\n")
        settle()
        cost = run(aptui(folder))
        summary = json.loads(cost.output[cost.output.index("{") :])
        if summary["jobs_run"] != expected[what]:
            raise SystemExit(f"touching {path} ran {summary['jobs_run']} jobs, not {expected[what]}")
        say("hub", f"touching {what}: {summary['jobs_run']} jobs, {cost.wall_s:.2f} s")


ROWS = {"hub": hub}
