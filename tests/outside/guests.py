"""The projects whose suites are run, and how each of them is."""

from typing import NamedTuple

BARE = "bare"
WRAPPED = "wrapped"
KEYED = "keyed"
DECORATED = "decorated"
OF_HTTP = (BARE, WRAPPED, KEYED)
OF_JOBS = (BARE, DECORATED)

TITLES = {BARE: "bare", WRAPPED: "without keys", KEYED: "with keys", DECORATED: "decorated"}
CLAIMS = frozenset({KEYED, DECORATED})
"""The modes in which requests or jobs are claimed."""

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "oncekey_outside.outcomes")
PATIENCE = "--timeout=120"


class Guest(NamedTuple):
    """A suite, the environment it needs and the words that start it."""

    name: str
    distribution: str
    about: str
    """What of the suite runs, for the page."""
    modes: tuple[str, ...]
    requirements: tuple[str, ...]
    """Names; `constraints.txt` and `constraints/` say which versions."""
    command: tuple[str, ...]
    """What Python is told, without the tests."""
    tests: tuple[str, ...]
    environment: str = ""
    """Whose environment it shares; empty: its own."""
    folder: str = "."
    """Where in the source distribution it starts."""
    redis: bool = False
    """Whether it needs a server, which then also keeps our records."""

    @property
    def home(self) -> str:
        """The name of its environment."""
        return self.environment or self.name


STARLETTE = Guest(
    name="starlette",
    distribution="starlette",
    about="All of `tests`. The middleware is around the application of every `TestClient`.",
    modes=OF_HTTP,
    requirements=(
        *("starlette[full]", "httpx2[zstd]", "blockbuster", "importlib-metadata"),
        *("opentelemetry-sdk", "pytest", "pytest-codspeed", "pytest-timeout", "trio"),
    ),
    command=(*PYTEST, "-p", "oncekey_outside.asgi", PATIENCE),
    tests=("tests",),
)

FLASK = Guest(
    name="flask",
    distribution="Flask",
    about="All of `tests`. `oncekey.http.flask.install` is called for every `Flask`.",
    modes=OF_HTTP,
    requirements=(
        *("flask[async]", "asgiref", "cryptography", "greenlet", "pytest", "pytest-timeout"),
        "python-dotenv",
    ),
    command=(*PYTEST, "-p", "oncekey_outside.wsgi", PATIENCE),
    tests=("tests",),
)

FASTAPI = Guest(
    name="fastapi",
    distribution="fastapi",
    about="All of `tests`. The middleware is around the application of every `TestClient`.",
    modes=OF_HTTP,
    requirements=(
        *("fastapi[all]", "a2wsgi", "anyio[trio]", "coverage[toml]", "dirty-equals", "flask"),
        *("inline-snapshot", "logfire", "opentelemetry-exporter-otlp-proto-http"),
        *("opentelemetry-instrumentation-fastapi", "pwdlib[argon2]", "pyjwt", "pytest"),
        *("pytest-codspeed", "pytest-timeout", "pytest-xdist", "python-slugify", "ruff"),
        *("sentry-sdk", "sqlmodel", "strawberry-graphql"),
    ),
    command=(*PYTEST, "-p", "oncekey_outside.asgi", PATIENCE, "-n", "2"),
    tests=("tests",),
)

# The folders of Django's tests that use a test client, a handler or a request factory, and five
# about requests, responses and URLs themselves. The others test the ORM, forms, templates and
# commands. Left out: gis_tests, which needs a spatial database, and cache and utils_tests, where a
# few requests are made for something else.
DJANGO_LABELS = (
    *("admin_changelist", "admin_custom_urls", "admin_docs", "admin_filters", "admin_inlines"),
    *("admin_ordering", "admin_utils", "admin_views", "admin_widgets", "asgi", "async"),
    *("auth_tests", "builtin_server", "conditional_processing", "contenttypes_tests"),
    *("context_processors", "csrf_tests", "decorators", "deprecation", "file_uploads"),
    *("flatpages_tests", "generic_inline_admin", "generic_views", "handlers", "httpwrappers"),
    *("i18n", "logging_tests", "messages_tests", "middleware", "middleware_exceptions"),
    *("modeladmin", "project_template", "proxy_models", "redirects_tests", "requests_tests"),
    *("responses", "servers", "sessions_tests", "shortcuts", "signed_cookies_tests"),
    *("sitemaps_tests", "sites_tests", "staticfiles_tests", "syndication_tests"),
    *("template_backends", "template_loader", "template_tests", "test_client"),
    *("test_client_regress", "test_utils", "timezones", "urlpatterns", "urlpatterns_reverse"),
    *("view_tests", "wsgi"),
)

