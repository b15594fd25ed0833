"""The behaviour of the middleware, the same in every framework: see `conftest.py`."""

# ruff: noqa: F401 - the tests are there to be found

from tests.http.suite.bad_keys import TestBadKeys
from tests.http.suite.commerce import TestAgenticCommerce, TestUniversalCommerce
from tests.http.suite.endings import TestEndings
from tests.http.suite.payments import TestPayments
from tests.http.suite.replay import TestReplay
from tests.http.suite.sameness import TestSameness
from tests.http.suite.scopes import TestScopes
from tests.http.suite.status import TestStatus
from tests.http.suite.streams import TestStreams
from tests.http.suite.stripe import TestStripe
from tests.http.suite.together import TestHung, TestTogether, TestTwoProcesses
from tests.http.suite.trouble import TestHeld, TestStoreDown
from tests.http.suite.unprotected import TestUnprotected
from tests.http.suite.untouched import TestUntouched
from tests.http.suite.webhook import TestWebhook
