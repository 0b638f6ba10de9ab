import pytest

from aptui.builders.common import SourceError
from aptui.builders.files.mesh_file import list_libraries, list_textures, material_names, outline_obj, with_textures

CUBE = (
    "mtllib a.mtl\nv 0 0 0\nv 1 0 0 # corner\nv 1 1 0 1.0\nvt 0 0\nvn 0 0 1\nusemtl red brick\nf 1/1/1 2/1/1 3//1\n"
    "f -1 -2 -3 # back\n"
)


def test_outline_of_an_obj_counts_elements_and_lists_material_names():
    outline = outline_obj(CUBE)

    assert outline.counts == {"v": 3, "vt": 1, "vn": 1}
    assert (outline.face_count, outline.libraries, outline.materials) == (2, ["a.mtl"], {"red brick": 7})


def test_obj_face_may_refer_to_later_vertices_and_span_several_lines():
    assert outline_obj("f 1 2 \\\n3\nv 0 0 0\r\nv 1 0 0\r\nv 1 \\\r\n1 0\r\n").face_count == 1


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("v 1 2\n", 1, "'v' needs 3 numbers, but has 2"),
        ("\n\nv 1 2 x\n", 3, "'v' has 'x', which is not a number"),
        ("v 1 2 nan\n", 1, "'v' has 'nan', which is not a number"),
        ("vn 1 2\n", 1, "'vn' needs 3 numbers, but has 2"),
        ("v 0 0 0\nf 1 1\n", 2, "a face needs at least 3 corners, but this face has 2"),
        ("v 0 0 0\nf 1 1 2\n", 2, "the face refers to number 2 of the vertices, but the file has only 1"),
        ("v 0 0 0\nf 1 1 0\n", 2, "the face refers to number 0 of the vertices, but these numbers begin at 1"),
        ("vt\n", 1, "'vt' needs 1 number, but has 0"),
        ("v 0 0 0\nf 1 1 -2\n", 2, "the face refers to number -2 of the vertices, but the file defines only 1 before the face"),
        ("v 0 0 0\nf 1/1 1 1\n", 2, "the face refers to number 1 of the texture coordinates, but the file has only 0"),
        ("v 0 0 0\nf 1//3 1 1\n", 2, "the face refers to number 3 of the normals, but the file has only 0"),
        ("v 0 0 0\nf 1 1 one\n", 2, "'one' is not a valid corner of a face; write corners like 1, 1/2 or 1/2/3"),
        ("v 0 0 0\nf 1/// 1 1\n", 2, "'1///' is not a valid corner of a face; write corners like 1, 1/2 or 1/2/3"),
        ("v 0 0 0\nf 1 \\\n 1 5\n", 2, "the face refers to number 5 of the vertices, but the file has only 1"),
    ],
)
def test_error_for_a_broken_obj_names_the_line(text, line, what):
    with pytest.raises(SourceError) as caught:
        outline_obj(text)

    assert (caught.value.place, str(caught.value)) == (str(line), what)


def test_mtllib_line_may_list_several_names_and_names_with_blanks():
    assert list_libraries("mtllib a.mtl b/c.MTL\n mtllib my old file.mtl\nmtllib odd.mat\n# mtllib no.mtl\n") == [
        "a.mtl",
        "b/c.MTL",
        "my old file.mtl",
        "odd.mat",
    ]


MATERIALS = r"""
newmtl red brick
Kd 1 0 0
map_Kd -s 1 1 1 -o 0.5 tex\wall one.png
map_bump -bm 0.3 -clamp on wall_n.png
refl -type sphere -mm 0 1 sky.png
newmtl plain
# map_Kd none.png
disp wall.png
"""


def test_texture_name_in_an_mtl_is_found_behind_its_options():
    assert list_textures(MATERIALS) == [r"tex\wall one.png", "wall_n.png", "sky.png", "wall.png"]
    assert material_names(MATERIALS) == {"red brick", "plain"}


def test_textures_in_an_mtl_can_be_renamed():
    renamed = with_textures(MATERIALS, str.upper)

    assert r"map_Kd TEX\WALL ONE.PNG" in renamed
    assert "Kd 1 0 0" in renamed
