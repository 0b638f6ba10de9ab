"""The demo page: its headers, and that a real browser draws every product and redraws changed ones."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import chromium
import pytest
from disk_project import Project
from PIL import Image
from tools import find_program, needs

from aptui.builders.files.texture_file import Texture, encode_ktx2
from aptui.demo import demo_assets, demo_project
from aptui.features.gateway import verbs
from aptui.features.gateway.access import tokens
from aptui.features.gateway.client import Client
from aptui.features.gateway.http import demo_page
from aptui.features.gateway.web import web_screen
from aptui.features.gateway.wire_codec import Scope
from aptui.features.gateway.wire_records import Shutdown
from aptui.link import places
from aptui.shared.errors import KnownError
from tests.features.gateway.live_served import Garden, garden
from tests.features.gateway.served import served

pytestmark = pytest.mark.real

needs_browser = needs("chromium")
SETTINGS = f"""{demo_project.MARKER}
name: Garden
platforms: {{linux: {{}}, server: {{}}}}
scan_folders: [{{name: game, path: assets}}]
builders:
  - {{name: icons, uses: image, patterns: ["*.png"], platforms: {{server: {{max_size: 4}}}}}}
  - {{name: sounds, uses: audio, patterns: ["*.wav"], params: {{format: flac}}}}
  - {{name: models, uses: model}}
  - {{name: texts, copy: ["*.txt", "*.ktx2"]}}
"""
RED, BLUE = (220, 20, 30), (20, 40, 230)


def png(colour: tuple[int, int, int], side: int = 8) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(stream, "PNG")
    return stream.getvalue()


def wav(loud: float) -> bytes:
    return demo_project._wav(demo_project._render_sound(0.1, lambda _t: loud))


def ktx2(colour: tuple[int, int, int]) -> bytes:
    return encode_ktx2(Texture("rgba8", 8, 8, [[bytes((*colour, 255)) * 64]], is_srgb=True))


def write_sources(root: Path) -> None:
    for name, data in {
        "icon.png": png(RED),
        "other.png": png(RED, 16),
        "tone.wav": wav(0.1),
        "note.txt": b"one\n",
        "sign.ktx2": ktx2(RED),
        **demo_assets.lamp_files(),
    }.items():
        path = root / "assets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Iterator[Garden]:
    root = tmp_path_factory.mktemp("demo")
    write_sources(root)
    with garden(root, SETTINGS) as opened:
        opened.served.context.draw_texture = verbs.draw_texture
        yield opened


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[chromium.Browser]:
    with chromium.browser(tmp_path_factory.mktemp("profile"), *chromium.SOFTWARE_GL) as opened:
        yield opened


def opened_page(here: Garden, browser: chromium.Browser, token: str | None = None) -> chromium.Page:
    page = browser.open(f"{here.url}{demo_page.PAGE}#token={token or here.served.token}")
    page.until("document.querySelectorAll('.card .facts:not(:empty)').length >= 4")
    return page


def card(path: str) -> str:
    return f"document.querySelector('[data-path=\"{path}\"]')"


def pixel(page: chromium.Page, path: str, x: float = 0.5, y: float = 0.5) -> tuple[int, ...]:
    """Return the color of a pixel of a card's canvas, once the card has a canvas."""
    page.until(f"{card(path)}?.querySelector('canvas') != null")
    box = page.evaluate(
        f"(() => {{ const b = {card(path)}.querySelector('canvas').getBoundingClientRect(); return [b.x, b.y, b.width, "
        f"b.height] }})()"
    )
    seen = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return seen.getpixel((int(box[0] + x * box[2]), int(box[1] + y * box[3])))  # type: ignore[return-value]


def until_pixel(page: chromium.Page, path: str, is_it) -> tuple[int, ...]:
    deadline = time.monotonic() + chromium.TIMEOUT_S
    while not is_it(seen := pixel(page, path)):
        assert time.monotonic() < deadline, f"{path} keeps the colour {seen}; {page.complaints}"
    return seen


# ----------------------------------------------------------------------------------------------------------- files of the page


