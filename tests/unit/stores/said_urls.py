"""All that is said about the URL of a store, for tests of what must not be said."""

import traceback

from oncekey import OncekeyError
from oncekey.cli.watch import Screen
from oncekey.stores import open_store
from oncekey.stores.url import safe_url

PIECES = ("XQZ1", "wvk2", "7391", "JHJ")
"""Parts of passwords."""


def said(url):
    """All that is said about the URL: by the store, by its errors, and by a screen."""
    texts = [safe_url(url), Screen(url, "2s", redact=False)._where]
    try:
        store = open_store(url)
    except OncekeyError as error:
        texts.append("".join(traceback.format_exception(error)).rpartition("raise ")[2])
        texts += [str(error), str(error.__cause__ or "")]
    else:
        target = getattr(store, "target", getattr(store, "clients", None))
        texts.append(getattr(target, "where", ""))
    return texts
