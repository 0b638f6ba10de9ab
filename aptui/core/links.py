"""Normalises declared product dependencies; `store.db.product_links` finds the products that match the dependencies.

The rules are those of O3DE's `PathDependencyManager.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterable

from aptui.core.model import LinkKind, ProductLink
from aptui.core.paths import is_below, normalize

IMAGE_EXTENSIONS = (".tif", ".tiff", ".bmp", ".gif", ".jpg", ".jpeg", ".tga", ".png")
"""A product path with one of these extensions names a source, because artists write the name of an image, not of its product."""
EXCLUSION = "!"
"""First character of a path that excludes products from the matches of a pattern."""
LOAD_MASK = 0xF
"""The bits of a dependency's flags that say when the runtime loads the dependency."""
PRE_LOAD = 0
"""Value of the bits `LOAD_MASK` if the dependency is loaded before the product is ready."""
_LONGEST = 4_096
"""Maximum length of a path in characters; no system has longer paths (limits.h: PATH_MAX)."""


def path_link(path: str, kind: LinkKind, flags: int, root: str = "") -> ProductLink:
    """Return the link for a path that a builder declared.

    Args:
        path: relative to the scan folders, or to the folder of the platform; the path of a source may be absolute.
        kind: SOURCE_FILE or PRODUCT_FILE.
        flags: the flags of the dependency, as they are stored.
        root: absolute path of a scan folder, below which sources are named by their relative path.

    Raises:
        ValueError: the path cannot name a source or a product; the text gives the reason.
    """
    is_exclusion = path.startswith(EXCLUSION)
    found: str = normalize(path.removeprefix(EXCLUSION))
    if root and is_below(found, root):
        found = found[len(root) + 1 :]
    if not found:
        raise ValueError("is empty")
    if len(found) > _LONGEST:
        raise ValueError(f"has more than {_LONGEST} characters")
    if found == ".." or found.startswith("../"):
        raise ValueError("leads out of its folder with '..'")
    if found.startswith(":"):  # a colon marks an exclusion in O3DE's tables
        raise ValueError("begins with ':'")
    if kind is LinkKind.PRODUCT_FILE and found.lower().endswith(IMAGE_EXTENSIONS):
        kind = LinkKind.SOURCE_FILE
    if kind is LinkKind.PRODUCT_FILE and found.startswith("/"):
        raise ValueError("is absolute; it must be relative to the folder of the platform")
    return ProductLink(kind, found.lower(), flags, is_exclusion=is_exclusion)


def settle_links(links: Iterable[ProductLink]) -> tuple[tuple[ProductLink, ...], tuple[str, ...]]:
    """Return the links without duplicates, and the paths that are both included and excluded; links of these paths are left out.

    If several links have the same target, the first is kept with its flags.
    """
    found: dict[tuple[object, ...], ProductLink] = {}
    for link in links:
        found.setdefault((link.kind, link.path, link.source_uuid, link.sub_id, link.is_exclusion), link)
    excluded = {(link.kind, link.path) for link in found.values() if link.is_exclusion}
    both = {(link.kind, link.path) for link in found.values() if not link.is_exclusion} & excluded
    left = tuple(link for link in found.values() if (link.kind, link.path) not in both)
    return left, tuple(sorted({path for _kind, path in both}))


def is_wildcard(path: str) -> bool:
    """Whether a path is a pattern, which has a `*`."""
    return "*" in path
