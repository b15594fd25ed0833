"""The dashboard: the records of a store in a browser, for the person on call.

    app.mount("/oncekey", Dashboard(once, token=os.environ["ONCEKEY_DASHBOARD_TOKEN"]))

It needs the extra `oncekey[dashboard]`. The pages load nothing from other hosts.
"""

from __future__ import annotations

from oncekey.extras import needing

with needing("dashboard", __name__):
    from oncekey.dashboard.app import Dashboard

__all__ = ["Dashboard"]
