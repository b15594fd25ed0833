"""A payment service that charges once, however often it is asked.

app.py        the service: POST /payments
checks.py     what a request must look like
document.py   the same in OpenAPI
gateway.py    a payment gateway that is slow, fails and hangs on cue, and keeps a book
tracing.py    the request id, which follows a call through context variables
"""
