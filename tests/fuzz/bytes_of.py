"""Bytes that are almost right: what a store may hand back after somebody else wrote to it."""

from hypothesis import strategies as st

DEEP = 5_000
"""More levels than any reader goes down."""


@st.composite
def damaged(draw, valid: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes of which something was cut, changed, doubled or added; or any bytes at all."""
    if draw(st.integers(0, 9)) == 0:
        return bytes(draw(st.binary(max_size=64)))
    data = bytearray(draw(valid))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(["cut", "change", "add", "double", "deep"]))
        if what == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        elif what == "change" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif what == "add":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif what == "double":
            data[at:at] = data[at : at + 8]
        elif what == "deep":
            data[at:at] = draw(st.sampled_from([b"\x91", b"\x81\xa1a"])) * DEEP
    return bytes(data)
