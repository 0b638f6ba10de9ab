"""An edit runs only the jobs of the edited source, and their reason names the edit."""

CONFIG = """
platforms: {server: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: upper, patterns: ["*.txt"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}
"""
FILES = {"assets/a.txt": "alpha", "assets/b.txt": "beta"}


def play(story):
    story.run(*(f"{name}.txt:{key}{on}" for name in "ab" for key in ("data", "upper") for on in ("", "@server")))

    story.write("assets/a.txt", "other")
    story.run("a.txt:data", "a.txt:upper", "a.txt:data@server", "a.txt:upper@server")

    assert story.texts()["a.out"] == "OTHER"
    assert "source 'a.txt' changed" in story.reasons()["a.txt:upper@server"]
