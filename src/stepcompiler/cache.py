"""A bounded cache for values that take long to compute."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Entry(Generic[T]):
    """A value that the first thread computes, while others wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: list[T] = []


class IdentityCache(Generic[T]):
    """Values of immutable objects, found by the identity of the object, and kept as long as it exists.

        cache = IdentityCache()
        value = cache.get(obj, make)     # make() only if it is not there

    The value must not refer to the object.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref, T]] = {}

    def get(self, obj: Any, make: Callable[[], T]) -> T:
        """The value of an object."""
        number = id(obj)
        entry = self._entries.get(number)
        if entry is not None and entry[0]() is obj:
            return entry[1]

        def forget(gone: weakref.ref) -> None:
            if (now := self._entries.get(number)) is not None and now[0] is gone:
                del self._entries[number]

        value = make()
        self._entries[number] = weakref.ref(obj, forget), value
        return value

    def __len__(self) -> int:
        return len(self._entries)


class LRUCache(Generic[T]):
    """The values for at most `maxsize` keys; the least recently used is removed first.

        cache = LRUCache(256)
        value = cache.get(key, make)     # calls make() if the key is new

    The cache is thread-safe: each value is computed once, and values of different keys concurrently.
    An error of `make` is raised, and nothing is cached.
    """

    def __init__(self, maxsize: int = 256):
        self.maxsize = maxsize
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value for a key."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            if len(self._entries) > self.maxsize:
                self._entries.popitem(last=False)
        with entry.lock:
            if not entry.values:
                entry.values.append(make())
            return entry.values[0]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries
