"""Three services that send each other messages, are killed at random, and do everything once.

$ python -m examples.chain                   # on SQLite files alone
$ python -m examples.chain --page 8002       # with a page that shows every order's way
$ python -m examples.chain --help            # with PostgreSQL, NATS JetStream and Redis Streams

orders ---orders.placed---> payments ---payments.charged---> mail

services.py    what each service does with a message, in one transaction with its inbox and outbox
worker.py      a process that is one service: it reads, and its relay sends
brokers.py     how messages are read from NATS JetStream, Redis Streams, or a file
database.py    PostgreSQL or a file of SQLite
points.py      moments at which a worker can be told to die
chain.py       the three processes, started again whenever they end, and what became of each order
site.py        the page
"""
