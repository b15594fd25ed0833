"""What Django Tasks cannot do: look up a result in every back end."""

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
