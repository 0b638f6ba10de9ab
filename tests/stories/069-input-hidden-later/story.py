"""A stored result is not used after another file overrides a file that the run had read."""

SEARCHER = """
import os
from aptui import sdk

class Searcher:
    name = "searcher"
    version = "1"
    patterns = ("*.find", "*.hidden")

    def create_jobs(self, request):
        return sdk.CreateJobsResponse(sdk.Result.SUCCESS, [sdk.JobDescriptor("find", each.id) for each in request.platforms])

    def process_job(self, request):
        rel = request.read_source().decode()
        places = [os.path.join(folder, rel) for folder in request.scan_folders]
        found = [path for path in places if os.path.exists(path)] or places
        path = found[-1] if request.source.endswith(".hidden") else found[0]
        name = request.stem + ".out"
        with open(path) as file, open(request.product_path(name), "w") as product:
            product.write(file.read())
        return sdk.ProcessJobResponse(sdk.Result.SUCCESS, [sdk.JobProduct(name)], dependencies=[path])
"""
CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}, {name: shared, path: shared, order: 10}]
builders: [{name: searcher, uses: searcher}]
"""
FILES = {"builders/searcher.py": SEARCHER, "assets/a.find": "part.inc", "assets/b.hidden": "part.inc", "shared/part.inc": "of all"}
BOTH = ("a.find:find", "b.hidden:find")


def play(story):
    story.run(*BOTH)
    assert story.texts() == {"a.out": "of all", "b.out": "of all"}

    story.write("assets/part.inc", "own")
    story.engine_run()
    assert story.texts() == {"a.out": "own", "b.out": "of all"}
    story.run(analysed=0)

    story.delete("assets/part.inc")
    story.engine_run()
    assert story.texts() == {"a.out": "of all", "b.out": "of all"}

    story.write("assets/part.inc", "another")
    story.engine_run()
    assert story.texts() == {"a.out": "another", "b.out": "of all"}
    story.run(analysed=0)

    # Jobs open `part.inc` by this exact name, so they do not find `assets/PART.inc` and read `shared/part.inc` again.
    story.move("assets/part.inc", "assets/PART.inc")
    story.engine_run()
    assert story.texts() == {"a.out": "of all", "b.out": "of all"}
    story.run(analysed=0)
