from types import SimpleNamespace

from aptui.core.notices import EngineMessage, JobChanged
from aptui.engine.live.supervisor import AMONG_MANY_S, PUT_OFF_S, UnsettledNews


class Clients:
    """Who is told, by a clock of ours."""

    def __init__(self):
        self.now, self.heard = 10.0, []
        self.news = UnsettledNews(lambda: self.now, self.heard.append)


def changed(job_id: int, status: str) -> JobChanged:
    return JobChanged(1, job_id, f"{job_id}.txt", 1, "linux", "key", "b", status, "", "", 0, 0, 0, "", 7)


def moved(count: int) -> SimpleNamespace:
    return SimpleNamespace(jobs=SimpleNamespace(reports=SimpleNamespace(moved=range(count))))


def engine(*latest: JobChanged):
    owed = list(latest)

    def take():
        found = owed[:]
        owed.clear()
        return found

    return SimpleNamespace(pipeline=moved(len(latest)), latest=take)


def test_what_is_settled_and_what_is_of_no_job_is_not_put_off():
    clients = Clients()

    assert not clients.news.put_off(changed(1, "completed"))
    assert not clients.news.put_off(EngineMessage(0, 0, "hello"))
    assert clients.news.deadline is None


def test_that_a_job_ran_is_no_news_once_it_ended():
    clients = Clients()

    assert clients.news.put_off(changed(1, "pending"))
    assert clients.news.put_off(changed(1, "processing"))
    assert clients.news.put_off(changed(2, "pending"))
    assert not clients.news.put_off(changed(1, "failed"))
    clients.news.poll(clients.now + PUT_OFF_S / 2, None)
    assert not clients.heard
    clients.news.poll(clients.now + PUT_OFF_S, None)

    assert clients.heard == [changed(2, "pending")]
    assert clients.news.deadline is None


def test_of_a_job_that_still_runs_the_newest_is_told():
    clients = Clients()

    clients.news.put_off(changed(1, "pending"))
    clients.news.put_off(changed(1, "processing"))
    clients.news.poll(clients.now + PUT_OFF_S, None)

    assert clients.heard == [changed(1, "processing")]


def test_the_engine_is_asked_a_moment_after_it_owes_something():
    clients, of_now = Clients(), engine(changed(3, "pending"))

    clients.news.poll(10.0, of_now)
    assert clients.news.deadline == 10.0 + PUT_OFF_S
    clients.news.poll(10.0 + PUT_OFF_S, of_now)

    assert clients.heard == [changed(3, "pending")]


def test_while_many_jobs_move_the_engine_is_asked_four_times_a_second_and_at_first_at_once():
    clients = Clients()
    asked_s = []
    many = SimpleNamespace(pipeline=moved(101), latest=lambda: asked_s.append(clients.now) or [])

    for _ in range(3):
        clients.news.poll(clients.now, many)
        clients.now = clients.news.deadline
        clients.news.poll(clients.now, many)

    assert asked_s == [10.0 + PUT_OFF_S, 10.0 + PUT_OFF_S + AMONG_MANY_S, 10.0 + PUT_OFF_S + 2 * AMONG_MANY_S]


def test_an_engine_that_owes_nothing_wakes_nobody():
    clients = Clients()

    clients.news.poll(10.0, engine())

    assert clients.news.deadline is None
