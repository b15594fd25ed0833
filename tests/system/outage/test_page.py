"""The page about an outage shows what its commands print."""

from tests.cli.page import PAGES, steady, whole


def test_every_example_of_the_page_prints_what_it_shows():
    [page] = [one for one in PAGES if one.stem == "outage"]
    assert steady(whole(page)) == steady(page.read_text("utf-8"))
