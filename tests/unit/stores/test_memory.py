"""The memory store beyond what every store must do."""

import threading

from oncekey.core.requests import Claim, Granted, Scan
from oncekey.stores import MemoryStore
from oncekey.stores.memory import steady_clock


def a_claim(key="k", nonce="n"):
    return Claim(None, key, nonce=nonce, fingerprint=None, lease=10**8, ttl=10**8)


def test_a_forked_child_has_the_records_and_a_lock_of_its_own():
    store = MemoryStore()
    store.claim(a_claim())
    store._lock.acquire()  # another thread of the parent was at it
    store.after_fork()
    assert store.get(None, "k") is not None
    assert type(store.claim(a_claim("other"))) is Granted


def test_the_clock_never_goes_back():
    clock = steady_clock()
    times = [clock() for _ in range(1000)]
    assert times == sorted(times)


def test_the_order_of_a_scan_is_kept_while_records_come():
    store = MemoryStore()
    for key in "bd":
        store.claim(a_claim(key))
    assert [record.key for record in store.scan(Scan()).records] == ["b", "d"]
    for key in "ca":
        store.claim(a_claim(key))
    assert [record.key for record in store.scan(Scan()).records] == ["a", "b", "c", "d"]
    store.close()


def test_threads_may_scan_and_claim_at_once():
    store = MemoryStore()
    done = threading.Event()

    def scan():
        while not done.is_set():
            keys = [record.key for record in store.scan(Scan(limit=10_000)).records]
            assert keys == sorted(keys)

    scanner = threading.Thread(target=scan)
    scanner.start()
    for n in range(500):
        store.claim(a_claim(f"{n:04}"))
    done.set()
    scanner.join()
