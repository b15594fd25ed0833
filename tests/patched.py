"""Patches Python as gevent or eventlet does, then runs pytest: python -m tests.patched gevent ...

Patching comes first: what was imported before keeps the locks and sockets of Python.
"""

import sys
import warnings
from importlib import import_module


def patch(library: str) -> None:
    """Replace what blocks in the standard library."""
    if library == "gevent":
        import_module("gevent.monkey").patch_all()
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eventlet says that it is deprecated
        eventlet = import_module("eventlet")
    eventlet.monkey_patch()


if __name__ == "__main__":
    patch(sys.argv[1])
    import pytest

    sys.exit(pytest.main(["-p", "no:xdist", "-p", "no:cacheprovider", *sys.argv[2:]]))
