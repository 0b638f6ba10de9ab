"""A builder that the drill `storm` copies into its project. The sources of the builder name their dependencies.

The lines of a source:

* `use PATH` is a declared dependency on the file in the first scan folder that has this path.
* `own PATH` is a declared dependency on the file in the source's own scan folder.
* `glob PATTERN` is a declared dependency. `read PATH` is found while processing.
* `early PATH` and `inner PATH` are like `use` and `own`, but the analysis reads them and hands the text to the job.
* `order|fingerprint PATH` are job dependencies.
* `fail` fails the job, `refuse` fails the analysis. Every other line is text.
"""

import glob
import os

from aptui import sdk

_JOBS = ("fingerprint", "order")
_READS = {"use": "winner", "read": "winner", "glob": "winner", "early": "winner", "own": "own", "inner": "own"}


class Stormy:
    """See the module's head."""

    name = "stormy"
    version = "1"
    patterns = ("*.scr",)
    analysis_fingerprint = ""

    def create_jobs(self, request):
        lines = [line.partition(" ")[::2] for line in request.read_source().decode().splitlines()]
        if ("refuse", "") in lines:
            return sdk.CreateJobsResponse(error="it refuses")
        answer = sdk.CreateJobsResponse(sdk.Result.SUCCESS)
        for verb, rest in lines:
            if verb in _READS and verb != "read":
                kind = sdk.SourceDependencyKind.WILDCARD if verb == "glob" else sdk.SourceDependencyKind.ABSOLUTE
                answer.source_dependencies.append(sdk.SourceDependency(rest, kind))
        early = {rest: self._text(request, verb, rest) for verb, rest in lines if verb in ("early", "inner")}
        for platform in request.platforms:
            needed = [
                sdk.JobDependency(rest, "stormy", platform.id, sdk.DependencyKind[verb.upper()])
                for verb, rest in lines
                if verb in _JOBS
            ]
            answer.jobs.append(sdk.JobDescriptor("stormy", platform.id, params=early, job_dependencies=needed))
        return answer

    def process_job(self, request):
        answer, made = sdk.ProcessJobResponse(sdk.Result.SUCCESS), ["branch 0"]
        for line in request.read_source().decode().splitlines():
            verb, _, rest = line.partition(" ")
            if verb == "fail":
                return sdk.ProcessJobResponse(error="told to fail")
            if verb in ("early", "inner"):
                made.append(request.job_params[rest])
            elif verb in _READS:
                made.append(self._text(request, verb, rest, answer.dependencies if verb == "read" else None))
            elif verb not in _JOBS:
                made.append(line)
        name = f"{request.stem}.scr.out"
        with open(request.product_path(name), "w") as file:
            file.write("\n".join(made))
        answer.products.append(sdk.JobProduct(name))
        return answer

    def _text(self, request, verb, rest, found=None):
        """Return the content of the files that a line names, and add the read files to `found`."""
        tops = [request.scan_folder] if _READS[verb] == "own" else request.scan_folders
        texts = {}
        for top in tops:
            start = os.path.join(top, "")
            for path in sorted(glob.glob(start + rest)) if "*" in rest else [start + rest]:
                if path.removeprefix(start).lower() not in texts and (text := self._read(path)) is not None:
                    texts[path.removeprefix(start).lower()] = text
                    if found is not None:
                        found.append(path)
        if not texts and found is not None and "*" not in rest:
            # The missing file is a dependency, so that the job runs again when the file appears.
            found.append(os.path.join(tops[0], rest))
        return " ".join(text for _name, text in sorted(texts.items())) or "(missing)"

    @staticmethod
    def _read(path):
        try:
            with open(path) as file:
                return file.read()
        except OSError:
            return None
