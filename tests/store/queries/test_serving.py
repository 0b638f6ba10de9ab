"""Which pending jobs and which finished sources a search term of a client matches."""

from __future__ import annotations

import pytest

from aptui.store.queries.serving import find_pending_jobs, jobs_with_key, sources_meant
from tests.store.conftest import Store, job_row, source_row

PATHS = ("ui/readme", "ui/readme.d/page.txt", "ui/rock.psd", "ui/rock_wall.psd")


def put(store: Store, state: str) -> None:
    numbers = range(1, len(PATHS) + 1)
    store.put(
        put_source=[source_row(number, PATHS[number - 1]) for number in numbers],
        put_job=[job_row(number, number, state=state, status=4 if state == "completed" else 0) for number in numbers],
    )


def pending(store: Store, term: str, *, is_exact: bool) -> list[str]:
    return sorted(row.source for row in find_pending_jobs(store.reader(), term, "", is_exact=is_exact))


def finished(store: Store, term: str, *, is_exact: bool = False, limit: int = 9) -> list[str]:
    return [PATHS[number - 1] for number in sources_meant(store.reader(), term, is_exact=is_exact, limit=limit)]


@pytest.mark.parametrize(
    ("term", "is_exact", "expected"),
    [
        ("rock.psd", True, ["ui/rock.psd"]),
        ("rock.tex", True, []),
        ("rock.tex", False, ["ui/rock.psd"]),
        ("readme.html", False, ["ui/readme"]),
        ("me", False, ["ui/readme"]),
        ("%.psd", True, []),
    ],
)
def test_search_term_matches_the_same_pending_and_finished_sources(store, term, is_exact, expected) -> None:
    put(store, "completed")
    assert finished(store, term, is_exact=is_exact) == expected
    put(store, "waiting")

    assert pending(store, term, is_exact=is_exact) == expected


def test_paths_that_do_not_match_leave_the_limit_to_paths_that_do(store) -> None:
    put(store, "completed")

    assert finished(store, "rock.tex", limit=1) == ["ui/rock.psd"]
    assert finished(store, "readme.html", limit=1) == ["ui/readme"]


def test_part_of_the_term_before_its_last_underscore_matches_only_pending_sources(store) -> None:
    """The pending job may still make the requested product. Of a finished job, it is known that it did not."""
    put(store, "completed")
    assert finished(store, "ui/rock_normal.tex") == []
    put(store, "waiting")

    assert pending(store, "ui/rock_normal.tex", is_exact=False) == ["ui/rock.psd", "ui/rock_wall.psd"]
    assert pending(store, "ui/rock_normal.tex", is_exact=True) == []


def test_limit_of_the_search_by_job_key_counts_only_jobs_of_the_requested_platform(store) -> None:
    platforms = ("linux", "linux", "server", "server")
    store.put(
        put_source=[source_row(number, PATHS[number - 1]) for number in range(1, 5)],
        put_job=[job_row(number, number, platform=platform) for number, platform in enumerate(platforms, 1)],
    )

    assert [row.job_id for row in jobs_with_key(store.reader(), "Image", 2, "server")] == [3, 4]
    assert [row.job_id for row in jobs_with_key(store.reader(), "Image", 9)] == [1, 2, 3, 4]
