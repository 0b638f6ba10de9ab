"""The page that draws a demo project's products; the gateway that is opened for it is `web.web_demo`.

The page is files of this package and says nothing of the project: it is served without a token, to demo projects' gateways alone.
What it draws
it asks for through `/v1/connect` and `/v1/products`, with the token that stands behind the `#` of its address. No browser sends
that part, and the
page forgets it at once: the token is kept for the tab (`sessionStorage`), which, unlike a cookie, no server on another port ever
sees.

Tests: `tests/features/gateway/web/test_web_demo.py`.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from aptui.features.gateway.gateway_context import CONTEXT

MARKER = b"# aptui demo project:"
"""How the `aptui.yaml` of a demo project begins."""
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
"""{name in the address: (file, type)}: nothing else is served."""


def add_routes(app: web.Application) -> None:
    """Serve the page, if this is the gateway of a demo project."""
    if is_demo(app[CONTEXT].config.project_dir):
        app.router.add_get(PAGE + "{name:[a-z.]*}", _page)


def is_demo(folder: Path) -> bool:
    """Whether a project was made by `aptui demo`."""
    try:
        with (folder / "aptui.yaml").open("rb") as file:
            return file.read(len(MARKER)) == MARKER
    except OSError:
        return False


async def _page(request: web.Request) -> web.Response:
    if request.match_info["name"] not in _FILES:
        raise web.HTTPNotFound
    file, kind = _FILES[request.match_info["name"]]
    # `Host` is one of ours, or the guard had refused; 'self' alone means no WebSocket to older browsers.
    socket = f"{'wss' if request.secure else 'ws'}://{request.host}"
    headers = {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        f"connect-src 'self' {socket}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Cache-Control": "no-cache",
    }
    return web.Response(body=(_FOLDER / file).read_bytes(), content_type=kind, charset="utf-8", headers=headers)
