"""Without its database the cache is rebuilt; a damaged database is set aside and reported."""

FILES = {"assets/a.txt": "a", "assets/f/b.txt": "b"}


def play(story):
    story.run("a.txt:data", "f/b.txt:data")
    story.write("Cache/linux/f/b.txt", "wrong")

    story.delete("Cache/assetdb.sqlite")
    story.run("a.txt:data", "f/b.txt:data")
    story.run()

    for suffix in ("-wal", "-shm"):
        story.path(f"Cache/assetdb.sqlite{suffix}").unlink(missing_ok=True)
    story.write("Cache/assetdb.sqlite", b"SQLite format 3\0" + b"\xff" * 5000)
    ran = story.run("a.txt:data", "f/b.txt:data")
    assert any("damaged" in text for text in ran.messages)
    assert story.path("Cache/assetdb.sqlite.1.old").exists()

    for suffix in ("-wal", "-shm"):
        story.path(f"Cache/assetdb.sqlite{suffix}").unlink(missing_ok=True)
    story.write("Cache/assetdb.sqlite", "no database at all")
    story.run("a.txt:data", "f/b.txt:data")
    assert story.path("Cache/assetdb.sqlite.2.old").read_text() == "no database at all"
    story.run()
