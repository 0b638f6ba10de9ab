"""An asset database as O3DE's Asset Processor makes it: the documented tables (version 40) and rows with every enum value.

It is written only from the documentation, without aptui's models, so that it reveals errors in the models.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

# {table: declarations of its columns}; `†` stands for COLLATE NOCASE.
TABLES = {
    "dbinfo": ["rowID INTEGER PRIMARY KEY", "version INTEGER NOT NULL"],
    "ScanFolders": [
        "ScanFolderID INTEGER PRIMARY KEY AUTOINCREMENT", "ScanFolder TEXT NOT NULL †", "DisplayName TEXT NOT NULL †",
        "PortableKey TEXT NOT NULL †", "IsRoot INTEGER NOT NULL",
    ],
    "Sources": [
        "SourceID INTEGER PRIMARY KEY AUTOINCREMENT",
        "ScanFolderPK INTEGER NOT NULL REFERENCES ScanFolders(ScanFolderID) ON DELETE CASCADE",
        "SourceName TEXT NOT NULL †", "SourceGuid BLOB NOT NULL", "AnalysisFingerprint TEXT NOT NULL † DEFAULT('')",
    ],
    "Jobs": [
        "JobID INTEGER PRIMARY KEY AUTOINCREMENT", "SourcePK INTEGER NOT NULL REFERENCES Sources(SourceID) ON DELETE CASCADE",
        "JobKey TEXT NOT NULL †", "Fingerprint INTEGER NOT NULL", "Platform TEXT NOT NULL †", "BuilderGuid BLOB NOT NULL",
        "Status INTEGER NOT NULL", "JobRunKey INTEGER NOT NULL", "FailureCauseSourcePK INTEGER", "FailureCauseFingerprint INTEGER",
        "FirstFailLogTime INTEGER NOT NULL", "FirstFailLogFile TEXT NOT NULL †", "LastFailLogTime INTEGER NOT NULL",
        "LastFailLogFile TEXT NOT NULL †", "LastLogTime INTEGER NOT NULL", "LastLogFile TEXT NOT NULL †",
        "ErrorCount INTEGER DEFAULT(0)", "WarningCount INTEGER DEFAULT(0)",
    ],
    "Products": [
        "ProductID INTEGER PRIMARY KEY AUTOINCREMENT", "JobPK INTEGER NOT NULL REFERENCES Jobs(JobID) ON DELETE CASCADE",
        "ProductName TEXT NOT NULL †", "SubID INTEGER NOT NULL", "AssetType BLOB NOT NULL", "LegacyGuid BLOB NOT NULL",
        "Hash INTEGER NOT NULL", "Flags INTEGER NOT NULL DEFAULT 1",
    ],
    "LegacySubIDs": [
        "LegacySubID INTEGER PRIMARY KEY AUTOINCREMENT",
        "ProductPK INTEGER NOT NULL REFERENCES Products(ProductID) ON DELETE CASCADE",
        "SubID INTEGER NOT NULL",
    ],
    "SourceDependency": [
        "SourceDependencyID INTEGER PRIMARY KEY AUTOINCREMENT", "BuilderGuid BLOB NOT NULL", "SourceGuid BLOB NOT NULL",
        "DependsOnSource TEXT NOT NULL †", "SubIds TEXT NOT NULL †", "TypeOfDependency INTEGER NOT NULL DEFAULT(0)",
        "FromAssetId INTEGER NOT NULL DEFAULT(0)",
    ],
    "ProductDependencies": [
        "ProductDependencyID INTEGER PRIMARY KEY AUTOINCREMENT",
        "ProductPK INTEGER NOT NULL REFERENCES Products(ProductID) ON DELETE CASCADE", "DependencySourceGuid BLOB NOT NULL",
        "DependencySubID INTEGER NOT NULL", "Platform TEXT NOT NULL †", "DependencyFlags INTEGER NOT NULL",
        "UnresolvedPath TEXT NOT NULL †", "UnresolvedDependencyType INTEGER NOT NULL DEFAULT(0)",
        "FromAssetId INTEGER NOT NULL DEFAULT(0)",
    ],
    "MissingProductDependencies": [
        "MissingProductDependencyId INTEGER PRIMARY KEY AUTOINCREMENT",
        "ProductPK INTEGER NOT NULL REFERENCES Products(ProductID) ON DELETE CASCADE", "ScannerId TEXT NOT NULL",
        "ScannerVersion TEXT NOT NULL", "SourceFileFingerprint TEXT NOT NULL", "DependencySourceGuid BLOB NOT NULL",
        "DependencySubId INTEGER NOT NULL", "MissingDependencyString TEXT NOT NULL", "LastScanTime TEXT NOT NULL",
        "ScanTimeSecondsSinceEpoch INTEGER NOT NULL",
    ],
    "Files": [
        "FileID INTEGER PRIMARY KEY AUTOINCREMENT",
        "ScanFolderPK INTEGER NOT NULL REFERENCES ScanFolders(ScanFolderID) ON DELETE CASCADE",
        "FileName TEXT NOT NULL †", "IsFolder INTEGER NOT NULL", "ModTime INTEGER NOT NULL", "Hash INTEGER NOT NULL",
    ],
    "Stats": ["StatName TEXT PRIMARY KEY †", "StatValue INTEGER NOT NULL", "LastLogTime INTEGER NOT NULL"],
    "BuilderInfo": ["BuilderID INTEGER PRIMARY KEY AUTOINCREMENT", "Guid BLOB NOT NULL", "AnalysisFingerprint TEXT NOT NULL"],
}  # fmt: skip
INDEXES = {
    "Jobs_JobRunKey": "Jobs(JobRunKey)",
    "Jobs_JobKey": "Jobs(JobKey)",
    "Sources_Jobs": "Jobs(SourcePK)",
    "Jobs_Products": "Products(JobPK)",
    "Sources_SourceName": "Sources(SourceName)",
    "Sources_SourceGuid": "Sources(SourceGuid)",
    "IdxSources_SourceAndScanFolder": "Sources(ScanFolderPK, SourceName)",
    "Products_ProductName": "Products(ProductName)",
    "Products_SubID": "Products(SubID)",
    "LegacySubIDs_ProductPK": "LegacySubIDs(ProductPK)",
    "DependsOnSource_SourceDependency": "SourceDependency(DependsOnSource)",
    "BuilderGuid_Source_SourceDependency": "SourceDependency(BuilderGuid, SourceGuid)",
    "SourceGuid_SourceDependency": "SourceDependency(SourceGuid)",
    "TypeOfDependency_SourceDependency": "SourceDependency(TypeOfDependency)",
    "ProductDependencies_ProductPK": "ProductDependencies(ProductPK)",
    "ProductDependencies_UnresolvedPath": "ProductDependencies(UnresolvedPath)",
    "ProductDependencies_UnresolvedPathWildcard": "ProductDependencies(UnresolvedPath) WHERE UnresolvedPath LIKE '%*%'",
    "MissingProductDependencies_ProductPK": "MissingProductDependencies(ProductPK)",
    "Files_FileName": "Files(FileName)",
    "ScanFolders_Files": "Files(ScanFolderPK)",
}

IMAGES, MATERIALS, COPIES = b"I" * 16, b"M" * 16, b"C" * 16
NOW_MS = 1_750_000_000_000
PREFAB, ROCK, DEEP, GONE, STONE, MADE, HILL = range(1, 8)
"""Ids of sources, and the last byte of their UUIDs."""
SOURCES = [
    (PREFAB, 1, "Levels/Main/Main.prefab"), (ROCK, 1, "Textures/Rock.png"), (DEEP, 1, f"deep/{'x' * 200}.fbx"),
    (GONE, 1, "Scripts/gone.lua"),
    (STONE, 2, "Materials/Stone.material"), (MADE, 3, "materials/stone_made.azmaterial"), (HILL, 1, "Terrain/hill.png"),
]  # fmt: skip
# (id, source, key, platform, builder, status, errors, warnings, log)
JOBS = [
    (1, PREFAB, "Prefab", "pc", COPIES, 4, 0, 0, ""),
    (2, ROCK, "Image Compile: PNG", "pc", IMAGES, 4, 0, 3, "JobLogs/Textures/Rock.png-1-2.log"),
    (3, ROCK, "Image Compile: PNG", "android", IMAGES, 2, 2, 1, "JobLogs/Textures/Rock.png-1-3.log"),
    (4, DEEP, "Scene", "pc", COPIES, 3, 0, 0, ""),
    (5, GONE, "Lua Compile", "pc", COPIES, 5, 0, 0, ""),
    (6, STONE, "Material", "common", MATERIALS, 4, 0, 0, "D:/o3de/user/log/JobLogs/Materials/Stone.material-1-6.log"),
    (7, MADE, "Material Final", "pc", MATERIALS, 0, 0, 0, ""),
    (8, HILL, "Image Compile: PNG", "pc", IMAGES, 1, 0, 0, ""),
    (9, HILL, "Image Compile: PNG", "android", IMAGES, 4, 1, 0, ""),
]
STATUSES = ["completed", "completed", "failed", "failed", "failed", "completed", "pending", "processing", "completed"]
"""The status that users see for each job of `JOBS`, in the same order."""
# (id, job, name, sub id, flags)
PRODUCTS = [
    (1, 1, "pc/levels/main/main.spawnable", 0xFFFF_FFFF, 1),
    (2, 2, "pc/textures/rock.streamingimage", 1000, 1),
    (3, 2, "pc/textures/rock_mip.imagemip", 1001, 5),
    (4, 6, "common/materials/stone_made.azmaterial", 7, 2),
    (5, 9, "android/terrain/hill.streamingimage", 1000, 4),
]


def uuid_of(number: int) -> bytes:
    return number.to_bytes(16)


def make(path: Path, version: int = 40, *, is_in_log: bool = False, extra: str = "") -> Path:
    """Make a database at `path`; with `is_in_log`, all rows are in the write-ahead log, as after a crash of a tool."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name("writing.sqlite") if is_in_log else path
    with closing(sqlite3.connect(writing, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        if is_in_log:
            database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("BEGIN")
        _create(database, version)
        _fill(database, version)
        if extra:
            database.execute(extra)
        database.execute("COMMIT")
        if is_in_log:
            for suffix in ("", "-wal"):
                path.with_name(path.name + suffix).write_bytes(writing.with_name(writing.name + suffix).read_bytes())
    if is_in_log:
        writing.unlink()
    return path


def _create(database: sqlite3.Connection, version: int) -> None:
    for table, columns in TABLES.items():
        if table == "Jobs" and version < 39:
            columns = [column for column in columns if not column.startswith("FailureCause")]  # noqa: PLW2901
        database.execute(f"CREATE TABLE {table}({', '.join(columns)})".replace("†", "COLLATE NOCASE"))
    for name, place in INDEXES.items():
        if not (name.startswith("MissingProductDependencies") and version < 40):
            database.execute(f"CREATE INDEX {name} ON {place}")


def _fill(database: sqlite3.Connection, version: int) -> None:
    def insert(table: str, *rows: tuple[object, ...]) -> None:
        for row in rows:
            database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    insert("dbinfo", (1, version))
    insert(
        "ScanFolders",
        (1, "/games/Game", "Game", "projectassets", 0),
        (2, "/games/o3de/Gems/Atom/Assets", "Atom", "gemassets-{AA}", 0),
        (3, "/games/Game/Cache/Intermediate Assets", "Intermediate Assets", "Intermediate Assets", 0),
    )
    insert("Sources", *((number, folder, name, uuid_of(number), "") for number, folder, name in SOURCES))
    cause = (None, None) if version >= 39 else ()
    for number, source, key, platform, builder, status, errors, warnings, log in JOBS:
        failed = (NOW_MS, log, NOW_MS, log) if status in (2, 3) else (0, "", 0, "")
        completed_ms = NOW_MS + number if status > 1 else 0
        insert(
            "Jobs",
            (number, source, key, 7, platform, builder, status, number, *cause, *failed, completed_ms, log, errors, warnings),
        )
    insert(
        "Products", *((number, job, name, sub_id, b"T" * 16, bytes(16), -5, flags) for number, job, name, sub_id, flags in PRODUCTS)
    )
    insert("LegacySubIDs", (1, 2, 3))
    insert(
        "SourceDependency",
        (1, COPIES, uuid_of(PREFAB), "textures/ROCK.png", "", 1, 0),
        (2, COPIES, uuid_of(PREFAB), uuid_of(STONE).hex(), "", 1, 1),
        (3, COPIES, uuid_of(PREFAB), "Terrain/hill.png", "1000,1001", 2, 0),
        (4, MATERIALS, uuid_of(STONE), "Textures/%.png", "", 4, 0),
        (5, MATERIALS, uuid_of(STONE), "not/there.txt", "", 1, 0),
    )
    insert(
        "ProductDependencies",
        (1, 1, uuid_of(ROCK), 1000, "pc", 1, "", 0, 1),
        (2, 1, uuid_of(99), 5, "pc", 2, "", 0, 0),
        (3, 1, bytes(16), 0, "pc", 0, "scripts/*.luac", 1, 0),
        (4, 1, bytes(16), 0, "pc", 0, ":scripts/old.luac", 0, 0),
        (5, 2, uuid_of(PREFAB), 0xFFFF_FFFF, "pc", 0, "", 0, 0),
    )
    insert(
        "MissingProductDependencies",
        (1, 1, "ExpensiveScanner", "1.0", "f", uuid_of(ROCK), 1001, "textures/rock_mip.imagemip", "today", NOW_MS // 1000),
        (2, 1, "ExpensiveScanner", "1.0", "f", bytes(16), 0, "", "today", NOW_MS // 1000 + 1),
    )
    insert("Files", (1, 1, "Textures/Rock.png", 0, NOW_MS, 5), (2, 1, "Textures", 1, NOW_MS, 0), (3, 2, "Materials", 1, NOW_MS, 0))
    image = "{49494949-4949-4949-4949-494949494949}"
    insert(
        "Stats",
        (f"ProcessJob,/games/Game,Textures/Rock.png,Image Compile: PNG,pc,{image}", 1500, NOW_MS),
        ("CreateJobs,Textures/Rock.png,Atom Image Builder", 40, NOW_MS),
        ("CreateJobs,Textures/Rock.png,Copy", 2, NOW_MS),
        ("CreateJobs,Textures/Rock.png2,Copy", 500, NOW_MS),
    )
    insert("BuilderInfo", (1, IMAGES, "1"), (2, MATERIALS, ""))
