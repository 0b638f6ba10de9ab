"""Ignored files and folders, by glob and regex, are not sources; adding or removing a rule takes effect immediately."""

TEXT = """
scan_folders: [{{name: game, path: assets}}]
ignore: {rules}
builders: [{{name: data, copy: ["*"]}}]
"""
RULES = """["*.tmp", ".git/*", "raw/**/old", {regex: '(.*/)?_backup_\\d+'}]"""
CONFIG = TEXT.format(rules=RULES)
FILES = {
    "assets/a.txt": "a",
    "assets/a.tmp": "",
    "assets/deep/b.TMP": "",
    "assets/.git/config": "",
    "assets/raw/x/old/c.txt": "c",
    "assets/raw/x/new/d.txt": "d",
    "assets/f/_backup_12/e.txt": "e",
    "assets/f/.a.txt.swp": "",
}


def play(story):
    story.run("a.txt:data", "raw/x/new/d.txt:data")
    story.write("assets/new.tmp", "")
    story.run()

    story.config(TEXT.format(rules="[]"))
    story.run("a.tmp:data", "deep/b.TMP:data", "raw/x/old/c.txt:data", "f/_backup_12/e.txt:data", "new.tmp:data")
    assert not any(".git" in name for name in story.texts())

    story.config(TEXT.format(rules=RULES))
    story.run()
    assert sorted(story.texts()) == ["a.txt", "raw/x/new/d.txt"]
    story.run()
