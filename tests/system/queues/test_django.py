"""What Django Tasks cannot do, look up a result in every back end, and what only they do."""

import subprocess
import sys

PROGRAM = """
from django.conf import settings

settings.configure()
from django_tasks import task
from oncekey import ConfigurationError, Once
from oncekey.jobs import by_fields
from oncekey.jobs.django import enqueue_once, once_task


@task(takes_context=True)
@once_task(Once("memory://"), by_fields("order"))
def charge(context, order):
    print("charged", order)
    return order


assert charge.enqueue("A-17").return_value == charge.enqueue("A-17").return_value == "A-17"
try:
    enqueue_once(charge, ("A-17",), key=by_fields("order"))
except ConfigurationError as error:
    print(error)
"""


def test_a_back_end_without_results_is_refused_at_enqueue():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    charged, told = done.stdout.splitlines()
    assert charged == "charged A-17"
    assert "ImmediateBackend cannot look it up" in told


ROLLED_BACK = """
import asyncio
import sys

from django.conf import settings

database = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
settings.configure(
    DATABASES={"default": database},
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    INSTALLED_APPS=["django_tasks_db"],
)
import django

django.setup()
from django.core.management import call_command
from django.db import transaction
from django_tasks import task
from oncekey import Once
from oncekey.jobs import by_fields
from oncekey.jobs.django import enqueue_once, enqueue_once_async, once_task

call_command("migrate", verbosity=0)


@task(takes_context=True)
@once_task(Once("memory://"), by_fields("order"))
def charge(context, order): ...


def enqueue(order):
    return enqueue_once(charge, (order,), key=by_fields("order"))


def enqueue_async(order):
    return asyncio.run(enqueue_once_async(charge, (order,), key=by_fields("order")))


for order, again in (("A-17", enqueue), ("A-18", enqueue_async)):
    with transaction.atomic():
        lost = enqueue(order)
        transaction.set_rollback(True)
    found = again(order)
    print(lost.duplicate, found.duplicate, found.handle.id != lost.handle.id)
    print(again(order).duplicate, again(order).handle.id == found.handle.id)
for rule in ({"until": "succeeded"}, {"per": "1h"}):
    with transaction.atomic():
        enqueue_once(charge, ("A-19",), key=by_fields("order"), **rule)
        transaction.set_rollback(True)
    try:
        enqueue_once(charge, ("A-19",), key=by_fields("order"), **rule)
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_task_whose_transaction_was_rolled_back_is_enqueued_again(tmp_path):
    """With a rule that outlives the task nobody knows whether it has run and was pruned."""
    done = subprocess.run(
        [sys.executable, "-c", ROLLED_BACK, tmp_path / "tasks.db"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["False False True", "True True"] * 2,
        *["TaskResultDoesNotExist"] * 2,
    ]
