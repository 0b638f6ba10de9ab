"""Texts of builders that projects of tests copy into their `builders/` folder."""

from pathlib import Path
from textwrap import indent

SCRIPTED = (Path(__file__).parent / "stories" / "scripted.py").read_text()


def one_product(
    name: str, pattern: str, make: str, *, product: str = 'request.stem + ".out"', key: str = "", head: str = "", edges: str = "[]"
) -> str:
    """Return the text of a builder. It has one job for each platform, and each job makes one product.

    Args:
        make: statements of `process_job` that set `data`, a text or bytes.
        product: the expression of the product's name.
        key: the key of the jobs, "" = `name`.
        head: statements before the class.
        edges: the expression of the source dependencies.
    """
    return f"""
{head}
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency


class {name.title()}:
    name = "{name}"
    version = "1"
    patterns = ("{pattern}",)
    analysis_fingerprint = ""

    def create_jobs(self, request):
        jobs = [JobDescriptor("{key or name}", platform.id) for platform in request.platforms]
        return CreateJobsResponse(Result.SUCCESS, jobs, {edges})

    def process_job(self, request):
{indent(make, "        ")}
        with open(request.product_path({product}), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return ProcessJobResponse(Result.SUCCESS, [JobProduct({product})])
"""
