"""The behaviour of the middleware, the same in every framework: see `conftest.py`."""

# ruff: noqa: F401 - the tests are there to be found

from tests.surfaces.http.suite.bad_keys import TestBadKeys
from tests.surfaces.http.suite.endings import TestEndings
from tests.surfaces.http.suite.payments import TestPayments
from tests.surfaces.http.suite.replay import TestReplay
from tests.surfaces.http.suite.sameness import TestSameness
from tests.surfaces.http.suite.scopes import TestScopes
from tests.surfaces.http.suite.status import TestStatus
from tests.surfaces.http.suite.streams import TestStreams
from tests.surfaces.http.suite.stripe import TestStripe
from tests.surfaces.http.suite.together import TestTogether, TestTwoProcesses
from tests.surfaces.http.suite.trouble import TestHeld, TestStoreDown
from tests.surfaces.http.suite.untouched import TestUntouched
from tests.surfaces.http.suite.webhook import TestWebhook
