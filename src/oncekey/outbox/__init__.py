"""The outbox: what was committed is sent.

A message is put into the transaction that it tells of. A relay sends it after the commit, as often
as needed and always with the same id, by which consumers know what they have seen.
"""

from oncekey.messages.message import Message
from oncekey.outbox.outbox import Outbox
from oncekey.outbox.outbox_async import AsyncOutbox
from oncekey.outbox.relay import Relay
from oncekey.outbox.relay_async import AsyncRelay, RelayEvent
from oncekey.outbox.table import DeadLetter, Figures, OutboxMessage, Waiting

__all__ = [
    "AsyncOutbox",
    "AsyncRelay",
    "DeadLetter",
    "Figures",
    "Message",
    "Outbox",
    "OutboxMessage",
    "Relay",
    "RelayEvent",
    "Waiting",
]
