"""A builder whose sources list the run-time dependencies of their products. Test projects have it in `builders/`.

Lines: `source PATH [LOAD]`, `product PATH [LOAD]` (path dependencies), `asset UUID SUB_ID [LOAD]`, `legacy SUB_ID`, `on PLATFORM
LINE` (for that platform alone), `text …` (what the product holds). LOAD is a number, 2 unless given.
"""

from uuid import UUID

from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobDescriptor,
    JobProduct,
    PathDependency,
    PathDependencyKind,
    ProcessJobRequest,
    ProcessJobResponse,
    ProductDependency,
    Result,
)

_KINDS = {"source": PathDependencyKind.SOURCE_FILE, "product": PathDependencyKind.PRODUCT_FILE}
_LOAD = ["2"]


class Linked:
    name = "linked"
    version = "1"
    patterns = ("*.lnk",)
    analysis_fingerprint = ""

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("linked", platform.id) for platform in request.platforms])

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        product = JobProduct(f"{request.stem}.out", dependencies_handled=True)
        text = ""
        for line in request.read_source().decode().splitlines():
            verb, *words = line.split()
            if verb == "on":
                platform, verb, *words = words
                if platform != request.platform.id:
                    continue
            if verb in _KINDS:
                path, load, *_ = words + _LOAD
                product.path_dependencies.append(PathDependency(path, _KINDS[verb], int(load)))
            elif verb == "asset":
                uuid, sub_id, load, *_ = words + _LOAD
                product.dependencies.append(ProductDependency(UUID(uuid), int(sub_id), int(load)))
            elif verb == "legacy":
                product.legacy_sub_ids += (int(words[0]),)
            else:
                text += line
        with open(request.product_path(product.path), "w") as file:
            file.write(text)
        return ProcessJobResponse(Result.SUCCESS, [product])