def test_demo_page_needs_no_token_and_loads_nothing_from_other_sites(here):
    reply = here.served.get("/demo/", Authorization="")

    assert reply.status == 200
    policy = reply["Content-Security-Policy"] or ""
    assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
    assert f"connect-src 'self' ws://127.0.0.1:{here.served.port};" in policy
    assert reply["X-Content-Type-Options"] == "nosniff"
    assert reply["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("name", ["page.js", "link.js", "mesh.js", "sound.js", "words.js", "page.css"])
def test_demo_page_files_are_served_and_refer_to_this_site_only(here, name):
    reply = here.served.get(f"/demo/{name}", Authorization="")

    assert reply.status == 200
    assert b"https://" not in reply.body
    assert b"http://" not in reply.body.replace(b"http://www.w3.org/2000/svg", b"")


def test_demo_page_has_no_inline_script():
    text = (Path(web_screen.__file__).parent / "page" / "index.html").read_text()

    assert text.count("<script") == text.count('<script type="module" src=') == 1
    assert "style=" not in text
    assert " on" not in text.replace(" on ", "").partition("<main>")[0]


def test_texture_is_served_as_a_png_with_its_size_and_format(here):
    reply = here.served.get("/demo/textures/linux/sign.ktx2")
    picture = Image.open(io.BytesIO(reply.body))

    assert (reply.status, reply["Texture-Facts"]) == (200, "8 x 8, RGBA, sRGB")
    assert (picture.format, picture.size, picture.getpixel((4, 4))) == ("PNG", (8, 8), (*RED, 255))
    assert here.served.get("/demo/textures/linux/sign.ktx2", If_None_Match=reply["ETag"] or "").status == 304


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [("sign.ktx2", {"Authorization": ""}, 401), ("none.ktx2", {}, 404), ("note.txt", {}, 422)],
)
def test_texture_is_refused_without_a_token_and_if_it_cannot_be_drawn(here, path, authorization, status):
    assert here.served.get(f"/demo/textures/linux/{path}", **authorization).status == status


@pytest.mark.parametrize("path", ["/demo/..", "/demo/%2e%2e/demo.py", "/demo/demo.py", "/demo/index.html/", "/demo/page.js/x"])
def test_paths_outside_the_demo_page_return_404(here, path):
    assert here.served.get(path, Authorization="").status == 404


def test_product_request_needs_a_token_although_the_demo_page_needs_none(here):
    assert here.served.get("/v1/products/linux/icon.png", Authorization="").status == 401


def test_demo_page_exists_only_for_demo_projects(tmp_path):
    with served(Project(tmp_path, SETTINGS.replace("# aptui demo", "# my demo")), tmp_path / "t" / "tokens.json") as plain:
        assert plain.get("/demo/").status == 404


def test_demo_project_is_recognized_by_its_first_line(tmp_path):
    assert demo_project.MARKER.encode().startswith(demo_page.MARKER)
    assert not demo_page.is_demo(tmp_path)
    (tmp_path / "aptui.yaml").write_text(demo_project.MARKER)
    assert demo_page.is_demo(tmp_path)


# ----------------------------------------------------------------------------------------------------- the page in a browser


@needs_browser
def test_demo_page_works_after_a_reload_without_the_token_in_its_address(here, browser):
    page = opened_page(here, browser)
    assert page.evaluate("location.href") == f"{here.url}{demo_page.PAGE}"
    assert page.evaluate("document.cookie") == ""
    page.ask("Page.reload")
    page.until("document.getElementById('project').textContent === 'Garden'")

    assert page.complaints == []


@needs_browser
def test_demo_page_refuses_an_invalid_token_with_a_message(here, browser):
    page = browser.open(f"{here.url}{demo_page.PAGE}#token=wrong")

    page.until("document.getElementById('state').textContent.startsWith('this token is no longer valid')")
    assert page.evaluate("document.querySelectorAll('.card, li').length") == 0


@needs_browser
def test_demo_page_works_with_a_token_that_has_only_scope_read(here, browser):
    opened_page(here, browser, tokens.add(here.served.token_file, "reader", [Scope.READ]))


