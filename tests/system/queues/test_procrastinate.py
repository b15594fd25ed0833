"""What only Procrastinate can do: count attempts, and be part of a transaction."""

from contextlib import closing

import psycopg
import pytest
from procrastinate import App, SyncPsycopgConnector

from oncekey import ConfigurationError, Once
from oncekey.jobs import by_fields
from oncekey.jobs.procrastinate import enqueue_once, once_task
from oncekey.messages import Inbox, Message


@pytest.mark.xdist_group("queue procrastinate")
@pytest.mark.parametrize("job", ["stall", "stall blocking"])
def test_a_job_that_is_put_back_costs_no_attempt(open_site, job):
    site, order = open_site("procrastinate"), open_site("procrastinate").order()
    first, second = (site.queue.put(job, order) for _ in range(2))
    site.said(order, "inside")
    site.happened(order, *["busy"] * 7)  # more often than the task may be tried
    site.tell(order)
    assert site.queue.result(first) == site.queue.result(second)
    with psycopg.connect(site.queue.url) as connection:
        found = connection.execute(
            "SELECT attempts, status FROM procrastinate_jobs WHERE id = ANY (%s)",
            [[int(first), int(second)]],
        ).fetchall()
    assert found == [(1, "succeeded")] * 2


@pytest.fixture
def app(postgres):
    with App(connector=SyncPsycopgConnector(conninfo=postgres.new_database())).open() as app:
        app.schema_manager.apply_schema()
        yield app


@pytest.fixture
def charge(app):
    with closing(Once("memory://")) as once:

        @app.task(name="charge", pass_context=True)
        @once_task(once, by_fields("order"))
        def charge(context, order): ...

        yield charge


class TestTransaction:
    """The recipe of `docs/jobs-procrastinate.md`."""

    def enqueue(self, inbox, connection, charge):
        with inbox.atomic(connection, Message(id="A-17")) as delivery:
            if not delivery.duplicate:
                delivery.complete(charge.configure(connection=connection).defer(order="A-17"))
        return delivery.result

    def count(self, connection):
        return connection.execute("SELECT count(*) FROM procrastinate_jobs").fetchone()[0]

    def test_job_and_mark_are_committed_together_or_not_at_all(self, app, charge):
        url = app.connector.get_sync_connector()._pool_args["conninfo"]
        with (
            closing(Inbox(url, consumer="enqueue")) as inbox,
            psycopg.connect(url, autocommit=True) as one,
        ):
            inbox.migrate()
            with pytest.raises(ZeroDivisionError), one.transaction():
                self.enqueue(inbox, one, charge)
                assert self.count(one) == 1
                raise ZeroDivisionError
            assert self.count(one) == 0
            jobs = []
            for _ in range(2):
                with one.transaction():
                    jobs.append(self.enqueue(inbox, one, charge))
            assert (self.count(one), jobs[0]) == (1, jobs[1])

    def test_a_record_that_would_outlive_it_is_refused(self, charge):
        with pytest.raises(ConfigurationError, match=r"inbox\.atomic"):
            enqueue_once(charge, {"order": "A-17"}, key=by_fields("order"), connection=object())
