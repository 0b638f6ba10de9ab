from fake_world import World
def test_a():
    w = World()
    w.write("a.txt", "x"); w.write("b.s", "include c.s\nafter c.s:main"); w.write("c.s", "hello")
    w.settle()
    print(w.statuses(), w.cache, w.order, w.ran())
    w.settle(); print(w.ran()); assert not w.pipeline.memory.sources
    w.write("c.s","bye"); w.settle(); print(w.order, w.job("b.s@linux:main").reason)
    w.settle(restart=True); print(w.ran())
    assert w.clean().cache == w.cache