@needs_browser
def test_demo_page_redraws_a_picture_when_its_source_is_saved(here, browser, record_property):
    here.project.write("assets/icon.png", png(RED))
    page = opened_page(here, browser)
    until_pixel(page, "icon.png", lambda colour: colour == RED)
    changed = page.begin(
        f"""new Promise((done) => {{ const look = () => {{
          const canvas = {card("icon.png")}.querySelector('canvas');
          if (canvas.getContext('2d').getImageData(4, 4, 1, 1).data[2] > 200) done(performance.timeOrigin + performance.now());
          else requestAnimationFrame(look); }}; look(); }})"""
    )
    saved_s = time.time()
    here.project.write("assets/icon.png", png(BLUE))
    took_ms = page.value(changed) - saved_s * 1000

    assert pixel(page, "icon.png") == BLUE
    page.until(f"{card('icon.png')}.querySelector('.took').textContent.endsWith(' ms')")
    assert page.evaluate(f"{card('icon.png')}.classList.contains('is-fresh')")
    assert page.evaluate("document.querySelectorAll('.card.is-fresh').length") == 1
    assert page.complaints == []
    record_property("saved_to_pixel_ms", round(took_ms, 1))


@needs_browser
def test_demo_page_shows_a_decoded_texture_or_the_reason_for_not_showing_it(here, browser):
    page = opened_page(here, browser)
    page.set_view(1180, 2000, "light")
    until_pixel(page, "sign.ktx2", lambda colour: colour == RED)
    here.project.write("assets/sign.ktx2", ktx2(BLUE))
    until_pixel(page, "sign.ktx2", lambda colour: colour == BLUE)
    facts = page.evaluate(f"{card('sign.ktx2')}.querySelector('.facts').textContent")
    here.project.write("assets/sign.ktx2", ktx2(BLUE)[:-9])
    try:
        assert facts.startswith("8 x 8, RGBA, sRGB · ")
        page.until(f"{card('sign.ktx2')}.querySelector('.facts.wrong')?.textContent === 'the file ends too early'")
    finally:  # other tests use the same project and expect the red picture
        here.project.write("assets/sign.ktx2", ktx2(RED))
        until_pixel(page, "sign.ktx2", lambda colour: colour == RED)


def orange(colour: tuple[int, ...]) -> bool:
    return colour[0] > colour[1] + 25 > colour[2] + 50


def green(colour: tuple[int, ...]) -> bool:
    return colour[1] > colour[0] + 5


@needs_browser
@pytest.mark.parametrize("has_gl", [True, False])
def test_demo_page_redraws_a_saved_mesh_with_and_without_webgl(here, browser, tmp_path, has_gl):
    here.project.write("assets/models/lamp.gltf", demo_assets.lamp_files()[demo_assets.MODEL])
    if has_gl:
        _see_the_lamp_change(here, browser, "WebGL2RenderingContext")
    else:
        with chromium.browser(tmp_path / "profile", *chromium.NO_GL) as other:
            _see_the_lamp_change(here, other, "CanvasRenderingContext2D")


def _see_the_lamp_change(here: Garden, browser: chromium.Browser, kind: str) -> None:
    page = opened_page(here, browser)
    until_pixel(page, "models/lamp.glb", orange)
    canvas = f"{card('models/lamp.glb')}.querySelector('canvas')"
    assert page.evaluate(f"({canvas}.getContext('webgl2') ?? {canvas}.getContext('2d')).constructor.name") == kind
    model = demo_assets.lamp_files()[demo_assets.MODEL].decode()
    here.project.write("assets/models/lamp.gltf", model.replace(str(demo_assets.PAPER[0]), "0.2"))

    until_pixel(page, "models/lamp.glb", green)
    assert page.complaints == []


@needs_browser
def test_mesh_turns_unless_the_user_prefers_reduced_motion(here, browser):
    page = opened_page(here, browser)
    angle = (
        "import('/demo/mesh.js').then(({ Stage }) => { const old = Stage.prototype.draw; return new Promise((done) => { "
        "Stage.prototype.draw = function () { old.call(this); Stage.prototype.draw = old; done(this.angle); }; }); })"
    )
    assert page.evaluate(angle) != page.evaluate(angle)
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    page.until("matchMedia('(prefers-reduced-motion: reduce)').matches")
    page.evaluate(
        "import('/demo/mesh.js').then(({ Stage }) => { const old = Stage.prototype.draw; "
        "Stage.prototype.draw = function () { window.frames_drawn++; old.call(this); }; })"
    )

    page.until(
        "new Promise((done) => { let left = 5; window.frames_drawn = 0; "
        "const tick = () => (left-- ? requestAnimationFrame(tick) : done(window.frames_drawn === 0)); tick(); })"
    )


