"""Keys of the settings registry that are accepted and change nothing here, and why; shown when the effect of a key is asked for.

Tests: `tests/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_SETTINGS = "/amazon/assetprocessor/settings"
_RULE = f"{_SETTINGS}/[rs][cj] *"
_BOOTSTRAP = "/amazon/azcore/bootstrap"
_NO_CLIENTS = "no client of O3DE's own protocol is served"

UNUSED = {
    f"{_SETTINGS}/jobs/minjobs": "maxJobs alone says how many run",
    f"{_SETTINGS}/jobs/alwaysusemaxjobs": "no worker is kept free: a critical job may have one more than there are",
    f"{_SETTINGS}/buildermanager/startuptimeoutseconds": "workers start at once, and one that ends is replaced",
    f"{_SETTINGS}/fingerprinting/usefilehashing": "files are always known by what is in them",
    f"{_SETTINGS}/scanfolder */display": "folders are called by their keys",
    f"{_RULE}/locksource": "no file is read while it is being written",
    f"{_RULE}/checkserver": "copying costs less than fetching",
    f"{_RULE}/supportscreatejobs": "a rule has one job for each platform",
    f"{_RULE}/outputproductdependencies": "what is only copied is not searched for dependencies",
    "/amazon/assetbuilder/settingsregistry/excludes": "no settings registry is exported",
    "/amazon/settings/enablesourcecontrol": "--enablescm says whether Git moves and deletes",
    **dict.fromkeys(
        (
            *(f"{_BOOTSTRAP}/{key}" for key in ("remote_ip", "allowed_list", "assets", "assetprocessor_branch_token")),
            *(f"{_BOOTSTRAP}/{key}" for key in ("connect_to_remote", "wait_for_connect", "*_timeout")),
        ),
        _NO_CLIENTS,
    ),
}
"""{pattern of a pointer in lower case: why it changes nothing}."""


def why_unused(pointer: str) -> str:
    """Return why a key changes nothing, "" for one that does, or that nobody knows."""
    return next((why for pattern, why in UNUSED.items() if fnmatchcase(pointer.lower(), pattern)), "")
