"""How requests are told apart."""

from hypothesis import given
from hypothesis import strategies as st

from oncekey.http.marks import escaped, joined, of_request
from oncekey.key import checked_scope

NAMES = st.none() | st.text(max_size=40)
PATHS = st.none() | st.text(max_size=40).map(lambda path: f"POST:{escaped(path)}")


@given(one=st.tuples(NAMES, PATHS), other=st.tuples(NAMES, PATHS))
def test_scopes_meet_only_when_owner_and_route_do(one, other):
    assert (joined(*one) == joined(*other)) == (one == other)


@given(st.text(max_size=600), st.text(max_size=600))
def test_every_scope_can_be_stored(name, path):
    checked_scope(joined(name, f"POST:{escaped(path)}"))


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
