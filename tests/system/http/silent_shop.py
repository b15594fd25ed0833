"""The shop in FastAPI behind a middleware of which its document says nothing."""

from oncekey import Once
from oncekey.http.asgi import IdempotencyMiddleware
from tests.system.http.fastapi_shop import make

app = make(plain=True)
app.add_middleware(IdempotencyMiddleware, once=Once("memory://"), scope=None, required=True)
