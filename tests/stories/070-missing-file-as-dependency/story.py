"""If a run reads a path beside its source, that exact path is a dependency, even if the file does not exist.

This holds even if another scan folder has the same relative path.
"""

LOOKER = '''
import os
from aptui import sdk

class Looker:
    """Reads the named file in the source's own scan folder: for `*.early` while analysing, for `*.late` while processing."""

    name = "looker"
    version = "1"
    patterns = ("*.early", "*.late")

    def create_jobs(self, request):
        rel = request.read_source().decode()
        params = {"text": self._text(request, rel)} if request.source.endswith(".early") else {}
        jobs = [sdk.JobDescriptor("look", each.id, params=params) for each in request.platforms]
        return sdk.CreateJobsResponse(sdk.Result.SUCCESS, jobs, [sdk.SourceDependency(rel)])

    def process_job(self, request):
        rel = request.read_source().decode()
        text = request.job_params["text"] if request.source.endswith(".early") else self._text(request, rel)
        name = request.stem + ".out"
        with open(request.product_path(name), "w") as product:
            product.write(text)
        return sdk.ProcessJobResponse(sdk.Result.SUCCESS, [sdk.JobProduct(name)])

    @staticmethod
    def _text(request, rel):
        try:
            with open(os.path.join(request.scan_folder, rel)) as file:
                return file.read()
        except OSError:
            return "(none)"
'''
CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders: [{name: looker, uses: looker}]
"""
FILES = {"builders/looker.py": LOOKER, "assets/part.inc": "counts", "shared/a.early": "part.inc", "shared/b.late": "part.inc"}
BOTH = ("a.early:look", "b.late:look")


def play(story):
    story.run(*BOTH)
    assert story.texts() == {"a.out": "(none)", "b.out": "(none)"}
    story.run(analysed=0)

    for text in ("hidden", "another"):
        story.write("shared/part.inc", text)
        story.run(*BOTH)
        assert story.texts() == {"a.out": text, "b.out": text}
        assert "shared/part.inc" in story.reasons()["b.late:look"]
        story.run(analysed=0)

    story.run(analysed=0, is_full_scan=True)

    story.delete("shared/part.inc")
    story.run(*BOTH)
    assert story.texts() == {"a.out": "(none)", "b.out": "(none)"}

    story.delete("assets/part.inc")
    story.engine_run()
    story.write("shared/part.inc", "it counts now")
    story.engine_run()
    assert story.texts() == {"a.out": "it counts now", "b.out": "it counts now"}

    story.write("assets/part.inc", "hides it")
    story.engine_run()
    assert story.texts() == {"a.out": "it counts now", "b.out": "it counts now"}
    story.run(analysed=0)

    story.delete("shared/part.inc")
    story.config(CONFIG.replace("order: 0", "order: 20"))
    story.write("shared/c.late", "part.inc")
    story.engine_run()  # c.late depends on `shared/part.inc`, although no run of c.late has read that path
    assert story.texts() == {"a.out": "(none)", "b.out": "(none)", "c.out": "(none)"}
    story.config(CONFIG)
    story.engine_run()
    story.run(analysed=0)
    story.write("shared/part.inc", "hidden again")
    story.run(*BOTH, "c.late:look")
    assert set(story.texts().values()) == {"hidden again"}
