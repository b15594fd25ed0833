"""The payment service and the receiver of webhooks over real HTTP: `python -m examples.demo`.

server.py      both services in a process of their own
process.py     such a process, as whoever started it sees it
talk.py        requests, their answers, and the curl commands that send the same
case.py        a case, and the place it is played at
cases.py       what is asked, case by case, and what must be true of the answers
crash.py       the case in which a server is killed
watched.py     the case in which a job is watched, in memory
chain.py       the case of three services that send each other messages, and are killed
stage.py       where it is shown: in colours, as plain text, as JSON
site.py        servers on one store, in a temporary folder
serving.py     the services for a reader with curl and a browser, until Ctrl-C

It starts three servers on one SQLite file, fires each case at them, checks what it claims against
the gateway's own book, and ends by itself.
"""
