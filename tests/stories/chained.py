"""A builder of chains for the tests in `stories/`: `*.top` → intermediate `.mid` → intermediate `.low` → product `.end`.

The lines of a source are commands: `as NAME` changes the product's name, `also NAME` makes another product, `none` makes no
product, `fail` fails, `read PATH` inserts another source and depends on it, `after PATH` depends on the products of that
source's job.
"""

from __future__ import annotations

import os

from aptui import sdk

NEXT = {".top": ".mid", ".mid": ".low", ".low": ".end"}


class Chained:
    """See the docstring of the module."""

    name = "chained"
    version = "1"
    patterns = ("*.top", "*.mid", "*.low")

    def create_jobs(self, request):
        lines = request.read_source().decode().splitlines()
        platforms = [item.id for item in request.platforms] if request.source.endswith(".low") else ["common"]
        dependencies = [
            sdk.JobDependency(line[6:], "chained", "common", sdk.DependencyKind.ORDER)
            for line in lines
            if line.startswith("after ")
        ]
        return sdk.CreateJobsResponse(
            sdk.Result.SUCCESS,
            [sdk.JobDescriptor("chained", platform, job_dependencies=dependencies) for platform in platforms],
            [sdk.SourceDependency(line[5:]) for line in lines if line.startswith("read ")],
        )

    def process_job(self, request):
        lines = request.read_source().decode().splitlines()
        if "fail" in lines:
            return sdk.ProcessJobResponse(error="told to fail")
        stem, extension = os.path.splitext(os.path.basename(request.source))
        names = [line[3:] for line in lines if line.startswith("as ")] or [stem + NEXT[extension]]
        names += [line[5:] for line in lines if line.startswith("also ")]
        texts = [line for line in lines if line.split()[0] not in ("as", "also", "after", "#")]
        for line in [line for line in texts if line.startswith("read ")]:
            texts += self._read(os.path.join(request.scan_folder, line[5:]))
        products = []
        for number, name in enumerate(() if "none" in lines else names):
            with open(request.product_path(name), "w") as file:
                file.write("\n".join(line for line in texts if not line.startswith("read ")))
            flags = sdk.ProductFlag.INTERMEDIATE if request.platform.id == "common" else sdk.ProductFlag.PRODUCT
            products.append(sdk.JobProduct(name, number, flags=flags))
        return sdk.ProcessJobResponse(sdk.Result.SUCCESS, products)

    @staticmethod
    def _read(path):
        try:
            with open(path) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return ["missing"]
