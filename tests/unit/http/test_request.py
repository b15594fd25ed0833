"""How requests are told apart."""

from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.key import checked_scope
from oncekey.http.request import joined, of_request, of_route

NAMES = st.none() | st.text(max_size=40)
PATHS = st.none() | st.text(max_size=40).map(lambda path: of_route("POST", path))


@given(one=st.tuples(NAMES, PATHS), other=st.tuples(NAMES, PATHS))
def test_scopes_meet_only_when_owner_and_route_do(one, other):
    assert (joined(*one) == joined(*other)) == (one == other)


@given(st.text(max_size=600), st.text(max_size=600))
def test_every_scope_can_be_stored(name, path):
    checked_scope(joined(name, of_route("POST", path)))


def test_a_readable_scope():
    assert joined("u-1", "POST:/orders") == "u-1:POST:/orders"
    assert joined(None, "POST:/orders") == "POST:/orders"
    assert joined("u-1", None) == "u-1"
    assert joined(None, None) is None


@given(
    *[
        st.tuples(
            st.text(max_size=5), st.text(max_size=5), st.binary(max_size=5), st.text(max_size=5)
        )
    ]
    * 2
)
def test_requests_meet_only_when_all_of_them_does(one, other):
    assert (of_request(*one) == of_request(*other)) == (one == other)


def test_fingerprints_stay_as_they_were():
    """Stores hold them: another one would make every request of yesterday another one."""
    told = of_request("POST", "/orders/ü", b"a=1", "1:" + "ab" * 32)
    assert told == "1:5bbc19dde435e912fde74aea6cc09a0da3233a2ced25bf40f5593def924fdd3a"
