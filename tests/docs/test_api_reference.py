"""The pages of the API describe every public name. `make lint` checks that they are current."""

import doctest

import pytest

from oncekey.once import Once
from oncekey.testing import FailingStore
from tools import api_reference
from tools.api_reference import API, PAGES, ApiPage, main, page
from tools.public_names import KEPT

MODULES = {module for told in PAGES for module in told.modules}


def test_every_public_name_has_its_heading():
    names = [line.partition("(")[0] for line in KEPT.read_text("utf-8").splitlines()]
    headings: dict[str, set[str]] = {}
    for told in PAGES:
        for line in (API / f"{told.name}.md").read_text("utf-8").splitlines():
            if line.startswith("## `"):
                inside = headings.setdefault(line[4:-1], set())
            elif line.startswith("### `"):
                inside.add(line[5:-1])
    for name in names:
        module, _, last = name.rpartition(".")
        if module in MODULES:
            assert last in headings[module], name
        else:  # a member of a class
            assert module.rpartition(".")[0] in MODULES, name


def test_pages_that_are_not_current_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(api_reference, "ROOT", tmp_path)
    monkeypatch.setattr(api_reference, "API", tmp_path / "api")
    monkeypatch.setattr(api_reference, "PAGES", (ApiPage("stores", "S", ("oncekey.stores",)),))
    assert main(["--check"]) == 1
    assert "run `make generate`: api/stores.md" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0


SOURCE = '''
"""A module."""

class Basket(Container):
    """A basket of things."""

    size: int
    """How many it holds."""

    def __init__(self, size: int = 3, *, colour: str | None = UNSET) -> None:
        """Weave it."""

    async def put(self, thing: str, /, *more: str, **named: int) -> list[str]:
        """Put something in.

        >>> basket.put("an apple")
        """

    def _shake(self): ...
'''
SHOWN = """\
# Baskets

<!-- Written by `python -m tools.api_reference`; the text is in the docstrings. -->

## `oncekey.baskets`

A module.

### `Basket`

```pyi
class Basket(size: int = 3, *, colour: str | None = ...)
```

A basket of things.

Weave it.

| attribute | type | |
|---|---|---|
| `size` | `int` | How many it holds. |

#### `Basket.put`

```pyi
async def put(thing: str, /, *more: str, **named: int) -> list[str]
```

Put something in.

```pycon
>>> basket.put("an apple")
```
"""


def test_a_class_is_shown_with_its_types(tmp_path, monkeypatch):
    (tmp_path / "oncekey").mkdir()
    (tmp_path / "oncekey" / "baskets.py").write_text(SOURCE + '__all__ = ["Basket"]\n', "utf-8")
    monkeypatch.setattr(api_reference, "SOURCE", tmp_path)
    assert page(ApiPage("baskets", "Baskets", ("oncekey.baskets",))) == SHOWN
    with pytest.raises(ValueError, match=r"oncekey\.baskets\.Tray is not defined"):
        list(api_reference._described("oncekey.baskets", "Tray"))


@pytest.mark.parametrize("thing", [Once, FailingStore])
def test_examples_in_docstrings_are_so(thing):
    found = [test for test in doctest.DocTestFinder(recurse=False).find(thing) if test.examples]
    assert found
    for example in found:
        assert doctest.DocTestRunner().run(example).failed == 0
