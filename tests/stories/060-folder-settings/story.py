"""A folder's `.aptui.yaml` adjusts the builders below it.

Folders inherit, the nearest setting wins, and a change runs only the jobs that it affects.
"""

SHOUT = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result


class Shout:
    name = "shout"
    version = "1"
    patterns = ("*.say",)
    analysis_fingerprint = ""

    def create_jobs(self, request):
        named = [(key, item.id) for item in request.platforms for key in request.params_for(item.id).get("jobs", ["shout"])]
        jobs = [JobDescriptor(*job) for job in named]
        return CreateJobsResponse(Result.SUCCESS, jobs)

    def process_job(self, request):
        name = f"{request.stem}.{request.job_key}"
        with open(request.product_path(name), "w") as file:
            file.write(request.read_source().decode().upper() + request.params.get("mark", "!"))
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(name)])
"""
CONFIG = """
platforms: {server: {tags: [headless]}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - name: upper
    patterns: ["*.up"]
    command: "printf '%s' {params.mark} | cat {source} - > {products_dir}/{stem}.out"
    params: {mark: "."}
    platforms: {server: {mark: ","}}
"""
FILES = {
    "builders/shout.py": SHOUT,
    "assets/a.say": "a",
    "assets/one/b.say": "b",
    "assets/one/c.txt": "c",
    "assets/one/deep/d.say": "d",
    "assets/one/e.up": "e",
}
BELOW = ("one/b.say:shout", "one/b.say:shout@server", "one/deep/d.say:shout", "one/deep/d.say:shout@server")


def play(story):
    story.run(
        "a.say:shout", "a.say:shout@server", *BELOW, "one/c.txt:data", "one/c.txt:data@server", "one/e.up:upper",
        "one/e.up:upper@server"
    )  # fmt: skip
    first = story.products()
    story.run(analysed=0)

    story.write("assets/one/.aptui.yaml", "builders:\n  shout: {params: {mark: '?'}}\n")
    story.run(*BELOW, analysed=2)
    assert story.reasons()["one/b.say:shout"] == "folder setting 'one/.aptui.yaml:shout' is new"
    assert {
        name: text[-1] for name, text in story.texts().items() if name.endswith(".shout") and not name.startswith("server")
    } == {
        "a.shout": "!",
        "one/b.shout": "?",
        "one/deep/d.shout": "?",
    }
    story.run(analysed=0)

    story.write("assets/one/deep/.aptui.yaml", "# the nearer wins\nbuilders: {shout: {params: {mark: '~', jobs: [main]}}}\n")
    story.run("one/deep/d.say:main", "one/deep/d.say:main@server", analysed=1)
    story.write("assets/one/.aptui.yaml", "builders:\n  # a comment\n  shout: {params: {mark: '?'}}\n")
    story.run(analysed=0)

    story.write(
        "assets/one/.aptui.yaml", "builders:\n  upper: {platforms: {headless: {mark: ';'}}}\n  data: {platforms: {server: skip}}\n"
    )
    story.run("one/b.say:shout", "one/b.say:shout@server", "one/e.up:upper@server", analysed=1)
    assert story.texts()["server/one/e.out"] == "e;"
    assert story.texts()["one/e.out"] == "e."
    assert "server/one/c.txt" not in story.texts()

    story.delete("assets/one/.aptui.yaml")
    story.run("one/c.txt:data@server", "one/e.up:upper@server", analysed=0)
    story.delete("assets/one/deep/.aptui.yaml")
    story.run("one/deep/d.say:shout", "one/deep/d.say:shout@server", analysed=1)
    assert story.products() == first
