"""A builder whose sources list their dependencies. Stories copy it into their `builders/` folder.

Lines: `use PATH`, `glob PATTERN`, `uuid UUID` (declared dependencies), `read PATH` (found while processing),
`fingerprint|order|order_once|order_only PATH` (job dependencies), `need PATH` (declared, and the job fails without it), `fail`,
`refuse` (the analysis fails), `# comment`, `text …`. The product holds the text lines and the bytes of everything used, in order.
"""

import glob
import os
from uuid import UUID

from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    DependencyKind,
    JobDependency,
    JobDescriptor,
    JobProduct,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    SourceDependency,
    SourceDependencyKind,
)

_JOBS = ("fingerprint", "order", "order_once", "order_only")


def _lines(data: bytes) -> list[tuple[str, str]]:
    words = [line.partition(" ") for line in data.decode().splitlines()]
    return [(verb, rest) for verb, _, rest in words]


class Scripted:
    name = "scripted"
    version = "1"
    patterns = ("*.scr",)
    analysis_fingerprint = ""

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        lines = _lines(request.read_source())
        if any(verb == "refuse" for verb, _ in lines):
            return CreateJobsResponse(error="it refuses")
        response = CreateJobsResponse(Result.SUCCESS)
        for verb, path in lines:
            if verb in ("use", "need"):
                response.source_dependencies.append(SourceDependency(path))
            elif verb == "uuid":
                response.source_dependencies.append(SourceDependency(uuid=UUID(path)))
            elif verb == "glob":
                response.source_dependencies.append(SourceDependency(path, SourceDependencyKind.WILDCARD))
        for platform in request.platforms:
            needed = [
                JobDependency(path, "scripted", platform.id, DependencyKind[verb.upper()]) for verb, path in lines if verb in _JOBS
            ]
            response.jobs.append(JobDescriptor("scripted", platform.id, job_dependencies=needed))
        return response

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        response = ProcessJobResponse(Result.SUCCESS)
        made = []
        for verb, rest in _lines(request.read_source()):
            if verb == "fail":
                return ProcessJobResponse(error="told to fail")
            if verb == "text":
                made.append(rest)
            elif verb in ("use", "read", "glob", "need"):
                folder = os.path.join(request.scan_folder, "")
                for path in sorted(glob.glob(folder + rest)) or [folder + rest]:
                    made.append(self._read(path))
                    if verb == "read":
                        response.dependencies.append(path)
                    if verb == "need" and not os.path.exists(path):
                        return ProcessJobResponse(error=f"{rest} is missing")
        with open(request.product_path(request.stem + ".out"), "w") as file:
            file.write("\n".join(made))
        response.products.append(JobProduct(request.stem + ".out"))
        return response

    @staticmethod
    def _read(path: str) -> str:
        try:
            with open(path) as file:
                return file.read()
        except FileNotFoundError:
            return "(missing)"
