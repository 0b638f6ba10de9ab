"""Files whose names are not UTF-8, contain control characters or markup, or have the maximum length are sources like any other."""

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: upper, patterns: ["*.up"], command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"}
"""
NAMES = [
    b"caf\xe9.txt",
    b"\xff\xfe.txt",
    "NFC-\u00e9.txt".encode(),
    "NFD-e\u0301.txt".encode(),
    b"new\nline.txt",
    b"tab\tesc\x1b[31m.txt",
    b"[@click=app.quit]x[/].txt",
    b"-rf.txt",
    b"~.x.txt",
    b"%2e.txt",
    b" blank .txt",
    b"a..txt",
    b"CON.txt",
    "\u202etxt.exe.txt".encode(),
    b"n" * 251 + b".txt",
    b"d\xe9p/\xffile.txt",
]
COMMANDS = [b'quote\'d "$(touch pwned)".up', b"caf\xe9.up", b"-x.up", b"semi;colon & more.up"]
FILES = {b"assets/" + name: b"data of " + name for name in NAMES + COMMANDS}


def play(story):
    from aptui.core.paths import to_text

    ran = story.engine_run()
    expected = [to_text(name) + ":data" for name in NAMES] + [to_text(name) + ":upper" for name in COMMANDS]
    assert sorted(ran.runs) == sorted(expected)
    assert len(story.products()) == len(FILES)
    assert not any(path.name == "pwned" for path in story.root.rglob("pwned"))
    story.check_rest()
    story.run()

    story.write(b"assets/new\nline.up", "a command's product may not be called like this")
    story.run("new\nline.up:upper!")
    story.delete(b"assets/new\nline.up")
    story.run()

    story.write(b"assets/caf\xe9.txt", "edited")
    story.run(to_text(b"caf\xe9.txt") + ":data")
    story.delete(b"assets/\xff\xfe.txt")
    story.run()
    assert len(story.products()) == len(FILES) - 1
    story.delete(b"Cache/linux/d\xe9p")
    story.run(to_text(b"d\xe9p/\xffile.txt") + ":data")
    story.run()
