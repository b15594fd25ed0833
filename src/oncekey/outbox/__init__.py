"""The outbox: what was committed is sent.

A message is put into the transaction that it tells of. A relay sends it after the commit, as often
as needed and always with the same id, by which consumers know what they have seen.
"""

from oncekey.messages.message import Message
from oncekey.outbox.outbox import Outbox
from oncekey.outbox.outbox_async import AsyncOutbox

__all__ = ["AsyncOutbox", "Message", "Outbox"]
