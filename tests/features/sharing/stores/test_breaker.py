from aptui.features.sharing.stores.breaker import Breaker


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def opened(clock, failures=5):
    breaker = Breaker(failures, 30.0, clock=clock)
    told = [breaker.note_failure() for _ in range(failures)]
    assert told == [False] * (failures - 1) + [True]
    return breaker


def test_five_failures_in_a_row_leave_a_store_alone():
    breaker = opened(Clock())

    assert breaker.is_open
    assert not breaker.allows()


def test_an_answer_in_between_counts_from_the_start():
    breaker = Breaker(2, clock=Clock())
    breaker.note_failure()
    breaker.note_success()
    breaker.note_failure()

    assert breaker.allows()


def test_after_a_rest_one_asks_and_the_others_wait_for_what_comes_of_it():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 30.0

    assert [breaker.allows(), breaker.allows()] == [True, False]
    breaker.note_success()
    assert [breaker.allows(), breaker.allows()] == [True, True]


def test_each_failure_after_a_rest_makes_the_next_rest_longer_up_to_a_limit():
    clock = Clock()
    breaker = opened(clock)
    rests = []
    for _ in range(7):
        began = clock.now
        while not breaker.allows():
            clock.now += 10.0
        rests.append(clock.now - began)
        breaker.note_failure()

    assert rests == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_what_will_not_change_soon_opens_it_at_once():
    breaker = Breaker(clock=Clock())
    breaker.open_now()

    assert not breaker.allows()