DJANGO = Guest(
    name="django",
    distribution="Django",
    about=(
        f"{len(DJANGO_LABELS)} folders of `tests`: those that use a test client, a handler or a "
        "request factory, and a few about requests and responses themselves. They are run by "
        "`runtests.py` on SQLite. The middleware is last in every `MIDDLEWARE`."
    ),
    modes=OF_HTTP,
    requirements=("Django", "docutils", "jinja2", "PyYAML", "tblib", "tzdata", "Pillow"),
    command=("-m", "oncekey_outside.django_suite"),
    tests=DJANGO_LABELS,
    folder="tests",
)

CELERY_REQUIREMENTS = (
    *(
        "celery[redis]",
        "cryptography",
        "hiredis",
        "msgpack",
        "pydantic",
        "pytest",
        "pytest-click",
        "pytest-order",
    ),
    *("pytest-rerunfailures", "pytest-subtests", "pytest-timeout", "PyYAML", "freezegun"),
)
CELERY_COMMAND = (*PYTEST, "-p", "oncekey_outside.celery_tasks", PATIENCE)

CELERY_UNIT = Guest(
    name="celery",
    distribution="celery",
    about=(
        "The tests of tasks, canvas, chords, tracing and the application in `t/unit`. "
        "`once_task` is under every `@app.task` and `@shared_task`, with the id as its key."
    ),
    modes=OF_JOBS,
    requirements=CELERY_REQUIREMENTS,
    command=CELERY_COMMAND,
    tests=("t/unit/tasks", "t/unit/app/test_app.py", "t/unit/app/test_builtins.py"),
)

CANVAS = "t/integration/test_canvas.py"
# All of it would take too long.
SOME_CHAINS = (
    *("test_simple_chain", "test_complex_chain", "test_chain_on_error"),
    *("test_group_results_in_chain", "test_group_chord_group_chain"),
)
SOME_GROUPS = (
    *("test_callback_called_by_group", "test_errback_called_by_group_fail_multiple"),
    *("test_group_child_replaced_with_chain_first", "test_group_children_with_errbacks"),
    *("test_nested_group", "test_parent_ids", "test_task_replace_with_group_preserves_group_order"),
)
SOME_CHORDS = (
    *("test_chord_in_chords_with_chains", "test_chord_on_error", "test_group_chain"),
    *("test_error_propagates_from_chord", "test_nested_chord", "test_parallel_chords"),
    *("test_parent_ids", "test_replaced_nested_chord"),
)

CELERY_INTEGRATION = Guest(
    name="celery-integration",
    distribution="celery",
    about=(
        f"A sample of `{CANVAS}`: errbacks, maps, and some chains, groups and chords. The worker "
        "is the one of Celery's own fixture, which forks its processes. A Redis is the broker, "
        "the result back end and our store."
    ),
    modes=OF_JOBS,
    requirements=CELERY_REQUIREMENTS,
    command=(*CELERY_COMMAND, "-p", "celery.contrib.pytest"),
    tests=(
        f"{CANVAS}::test_link_error",
        f"{CANVAS}::test_xmap_xstarmap",
        *(f"{CANVAS}::test_chain::{name}" for name in SOME_CHAINS),
        *(f"{CANVAS}::test_group::{name}" for name in SOME_GROUPS),
        *(f"{CANVAS}::test_chord::{name}" for name in SOME_CHORDS),
    ),
    environment="celery",
    redis=True,
)

GUESTS = (STARLETTE, FASTAPI, FLASK, DJANGO, CELERY_UNIT, CELERY_INTEGRATION)