@needs_browser
def test_demo_page_redraws_a_saved_sound_and_plays_it(here, browser):
    here.project.write("assets/tone.wav", wav(0.1 + time.time() % 0.2))
    page = opened_page(here, browser)
    shape = f"{card('tone.flac')}.querySelector('canvas').toDataURL()"
    before = page.until(f"{card('tone.flac')}.querySelector('.facts').textContent && {shape}")
    here.project.write("assets/tone.wav", wav(0.9))
    page.until(f"{shape} !== {json.dumps(before)}")
    button = f"{card('tone.flac')}.querySelector('button')"
    icon = page.evaluate(f"{button}.innerHTML")
    page.evaluate(f"{button}.click()")
    playing = page.evaluate(f"{button}.innerHTML")
    page.evaluate(f"{button}.click()")

    assert playing != icon
    assert page.evaluate(f"{button}.innerHTML") == icon
    assert page.complaints == []


@needs_browser
def test_demo_page_highlights_changed_text_and_removes_deleted_sources(here, browser):
    page = opened_page(here, browser)
    here.project.write("assets/note.txt", f"{time.time_ns()}\n")
    page.until(f"{card('note.txt')}.classList.contains('is-fresh')")
    here.project.delete("assets/other.png")
    page.until(f"!{card('other.png')}")
    here.project.write("assets/other.png", png(BLUE, 16))

    page.until(f"!!{card('other.png')}?.querySelector('canvas')")
    assert page.complaints == []


@needs_browser
def test_demo_page_button_switches_to_products_of_the_other_platform(here, browser):
    page = opened_page(here, browser)
    assert "16 × 16" in page.until(f"{card('other.png')}.querySelector('.facts').textContent")
    page.evaluate("[...document.querySelectorAll('#platforms button')].find((each) => each.textContent === 'server').click()")

    page.until(f"{card('other.png')}?.querySelector('.facts').textContent.startsWith('4 × 4')")


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1180])
def test_demo_page_fits_the_window_and_uses_the_color_scheme_of_the_browser(here, browser, scheme, width):
    page = opened_page(here, browser)
    page.set_view(width, 800, scheme)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(ground) < 60) == (scheme == "dark")


# -------------------------------------------------------------------------------------------------- the command `demo --web`


def test_demo_web_command_prints_the_address_and_stops_its_engine_when_it_ends(tmp_path):
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "aptui", "demo", "--web", str(tmp_path / "project")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        try:
            url, _, token = process.stdout.readline().split()[-1].partition("#token=")
            with urlopen(url) as page:
                assert b"aptui demo" in page.read()
            with urlopen(Request(url.replace("/demo/", "/v1/protocol"), headers={"Authorization": f"Bearer {token}"})) as answer:
                assert json.load(answer)
            with Client.connect(url.removesuffix("/demo/"), token=token) as client, pytest.raises(KnownError, match="shutdown"):
                client.ask(Shutdown())
            assert token not in " ".join(Path(f"/proc/{process.pid}/cmdline").read_text().split("\0"))
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        assert not any(each.is_alive for each in places.engines())


_WORDS_ASKED = """
import { kindOf, sized, stateOf } from "./words.mjs";
const counts = [[0, 0, 0], [2, 1, 4], [0, 1, 0], [0, 0, 1], [0, 0, 4]];
const states = counts.map(([waiting, running, failed]) => stateOf({ waiting, running, failed }));
const kinds = ["a.webp", "b.tar.glb", "c.mp3", "d.txt", "png", "e.ktx2", "f.opus"].map((path) => kindOf({ path }));
console.log(JSON.stringify({ states, kinds, sizes: [0, 1023, 1024, 1536].map(sized) }));
"""


@needs("node")
def test_demo_page_says_everything_is_current_unless_jobs_are_pending_or_failed(tmp_path: Path) -> None:
    shutil.copy(Path(web_screen.__file__).parent / "page" / "words.js", tmp_path / "words.mjs")
    (tmp_path / "asked.mjs").write_text(_WORDS_ASKED)

    words = json.loads(subprocess.check_output([str(find_program("node")), "asked.mjs"], cwd=tmp_path, text=True, timeout=60))

    assert words["states"] == [
        ["everything is current", "good"],
        ["3 jobs to do", "busy"],
        ["1 job to do", "busy"],
        ["1 job failed, everything else is current", "wrong"],
        ["4 jobs failed, everything else is current", "wrong"],
    ]
    assert words["kinds"] == ["pictures", "meshes", "sounds", "others", "pictures", "textures", "sounds"]
    assert words["sizes"] == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB"]
