"""A Python builder in the project's builders/ folder is part of the fingerprint of its jobs."""

SOURCE = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result


class Shout:
    name = "shout"
    version = "1"
    patterns = ("*.say",)
    analysis_fingerprint = ""

    def create_jobs(self, request):
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("shout", platform.id) for platform in request.platforms])

    def process_job(self, request):
        text = request.read_source().decode().upper() + "{mark}"
        with open(request.product_path(request.stem + ".out"), "w") as file:
            file.write(text)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(request.stem + ".out")])
"""
CONFIG = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
FILES = {"assets/a.txt": "a", "assets/b.say": "hey", "assets/c.say": "ho", "builders/shout.py": SOURCE.format(mark="!")}


def play(story):
    story.run("a.txt:data", "b.say:shout", "c.say:shout", analysed=2)
    story.run(analysed=0)

    story.write("builders/shout.py", SOURCE.format(mark="?"))
    story.run("b.say:shout", "c.say:shout", analysed=2)
    assert story.texts() == {"a.txt": "a", "b.out": "HEY?", "c.out": "HO?"}

    story.touch("builders/shout.py")
    story.run(analysed=0)

    story.delete("builders/shout.py")
    story.run(analysed=0)
    assert story.texts() == {"a.txt": "a"}
