"""Ledger and commits, where the playbook does not reach: what is saved when one event first puts and then drops the same."""

from __future__ import annotations

from fake_world import World
from fakes import Setup, scripter

from aptui.core.messages import SaveRows
from aptui.core.state.ledger import RUN_KEY_STATE, Ledger


def saved(ledger: Ledger) -> dict[str, list[tuple[object, ...]]]:
    ledger.flush_rows()
    commands, _notices = ledger.take()
    return {name: rows for command in commands if isinstance(command, SaveRows) for name, rows in command.rows.items() if rows}


def test_what_was_put_before_a_drop_is_taken_back() -> None:
    ledger = Ledger(1, 1, 1, 1)
    for job_id in (1, 2):
        ledger.put("put_job", (job_id, 9))
        ledger.put("put_product", (job_id * 10, job_id))
        ledger.put("put_conflict", ("name", job_id))
        ledger.put("put_run", (job_id, 5))

    ledger.drop("drop_job", (1,))

    assert saved(ledger) == {
        "put_job": [(2, 9)], "put_product": [(20, 2)], "put_conflict": [("name", 2)], "put_run": [(2, 5)], "drop_job": [(1,)],
    }  # fmt: skip


def test_what_is_put_after_a_drop_stays() -> None:
    ledger = Ledger(1, 1, 1, 1)
    ledger.drop("drop_products", (1,))
    ledger.put("put_product", (10, 1))

    assert saved(ledger) == {"drop_products": [(1,)], "put_product": [(10, 1)]}


def test_an_analysis_is_known_by_source_and_builder() -> None:
    ledger = Ledger(1, 1, 1, 1)
    ledger.put("put_analysis", (1, b"a", "x"))
    ledger.put("put_analysis", (1, b"b", "x"))
    ledger.put("put_source", (1, "x"))

    ledger.drop("drop_analysis", (1, b"a"))
    ledger.drop("drop_source", (2,))

    assert saved(ledger)["put_analysis"] == [(1, b"b", "x")]
    assert saved(ledger) == {}


def test_nothing_to_save_takes_no_ticket() -> None:
    ledger = Ledger(1, 1, 1, 1)

    ledger.flush_rows()

    assert ledger.ticket == 1
    assert ledger.take() == ([], [])


def test_run_keys_are_reserved_before_they_are_used() -> None:
    ledger = Ledger(1, 1, 1, 41)

    keys = [ledger.next_run_key() for _key in range(3)]

    assert keys == [41, 42, 43]
    ((name, reserved),) = saved(ledger)["put_state"]
    assert name == RUN_KEY_STATE
    assert int(str(reserved)) > 43


def test_ids_rise_from_the_first_that_is_free() -> None:
    ledger = Ledger(3, 5, 7, 9)

    assert [ledger.next_source_id(), ledger.next_job_id(), ledger.next_product_id(), ledger.next_source_id()] == [3, 5, 7, 4]


def test_a_conflict_is_remembered_by_the_next_engine() -> None:
    world = World()
    world.write("a.s", "make same.bin\nmake own.bin")
    world.write("b.s", "make same.bin")
    world.settle()
    world.restart()

    claims = world.pipeline.jobs.commits._claims

    assert {name: len(claimants) for name, claimants in claims.items()} == {
        "linux/same.bin": 2, "linux/own.bin": 1, "linux/a.out": 1, "linux/b.out": 1,
    }  # fmt: skip


def test_a_product_that_another_job_took_over_is_not_deleted_with_its_former_maker() -> None:
    world = World(Setup(builders=(scripter(),)))
    world.write("a.s", "make same.bin")
    world.settle()
    world.configure(builders=(scripter("twin"),))

    world.settle(restart=True)

    assert world.cache == world.clean().cache


def test_two_products_taken_from_one_job_at_once_are_both_gone() -> None:
    world = World()
    world.write("a.s", "make x.bin\nmake y.bin")
    world.settle()
    world.write("b.s", "make x.bin\nmake y.bin")

    world.settle()

    names = sorted(str(row[2]) for row in world.archive.tables.products.values())
    assert names == ["linux/a.out"]
    assert sorted(world.cache) == names
