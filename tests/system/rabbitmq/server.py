"""A real RabbitMQ: the Debian package, started on free loopback ports with temporary data.

Not as a service of the system: nothing of it is touched, and nothing is left behind.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tests.servers.ports import free_port
from tests.system.packages import RABBITMQ


class RabbitServer:
    """One server process, and the port mapper of Erlang that belongs to it alone."""

    def __init__(self, folder: Path) -> None:
        assert RABBITMQ.exists(), "no RabbitMQ: run make test-servers, which installs it"
        self.folder = folder
        self.port, self._dist, self._mapper = free_port(), free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self.process: Any = None
        for name in ("rabbitmq-env.conf", "rabbitmq.conf"):
            (folder / name).write_text("")
        (folder / "enabled_plugins").write_text("[].\n")
        cookie = folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)

    def start(self) -> "RabbitServer":
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                [str(RABBITMQ)], env=self._env(), cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        give_up = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < give_up:
            if self._answers():
                return self
            time.sleep(0.05)
        self.stop()
        said = (self.folder / "output").read_text("utf-8", "replace")
        raise AssertionError(f"RabbitMQ on port {self.port} did not start:\n{said}")

    def kill(self) -> None:
        """End the server with SIGKILL."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        epmd = shutil.which("epmd")
        if epmd is not None:  # only the one on our own port
            subprocess.run(
                [epmd, "-port", str(self._mapper), "-kill"],
                env=self._env(), check=False, capture_output=True,
            )  # fmt: skip

    def _answers(self) -> bool:
        """Whether it speaks AMQP: it says which version when it does not like what it hears."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
                line.sendall(b"AMQP\x00\x09\x09\x09")
                return line.recv(8).startswith(b"AMQP")
        except OSError:
            return False

    def _env(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": folder,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/rabbitmq-env.conf",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_NODENAME": f"oncekey-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
