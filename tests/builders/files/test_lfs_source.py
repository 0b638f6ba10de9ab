import pytest

from aptui.builders.audio_builder import AudioBuilder
from aptui.builders.files.lfs_source import is_pointer, is_pointer_file
from aptui.builders.image_builder import ImageBuilder
from aptui.builders.json_builder import JsonBuilder

BUILDER = JsonBuilder

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"


@pytest.mark.parametrize(("kind", "source"), [(JsonBuilder, "a.json"), (ImageBuilder, "a.png"), (AudioBuilder, "a.wav")])
def test_source_that_is_an_lfs_pointer_fails_and_suggests_git_lfs_pull(bench, kind, source):
    bench.builder = kind()

    assert (
        bench.fail(bench.write(source, POINTER))
        == f"{source}: the file is only a Git LFS pointer; run `git lfs pull` to download the content"
    )


@pytest.mark.parametrize("data", [b"", b"version 1", POINTER[:44], POINTER + b"x" * 1024])
def test_incomplete_or_oversized_pointer_file_is_not_an_lfs_pointer(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)

    assert not is_pointer(data)
    assert not is_pointer_file(str(path))
