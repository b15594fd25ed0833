"""Workers are given whole modules, slow tests one by one and first, and marked groups."""

from tests.schedule import MOST, SLOW, is_slow, units_of

UNIT = [f"tests/unit/test_policy.py::test_{number}" for number in range(MOST + 1)]
OTHER = ["tests/unit/core/test_key.py::test_it[a@b]", "tests/unit/core/test_key.py::TestIt::test"]
SINGLE = ["tests/faults/test_outages.py::test_one", "tests/faults/test_outages.py::test_two"]
GROUPED = ["tests/faults/test_matrix.py::test_a@matrix", "tests/docs/test_x.py::test_b[1]@matrix"]


def test_a_module_is_one_unit_until_it_is_large():
    units = units_of([*UNIT, *OTHER])
    assert len({units[nodeid] for nodeid in UNIT[:MOST]}) == 1
    assert len({units[nodeid] for nodeid in UNIT}) == 2
    assert len({units[nodeid] for nodeid in OTHER}) == 1
    assert not {units[nodeid] for nodeid in UNIT} & {units[nodeid] for nodeid in OTHER}


def test_slow_tests_and_groups_are_units_of_their_own():
    units = units_of([*SINGLE, *GROUPED])
    assert len({units[nodeid] for nodeid in SINGLE}) == 2
    assert {units[nodeid] for nodeid in GROUPED} == {"matrix"}


def test_slow_tests_are_collected_first(request):
    slow = [is_slow(item.nodeid) for item in request.session.items]
    assert request.config.getoption("--shuffle") is not None or slow == sorted(slow, reverse=True)


def test_whatever_is_called_slow_exists(pytestconfig):
    root = pytestconfig.rootpath
    found = [path.relative_to(root).as_posix() for path in root.glob("tests/**/test_*.py")]
    assert [start for start in SLOW if not any(one.startswith(start) for one in found)] == []
