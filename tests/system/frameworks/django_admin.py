"""A Django project with records in its admin. It tries every page and every decision, once."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import django  # type: ignore[import-untyped]  # Django brings no types
from django.conf import settings  # type: ignore[import-untyped]  # as above
from django.contrib import admin  # type: ignore[import-untyped]  # as above
from django.core.management import call_command  # type: ignore[import-untyped]  # as above
from django.test import AsyncClient, Client  # type: ignore[import-untyped]  # as above
from django.test.utils import setup_test_environment  # type: ignore[import-untyped]  # as above
from django.urls import path  # type: ignore[import-untyped]  # as above

from oncekey.http.django import project_once

FOLDER = Path(sys.argv[1])
settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "shop.db"}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "oncekey.django",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    ONCEKEY={"store": "django://default"},
    ROOT_URLCONF=__name__,
    SECRET_KEY="a secret of tests",  # noqa: S106 - and of nobody else
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    USE_TZ=True,
)
django.setup()

urlpatterns = [path("admin/", admin.site.urls)]

LIST = "/admin/oncekey/record/"
PAID = "card 4111"


def user(name, *permissions):
    from django.contrib.auth.models import Permission, User  # type: ignore[import-untyped]  # as above

    one = User.objects.create_user(name, password=name, is_staff=True)
    for permission in permissions:
        one.user_permissions.add(Permission.objects.get(codename=f"{permission}_record"))
    client = Client()
    client.force_login(one)
    return client


def held(once, key):
    with suppress(TimeoutError):
        once.options(on_crash="hold", uncertain=(TimeoutError,)).run(key, late)
    assert once.get(key).status == "held"


def late():
    raise TimeoutError


def decide(client, key, how, **more):
    state = client.get(LIST + key + "/").context["state"]
    form = {"how": how, "state": state, "confirmed": "yes", "reason": "the bank said so"}
    return client.post(LIST + key + "/", form | more, follow=True)


def said(answer):
    return [str(one) for one in answer.context["messages"]]


def main():
    call_command("migrate", verbosity=0)
    setup_test_environment()
    once = project_once()
    once.options(scope="ann").run("paid/1", lambda: PAID)
    for key in ("one", "two", "three"):
        held(once, key)
    boss = user("boss", "view", "change", "delete")
    clerk, visitor = user("clerk", "view"), user("visitor")

    # The list, its filters, and who may see it
    assert visitor.get(LIST).status_code == 403
    assert Client().get(LIST).status_code == 302
    assert visitor.get(LIST + "one/").status_code == 403

    def rows(**asked):
        return {one.key for _, one, *_ in clerk.get(LIST, asked).context["rows"]}

    assert rows() == {"paid/1", "one", "two", "three"}
    assert rows(status="held") == {"one", "two", "three"}
    assert rows(scope="ann") == {"paid/1"}
    assert rows(key="t") == {"two", "three"}
    assert rows(key="nothing") == set()
    assert clerk.get(LIST + "add/").status_code == 404
    assert asyncio.run(AsyncClient().get(LIST)).status_code == 302

    # An attempt whose process died is not called running
    lease = {"lease": "1ms", "heartbeat": False}
    once.options(scope="dead", **lease).attempt("worker").__enter__()
    (row,) = clerk.get(LIST, {"scope": "dead"}).context["rows"]
    while row[2] == "running":
        (row,) = clerk.get(LIST, {"scope": "dead"}).context["rows"]
    assert row[2] == "lapsed"
    assert b"<td>lapsed</td>" in clerk.get(row[0]).content

    # One record: its result is shown to nobody who does not ask, nor to whom may only look
    address = boss.get(LIST, {"scope": "ann"}).context["rows"][0][0]
    assert PAID not in boss.get(address).content.decode()
    assert PAID in boss.get(address, {"result": "show"}).content.decode()
    assert PAID not in clerk.get(address, {"result": "show"}).content.decode()
    assert boss.get(LIST + "nowhere/").status_code == 404

    # Decisions
    page = clerk.get(LIST + "one/")
    assert b'type="radio"' not in page.content
    form = {"how": "retry", "state": page.context["state"], "confirmed": "yes"}
    assert clerk.post(LIST + "one/", form).status_code == 403
    assert clerk.post(LIST + "one/", form | {"how": "forget"}).status_code == 403
    assert "tick the box" in said(decide(boss, "one", "retry", confirmed=""))[0]
    assert "tick the box" in said(decide(boss, "one", "explode"))[0]
    assert "changed meanwhile" in said(decide(boss, "one", "retry", state="0.held"))[0]
    assert "Nothing was done" in said(decide(boss, "one", "result", words="{"))[0]
    assert once.get("one").status == "held"

    assert "written down" in said(decide(boss, "one", "result", words='{"order": 7}'))[0]
    assert once.run("one", late) == {"order": 7}
    assert "written down" in said(decide(boss, "two", "retry"))[0]
    assert once.run("two", lambda: "again") == "again"
    assert "written down" in said(decide(boss, "three", "forget"))[0]
    assert once.get("three") is None
    assert b"resolve by boss: the bank said so" in boss.get(LIST + "one/").content
    once.close()


if __name__ == "__main__":
    sys.modules["django_admin"] = sys.modules[__name__]
    main()
