"""Stores whose drivers come with an extra."""

import pytest

from oncekey import ConfigurationError, Once, stores


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("redis://localhost", "redis"),
        ("postgresql://localhost", "postgres"),
        ("mysql://localhost/app", "mysql"),
        ("mariadb://localhost/app", "mysql"),
    ],
)
def test_a_missing_driver_is_named_with_its_extra(monkeypatch, url, extra):
    def missing(name):
        raise ModuleNotFoundError(name="driver")

    monkeypatch.setattr(stores, "import_module", missing)
    with pytest.raises(ConfigurationError, match=rf"'driver'; pip install 'oncekey\[{extra}\]'"):
        Once(url)


def test_a_module_of_our_own_that_is_missing_is_not_hidden(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(stores, "import_module", missing)
    with pytest.raises(ModuleNotFoundError):
        Once("redis://localhost")


def test_what_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="MongoStore"):
        _ = stores.MongoStore
