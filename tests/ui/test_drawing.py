"""Programs that draw run without a screen, and their frames are pictures of what they drew."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import octants as qd
from octants.ui import frame_output
from octants.ui.picture import Picture

pytest.importorskip("PIL")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OCTANTS_FRAMES", str(tmp_path / "frames"))
    monkeypatch.setattr(frame_output, "_windows", itertools.count())
    return tmp_path / "frames"


@pytest.fixture(autouse=True)
def initialised() -> None:
    qd.init(arch=qd.cpu, log_level="error")


def pixel(path: Path, x: int, y: int) -> tuple[int, ...]:
    """The colour of a pixel, with y upwards."""
    return tuple(int(part) for part in qd.tools.imread(str(path))[x, y])


def test_a_gui_stores_its_frames(folder: Path) -> None:
    gui = qd.GUI("shapes", (40, 20), background_color=0x010203)
    pixels = qd.Vector.field(3, qd.f32, shape=(40, 20))
    pixels.fill(0.0)
    pixels[3, 17] = [1.0, 0.0, 0.0]
    gui.set_image(pixels)
    gui.show()
    gui.circles(np.array([[0.5, 0.5], [0.1, 0.1]]), radius=2, color=0x00FF00)
    gui.show()
    first, second = sorted(folder.glob("*.png"))
    assert pixel(first, 3, 17) == (255, 0, 0)
    assert pixel(first, 3, 2) == (0, 0, 0)
    assert pixel(second, 20, 10) == pixel(second, 4, 2) == (0, 255, 0)
    assert pixel(second, 35, 17) == (1, 2, 3)


def test_shapes_are_where_they_should_be(tmp_path: Path) -> None:
    gui = qd.ui.GUI("shapes", 100)
    gui.triangle((0, 0), (0.3, 0), (0, 0.3), color=0xFF0000)
    gui.line((0.5, 0.9), (0.9, 0.9), radius=2, color=0x0000FF)
    gui.rect((0.6, 0.3), (0.9, 0.6), color=0xFFFFFF)
    gui.text("hello", (0.05, 0.8))
    gui.arrow((0.4, 0.4), (0.1, 0.0))
    image = gui.get_image()
    assert image.shape == (100, 100, 3) and image.dtype == np.float32
    gui.show(str(tmp_path / "shapes.png"))
    assert pixel(tmp_path / "shapes.png", 5, 5) == (255, 0, 0)
    assert pixel(tmp_path / "shapes.png", 70, 90) == (0, 0, 255)
    assert pixel(tmp_path / "shapes.png", 75, 45) == (0, 0, 0)
    assert pixel(tmp_path / "shapes.png", 75, 40)[0] == 0
    assert image[60, 45].tolist() == [1, 1, 1]  # the left side of the rectangle
    assert image[3:30, 65:80].max() == 1  # the text


def test_palettes_and_fields_as_places() -> None:
    x = qd.Vector.field(2, qd.f32, shape=2)
    x.from_numpy(np.array([[0.25, 0.5], [0.75, 0.5]], np.float32))
    kind = qd.field(qd.i32, shape=2)
    kind[1] = 1
    gui = qd.GUI("palette", (40, 20))
    gui.circles(x, radius=3, palette=[0xFF0000, 0x00FF00], palette_indices=kind)
    image = gui.get_image()
    assert image[10, 10].tolist() == [1, 0, 0]
    assert image[30, 10].tolist() == [0, 1, 0]


def test_a_window_with_a_canvas(folder: Path) -> None:
    window = qd.ui.Window("canvas", (60, 30), vsync=True)
    canvas = window.get_canvas()
    canvas.set_background_color((0.0, 0.0, 1.0))
    colours = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    canvas.circles(np.array([[0.25, 0.5], [0.75, 0.5]]), radius=0.1, per_vertex_color=colours)
    canvas.triangles(np.array([[0.0, 0.0], [0.2, 0.0], [0.0, 0.4]]), color=(1.0, 1.0, 1.0))
    canvas.lines(np.array([[0.5, 0.0], [0.5, 1.0]]), width=0.1, color=(1.0, 1.0, 0.0))
    buffer = window.get_image_buffer_as_numpy()
    assert buffer.shape == (60, 30, 4)
    window.show()
    path = folder / "000000.png"
    assert pixel(path, 15, 15) == (255, 0, 0)
    assert pixel(path, 45, 15) == (0, 255, 0)
    assert pixel(path, 2, 2) == (255, 255, 255)
    assert pixel(path, 30, 25) == (255, 255, 0)
    assert pixel(path, 55, 25) == (0, 0, 255)


@pytest.mark.parametrize("mode", list(qd.ui.ProjectionMode))
def test_a_scene_hides_what_is_behind(mode: qd.ui.ProjectionMode, tmp_path: Path) -> None:
    window = qd.ui.Window("scene", (60, 60))
    scene, canvas, camera = window.get_scene(), window.get_canvas(), qd.ui.Camera()
    camera.position(0, 0, 3)
    camera.lookat(0, 0, 0)
    camera.projection_mode(mode)
    scene.set_camera(camera)
    scene.ambient_light((1.0, 1.0, 1.0))
    square = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], float) * 0.8
    scene.mesh(square, indices=np.array([0, 1, 2, 0, 2, 3]), color=(0.0, 0.0, 1.0))
    places = np.array([[0.3, 0, 1], [-0.3, 0, -1]], float)
    scene.particles(places, radius=0.1, color=(1.0, 0.0, 0.0))
    scene.lines(np.array([[0, -0.5, 1], [0, 0.5, 1]], float), width=2, color=(0.0, 1.0, 0.0))
    canvas.scene(scene)
    window.save_image(str(tmp_path / "scene.png"))
    seen, _, _ = camera.project(places, 1.0)
    near, far = (tuple(int(part) for part in place * 60) for place in seen)
    assert pixel(tmp_path / "scene.png", *near) == (255, 0, 0)
    assert pixel(tmp_path / "scene.png", *far) == (0, 0, 255)
    assert pixel(tmp_path / "scene.png", 30, 30) == (0, 255, 0)
    assert not scene.shapes


def test_instances_of_a_mesh() -> None:
    scene = qd.ui.Scene()
    moved = np.eye(4)[None].repeat(2, 0)
    moved[1, 3, :3] = [1.0, 0.0, 0.0]
    corners = np.eye(3)
    scene.mesh_instance(corners, transforms=moved)
    np.testing.assert_array_equal(scene.shapes[0].corners[0], corners)
    np.testing.assert_array_equal(scene.shapes[1].corners[0], corners + [1.0, 0.0, 0.0])


def test_frames_that_no_file_takes_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCTANTS_FRAMES", raising=False)
    monkeypatch.setattr(Picture, "_drawn", lambda self: pytest.fail("drawn"))
    gui, window = qd.GUI("x", 8), qd.ui.Window("y", (8, 8))
    gui.circles(np.zeros((3, 2)))
    gui.show()
    scene = window.get_scene()
    scene.particles(np.zeros((3, 3)), radius=1.0)
    window.get_canvas().scene(scene)
    window.show()
    assert not scene.shapes


def test_a_picture_keeps_what_it_was_given() -> None:
    gui = qd.GUI("x", (8, 4))
    image, positions = np.full((8, 4), 0.5), np.array([[0.5, 0.5]])
    gui.set_image(image)
    gui.circles(positions, radius=1, color=0xFF0000)
    image[:], positions[:] = 1.0, 0.0
    drawn = gui.get_image()
    assert drawn[0, 0].tolist() == pytest.approx([128 / 255] * 3)
    assert drawn[4, 2].tolist() == [1, 0, 0]


def test_as_many_radii_and_colours_as_places() -> None:
    gui = qd.GUI("x", 8)
    with pytest.raises(ValueError, match="2 values, but 3 vertices"):
        gui.circles(np.zeros((3, 2)), radius=[1, 2])
    with pytest.raises(ValueError, match="shape"):
        gui.set_image(np.zeros(3))


def test_colours_as_one_number_and_as_three() -> None:
    assert qd.rgb_to_hex([1.0, 0.5, -1.0]) == 0xFF7F00
    grey = qd.rgb_to_hex([np.array([0.0, 1.0])] * 3)
    assert grey.tolist() == [0, 0xFFFFFF]
    assert qd.hex_to_rgb(0xFF0033) == (1.0, 0.0, 0.2)


def test_nobody_is_there() -> None:
    gui = qd.GUI("events", show_gui=False)
    assert list(gui.get_events()) == [] and not gui.get_event(qd.GUI.ESCAPE)
    assert not gui.is_pressed(qd.GUI.LEFT) and gui.get_cursor_pos() == (0.5, 0.5)
    assert gui.slider("speed", 1, 5).value == 1
    window = qd.ui.Window("events", (10, 10))
    assert not window.get_event(qd.ui.PRESS) and not window.is_pressed(qd.ui.SPACE)
    with window.get_gui().sub_window("tools", 0, 0, 1, 1) as tools:
        assert tools.slider_float("speed", 0.5, 0, 1) == 0.5
        assert not tools.button("reset")


@pytest.mark.parametrize("make", [lambda: qd.GUI("x", 8), lambda: qd.ui.Window("x", (8, 8))])
def test_a_window_closes_after_as_many_frames_as_asked_for(
    make: type, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("OCTANTS_FRAME_COUNT", "3")
    window = make()
    shown = 0
    while window.running:
        window.show()
        shown += 1
    assert shown == 3 == len(list(folder.glob("*.png")))


def test_a_second_window_has_a_folder_of_its_own(folder: Path) -> None:
    qd.GUI("one", 8).show()
    qd.GUI("two", 8).show()
    assert [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.png"))] == [
        "000000.png",
        "1/000000.png",
    ]


def test_a_wrong_number_of_frames_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTANTS_FRAME_COUNT", "many")
    with pytest.raises(qd.OctantsRuntimeError, match="OCTANTS_FRAME_COUNT"):
        qd.GUI("x", 8)


def test_one_warning_says_how_to_get_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCTANTS_FRAMES", raising=False)
    monkeypatch.setattr(frame_output, "_warned", set())
    with pytest.warns(qd.OctantsWarning, match="OCTANTS_FRAMES=folder"):
        gui = qd.GUI("x", 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qd.ui.Window("y", (8, 8)).show()
        gui.show()


def test_images_go_to_files_and_back(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    path = str(tmp_path / "image.png")
    qd.tools.imwrite(image, path)
    np.testing.assert_array_equal(qd.tools.imread(path), image)
    assert qd.tools.imread(path, channels=1).shape == (5, 4, 1)
    assert qd.tools.imresize(image, 10).shape == (10, 8, 3)
    grey = qd.field(qd.f32, shape=(6, 3))
    grey.fill(0.5)
    qd.tools.imwrite(grey, path)
    np.testing.assert_array_equal(qd.tools.imread(path), np.full((6, 3, 3), 128))
    qd.tools.imwrite(np.eye(2, dtype=bool), path)
    np.testing.assert_array_equal(qd.tools.imread(path)[..., 0], np.eye(2) * 255)
    with pytest.raises(ValueError, match="uint8"):  # not black, as a part of 2**31 - 1 would be
        qd.tools.imwrite(np.full((2, 2), 200, np.int32), path)
    with pytest.raises(ValueError, match="shape"):
        qd.tools.imwrite(np.zeros(3), path)
    with pytest.raises(ValueError, match="channels"):
        qd.tools.imread(path, channels=2)


def test_a_video_has_all_frames(tmp_path: Path) -> None:
    from PIL import Image

    video = qd.tools.VideoManager(str(tmp_path), video_filename="film", width=8, height=6)
    with pytest.raises(qd.OctantsRuntimeError, match="no frames"):
        video.make_video()
    for shade in (0.0, 0.5, 1.0):
        video.write_frame(np.full((4, 3), shade, np.float32))
    video.make_video(mp4=False)
    with Image.open(video.get_output_filename(".gif")) as film:
        assert film.n_frames == 3 and film.size == (8, 6)
    video.clean_frames()
    assert not list(Path(video.get_frame_directory()).iterdir())


def test_mp4_needs_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    video = qd.tools.VideoManager(str(tmp_path))
    video.write_frame(np.zeros((4, 4), np.float32))
    with pytest.raises(qd.OctantsRuntimeError, match="ffmpeg"):
        video.make_video(gif=False)


def test_a_mesh_as_text(tmp_path: Path) -> None:
    writer = qd.tools.PLYWriter(num_vertices=3, num_faces=1, comment="a triangle")
    with pytest.raises(ValueError, match="positions"):
        writer.export(str(tmp_path / "mesh.ply"))
    x, y, z = np.eye(3)
    writer.add_vertex_pos(x, y, z)
    writer.add_vertex_id()
    writer.add_faces(np.array([0, 1, 2]))
    writer.add_face_piece()
    writer.export_frame_ascii(7, str(tmp_path / "mesh.ply"))
    assert (tmp_path / "mesh_000007.ply").read_text() == (
        "ply\nformat ascii 1.0\ncomment a triangle\nelement vertex 3\nproperty float x\n"
        "property float y\nproperty float z\nproperty int id\nelement face 1\n"
        "property list uchar int vertex_indices\nproperty int piece\nend_header\n"
        "1.0 0.0 0.0 0\n0.0 1.0 0.0 1\n0.0 0.0 1.0 2\n3 0 1 2 1\n"
    )


def test_a_mesh_in_binary(tmp_path: Path) -> None:
    writer = qd.tools.PLYWriter(num_vertices=2)
    writer.add_vertex_pos([1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
    with pytest.raises(ValueError, match="3 numbers"):
        writer.add_vertex_channel("mass", "float", [1, 2, 3])
    with pytest.warns(qd.OctantsWarning, match="no type 'half'"):
        writer.add_vertex_channel("mass", "half", [1, 2])
    writer.export(str(tmp_path / "points.ply"))
    content = (tmp_path / "points.ply").read_bytes()
    numbers = np.frombuffer(content.partition(b"end_header\n")[2], "<f4")
    assert numbers.tolist() == [1, 3, 5, 2, 4, 6]


def test_a_grid_for_vtk(tmp_path: Path) -> None:
    qd.init(arch=qd.cpu)
    grid = qd.field(qd.f32, shape=(2, 3))
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    grid.from_numpy(values)
    for index, given in enumerate((grid, values, values.astype(np.float64)[:, :, None])):
        name = qd.tools.write_vtk(given, str(tmp_path / f"grid{index}"))
        content = Path(name).read_bytes()
        head, data = content.split(b"   _", 1)
        width = 4 if index < 2 else 8
        assert name.endswith(f"grid{index}.vtr") and f"Float{8 * width}".encode() in head
        assert b'WholeExtent="0 1 0 2 0 0"' in head and b'Name="y" format="ascii">0 1 2<' in head
        assert int.from_bytes(data[:8], "little") == 6 * width
        found = np.frombuffer(data[8 : 8 + 6 * width], f"<f{width}")
        assert found.tolist() == [0, 3, 1, 4, 2, 5]
        assert ET.fromstring(head + b"</AppendedData></VTKFile>").tag == "VTKFile"
    with pytest.raises(ValueError, match="have 1"):
        qd.tools.write_vtk(np.zeros(3), "line")
