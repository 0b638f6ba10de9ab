"""The page that draws a demo project's products; `web.web_screen` opens a gateway for it.

The page consists of files of this package and contains no data of the project, so the gateways of demo projects serve it without a
token. The page loads the project's data from `/v1/connect` and `/v1/products` with the token after the `#` of its address. Browsers
do not send the text after `#`. The page removes the token from the address at once and stores it for its browser tab
(`sessionStorage`). Unlike a cookie, the token is not sent to servers on other ports.

Tests: `tests/features/gateway/web/test_web_demo.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from aptui.features.gateway.access.guard import require
from aptui.features.gateway.gateway_context import CONTEXT, context_of
from aptui.features.gateway.http.http_files import read_asked_path
from aptui.features.gateway.http.sending import PRODUCT_OPENER, send_page, status_of
from aptui.features.gateway.wire_codec import Scope

MARKER = b"# aptui demo project:"
"""First line of a demo project's `aptui.yaml`."""
PAGE = "/demo/"
TEXTURES = "/demo/textures"
_FOLDER = Path(__file__).parents[1] / "web" / "page"
_FILES = {
    "": ("index.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "link.js": ("link.js", "text/javascript"),
    "mesh.js": ("mesh.js", "text/javascript"),
    "sound.js": ("sound.js", "text/javascript"),
    "words.js": ("words.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}
"""{name in the address: (file, media type)} of all served files."""
_DRAWING = asyncio.Semaphore(2)
"""Maximum number of textures that are drawn at the same time; each drawing needs a process."""


def add_routes(app: web.Application) -> None:
    """Serve the page if this is the gateway of a demo project."""
    if is_demo(app[CONTEXT].config.project_dir):
        app.router.add_get(PAGE + "{name:[a-z.]*}", _page)
        app.router.add_get(TEXTURES + "/{path:.+}", _texture)


def is_demo(folder: Path) -> bool:
    """Whether `aptui demo` made this project."""
    try:
        with (folder / "aptui.yaml").open("rb") as file:
            return file.read(len(MARKER)) == MARKER
    except OSError:
        return False


async def _texture(request: web.Request) -> web.Response:
    """Return a texture as PNG, which browsers show; the header `Texture-Facts` has the size and format of the texture."""
    require(request, Scope.READ)
    context, name = context_of(request), read_asked_path(request, TEXTURES).lower()
    taken = await request.config_dict[PRODUCT_OPENER].open(name)
    if taken is None or context.draw_texture is None:
        raise web.HTTPNotFound(text=f"'{name}' is not a texture\n")
    try:
        etag = taken.product.digest.hex()
        if (status := status_of(request, etag, taken.modified_s)) != 200:
            return web.Response(status=status)
        async with _DRAWING:
            drawn = await asyncio.to_thread(context.draw_texture, f"/proc/self/fd/{taken.descriptor}", name)
    finally:
        taken.close()
    if isinstance(drawn, str):
        raise web.HTTPUnprocessableEntity(text=drawn)
    facts, picture = drawn
    return web.Response(body=picture, content_type="image/png", headers={"ETag": f'"{etag}"', "Texture-Facts": facts})


async def _page(request: web.Request) -> web.Response:
    if request.match_info["name"] not in _FILES:
        raise web.HTTPNotFound
    file, kind = _FILES[request.match_info["name"]]
    # The policy lists the WebSocket's address, because 'self' does not include WebSockets in older browsers. `request.host` is safe
    # to use, because the guard has checked the header `Host`.
    socket = f"{'wss' if request.secure else 'ws'}://{request.host}"
    return send_page(_FOLDER / file, kind, f"style-src 'self'; img-src 'self' blob: data:; connect-src 'self' {socket}")
