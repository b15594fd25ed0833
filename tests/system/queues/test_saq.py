"""What SAQ alone can do, with real workers."""

import pytest

pytestmark = pytest.mark.xdist_group("queues")  # one process makes the environment


def test_each_round_of_a_cron_job_runs(open_site):
    site = open_site("saq")
    site.settled(lambda: len(site.effects("every second")) > 1)
