"""A job with five stages, watched in a browser: `python -m examples.events`.

job.py         what the job does, and how its worker tells of it
app.py         the page, the stream of events, and the button that starts a job
page.py        the page as the server renders it, with everything that happened so far
static/        its template, its style and its script
ending.py      a server that lets go of those who watch when it ends
serving.py     the app on a port, until Ctrl-C

In memory it is one process. With `--store redis://localhost:6379/0` the events are in Redis; run
`oncekey router --domain scan` beside it. Then kill the router, start it again, reload the page, cut
the network, restart this server: the page still ends complete.
"""
