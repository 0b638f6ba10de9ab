"""What the database records of products in the cache: names, digests, and the folders they lie in."""

from __future__ import annotations

import sqlite3


class ProductArchive:
    """Answers `engine.cache.product_index`, and where products lie below a folder."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def product_digest(self, name: str) -> bytes | None:
        """Return the recorded SHA-256 of a product, None when it is not recorded."""
        sql = "SELECT o.digest FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID WHERE p.ProductName = ?"
        row = self._database.execute(sql, (name,)).fetchone()
        return row[0] if row else None

    def products_in(self, folder: str) -> dict[str, bytes]:
        """Return {product name: SHA-256} of the products directly in a cache folder."""
        sql = """SELECT p.ProductName, o.digest FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID
            WHERE p.ProductName > :folder || '/' AND p.ProductName < :folder || '0'
            AND instr(substr(p.ProductName, length(:folder) + 2), '/') = 0"""
        return dict(self._database.execute(sql, {"folder": folder}).fetchall())

    def products_below(self, folder: str) -> list[str]:
        """Return the names of the products anywhere below a cache folder."""
        sql = "SELECT ProductName FROM Products WHERE ProductName > :folder || '/' AND ProductName < :folder || '0'"
        return [name for (name,) in self._database.execute(sql, {"folder": folder})]

    def cache_folders(self) -> dict[str, int]:
        """Return {cache folder: ctime_ns it had after the last commit}; 0 = not known, -1 = the folder is gone."""
        return dict(self._database.execute("SELECT name, ctime_ns FROM aptui_cache_folders").fetchall())
