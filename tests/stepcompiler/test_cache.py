"""The bounded cache."""

import threading
import time

import pytest

from stepcompiler.cache import IdentityCache, LRUCache


def test_what_was_asked_for_longest_ago_is_forgotten():
    cache, made = LRUCache(2), []
    for key in "a", "b", "a", "c", "a", "b":
        assert cache.get(key, lambda key=key: made.append(key) or key) == key
    assert made == ["a", "b", "c", "b"] and len(cache) == 2
    assert "a" in cache and "c" not in cache
    cache.clear()
    assert len(cache) == 0


def test_each_value_is_made_once_by_many_threads_and_different_ones_side_by_side():
    cache, made, both = LRUCache(8), [], threading.Barrier(2, timeout=10)

    def make(key):
        both.wait()  # the two values are made at the same time, or this fails
        time.sleep(0.02)
        made.append(key)
        return object()

    got = {0: set(), 1: set()}
    threads = [threading.Thread(target=lambda k=i % 2: got[k].add(cache.get(k, lambda: make(k)))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [0, 1] and len(got[0]) == len(got[1]) == 1


def test_errors_are_raised_and_not_kept():
    cache = LRUCache(2)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 / 0)
    assert cache.get("a", lambda: 3) == 3


class Thing:
    """An object that is equal to all others of its kind."""

    def __eq__(self, other):
        return isinstance(other, Thing)

    __hash__ = None


def test_values_belong_to_an_object_and_not_to_its_equals():
    cache, one, two = IdentityCache(), Thing(), Thing()
    assert one == two
    assert (cache.get(one, lambda: 1), cache.get(two, lambda: 2)) == (1, 2)
    assert (cache.get(one, lambda: 3), cache.get(two, lambda: 4)) == (1, 2)


def test_a_value_is_forgotten_with_its_object():
    cache, value = IdentityCache(), Thing()
    seen = set()
    for k in range(100):  # the memory of one may be that of the one before
        thing = Thing()
        seen.add(id(thing))
        assert cache.get(thing, lambda k=k: (k, value))[0] == k
    assert len(seen) < 100
    del thing
    assert len(cache) == 0


def test_an_error_leaves_nothing_in_it():
    cache, thing = IdentityCache(), Thing()
    with pytest.raises(ZeroDivisionError):
        cache.get(thing, lambda: 1 // 0)
    assert len(cache) == 0 and cache.get(thing, lambda: 1) == 1
