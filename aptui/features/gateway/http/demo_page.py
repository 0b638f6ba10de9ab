"""The page that draws a demo project's products; `web.web_screen` opens a gateway for it.

The page consists of files of this package and contains no data of the project, so the gateways of demo projects serve it without a
token. Its content comes from `/v1/connect` and `/v1/products`, with the token after the `#` of its address. Browsers do not send
that part. The page removes it at once and keeps the token for its tab (`sessionStorage`); unlike a cookie, no server on another
port receives it.

Tests: `tests/features/gateway/web/test_web_demo.py`.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from aptui.features.gateway.gateway_context import CONTEXT

MARKER = b"# aptui demo project:"
"""First line of a demo project's `aptui.yaml`."""
PAGE = "/demo/"
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


def add_routes(app: web.Application) -> None:
    """Serve the page if this is the gateway of a demo project."""
    if is_demo(app[CONTEXT].config.project_dir):
        app.router.add_get(PAGE + "{name:[a-z.]*}", _page)


def is_demo(folder: Path) -> bool:
    """Whether `aptui demo` made this project."""
    try:
        with (folder / "aptui.yaml").open("rb") as file:
            return file.read(len(MARKER)) == MARKER
    except OSError:
        return False


async def _page(request: web.Request) -> web.Response:
    if request.match_info["name"] not in _FILES:
        raise web.HTTPNotFound
    file, kind = _FILES[request.match_info["name"]]
    # The guard has checked `Host`. In older browsers, 'self' does not include WebSockets.
    socket = f"{'wss' if request.secure else 'ws'}://{request.host}"
    headers = {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        f"connect-src 'self' {socket}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Cache-Control": "no-cache",
    }
    return web.Response(body=(_FOLDER / file).read_bytes(), content_type=kind, charset="utf-8", headers=headers)
