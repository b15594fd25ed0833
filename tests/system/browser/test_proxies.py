"""Events through the proxies that the docs set up: at once, and more than six tabs over HTTP/2."""

import re
import subprocess
from pathlib import Path

import pytest

from oncekey.events import AsyncBus, Bus, Gateway, Memory, Stages
from tests.patience import until
from tests.servers.ports import free_port
from tests.system.browser.gateway_site import GatewaySite
from tests.system.packages import find_caddy, find_nginx

pytestmark = pytest.mark.xdist_group("browser")

DOCS = (Path(__file__).parents[3] / "docs" / "events.md").read_text("utf-8")
STAGES = Stages({"work": (1, 9999)})
HTTP_1, TABS = 6, 8  # as many connections a browser opens to a host; more jobs than that
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/a; uwsgi_temp_path {folder}/b; scgi_temp_path {folder}/c;
    server {{
        listen 127.0.0.1:{port}{tls};
        ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
        location / {{ proxy_pass {site}; }}
        {recipe}
    }}
}}
"""
CADDY = """
{{
    admin off
    skip_install_trust
    storage file_system {folder}/caddy
    auto_https disable_redirects
}}
https://127.0.0.1:{port} {{
    tls {folder}/cert.pem {folder}/key.pem
    {recipe}
    reverse_proxy {site}
}}
"""


def of_docs(pattern, site):
    """What the docs say, for the address of our server."""
    [recipe] = re.findall(pattern, DOCS, re.MULTILINE)
    return recipe.replace("127.0.0.1:8000", site.url.removeprefix("http://"))


@pytest.fixture
def site():
    memory = Memory()
    gateway = Gateway(AsyncBus(memory, domain="scan", stages=STAGES), allow=None)
    with GatewaySite(gateway) as site:
        site.bus = Bus(memory, domain="scan", stages=STAGES)
        yield site


@pytest.fixture(params=["nginx", "nginx, HTTP/2", "nginx, not set up", "caddy"])
def proxy(request, site, tmp_path):
    """The address of the proxy, and whether it speaks HTTP/2."""
    port, kind = free_port(), request.param
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",  # noqa: S607 - any will do
         "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    told = {"folder": tmp_path, "port": port, "site": site.url}
    settings = tmp_path / "settings"
    if kind == "caddy":
        recipe = of_docs(r"`(reverse_proxy /events/\* [\d.:]+)`", site)
        settings.write_text(CADDY.format(recipe=recipe, **told))
        command = [find_caddy(), "run", "--adapter", "caddyfile", "--config", settings]
    else:
        recipe = (
            ""
            if kind.endswith("not set up")
            else of_docs(r"^location /events/ \{.*(?:\n .*)*\n\}", site)
        )
        tls = " ssl http2" if kind.endswith("2") else ""
        settings.write_text(NGINX.format(recipe=recipe, tls=tls, **told))
        command = [find_nginx(), "-p", tmp_path, "-c", settings, "-e", tmp_path / "error.log"]
    assert command[0] is not None, f"no {kind}: run make test-servers, which installs it"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    secured = kind in ("nginx, HTTP/2", "caddy")
    yield f"http{'s' if secured else ''}://127.0.0.1:{port}", secured, process
    process.terminate()
    process.wait()


def test_events_come_at_once_through_a_proxy(site, proxy, new_context):
    address, secured, process = proxy
    page = new_context(ignore_https_errors=True).new_page()

    def reached():
        assert process.poll() is None, "the proxy has ended"
        try:
            return page.goto(address).ok
        except Exception:  # noqa: BLE001 - it is still starting
            return False

    until(reached)
    tabs = TABS if secured else HTTP_1 - 1
    page.evaluate(
        """(tabs) => {
          window.seen = Array.from({ length: tabs }, () => []);
          window.opened = 0;
          seen.forEach((events, tab) => {
            const source = new EventSource(`/events/job-${tab}`);
            source.onopen = () => (opened += 1);
            source.onmessage = (message) => events.push(JSON.parse(message.data).seq);
          });
        }""",
        tabs,
    )
    page.wait_for_function(f"opened === {tabs}")
    for number in range(1, 4):  # each comes while the connection stays open, before there is more
        for tab in range(tabs):
            site.bus.publish(f"job-{tab}", "work", "x", seq=number)
        page.wait_for_function(f"seen.every((events) => events.length === {number})")
    assert page.evaluate("opened") == tabs
    protocol = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
    assert page.evaluate(protocol) == ("h2" if secured else "http/1.1")
    page.goto("about:blank")
