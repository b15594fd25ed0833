"""A Django project that is made by following the page about Django's database, and nothing else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.docs.snippets import blocks
from tests.servers.postgres_fixtures import postgres, postgres_url
from tests.system.mariadb.conftest import mariadb, new_url
from tests.system.mariadb.ways import settings

__all__ = ["mariadb", "new_url", "postgres", "postgres_url"]

PAGE = Path(__file__).parents[3] / "docs" / "stores-django.md"
CLIENT = """
from django.test import Client
sent = {"Idempotency-Key": "A-17", "Authorization": "Bearer secret-of-ann"}
answers = [
    Client().post("/orders", {"item": "tea"}, "application/json", headers=sent) for _ in range(2)
]
assert [one.status_code for one in answers] == [201, 201], answers
assert answers[0].content == answers[1].content
assert answers[1]["Idempotent-Replayed"] == "true"
from orders.models import Order
assert Order.objects.count() == 1
"""
ON_POSTGRESQL = """
DATABASES = {{
    "default": {{
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "{dbname}",
        "USER": "{user}",
        "PASSWORD": "{password}",
        "HOST": "{host}",
        "PORT": "{port}",
        "OPTIONS": {options},
    }}
}}
"""
ON_MYSQL = """
DATABASES = {{
    "default": {{
        "ENGINE": "django.db.backends.mysql",
        "NAME": "{database}",
        "USER": "{user}",
        "PASSWORD": "{password}",
        "HOST": "{host}",
        "PORT": "{port}",
    }}
}}
"""


class Project:
    """A project whose environment has the drivers of its own database, and those of no other."""

    def __init__(self, folder, databases):
        self.folder, self._databases = folder, databases
        self._hiding = folder / "hiding"
        self._hiding.mkdir()
        drivers = {"postgresql": ["psycopg", "psycopg_pool"], "mysql": ["pymysql", "asyncmy"]}
        for database, names in drivers.items():
            if f"backends.{database}" not in databases:
                for name in names:
                    missing = f"raise ModuleNotFoundError('No module named {name}', name='{name}')"
                    (self._hiding / f"{name}.py").write_text(missing)

    def follow(self):
        """Do what the page says, from its top to its bottom."""
        for block in blocks(PAGE.read_text("utf-8")):
            if block.language == "text":
                self._write(block.code)
            elif block.language == "console" and "pip" not in block.code:
                for line in block.code.splitlines():
                    self.run(*line.removeprefix("$ ").split())

    def _write(self, code):
        path = self.folder / re.match(r"# (\S+)\n", code)[1]
        if path.name == "__init__.py" and "mysql" not in self._databases:
            return  # the page says that it is for MySQL
        if path.name == "settings.py":
            code = path.read_text("utf-8") + self._databases + 'ALLOWED_HOSTS = ["*"]\n' + code
        path.write_text(code + "\n", "utf-8")

    def run(self, command, *words):
        python = [sys.executable, "-W", "ignore::ResourceWarning"]
        start = [*python, "-m", "django"] if command == "django-admin" else python
        done = subprocess.run(
            [*start, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(self._hiding), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def manage(self, *words):
        return self.run("python", "manage.py", *words)


@pytest.fixture(params=["sqlite", "postgresql", "postgresql with a pool", "mariadb"])
def project(request, tmp_path):
    databases = ""
    if request.param == "mariadb":
        databases = ON_MYSQL.format(**settings(request.getfixturevalue("new_url")))
    elif request.param != "sqlite":
        said = conninfo_to_dict(request.getfixturevalue("postgres_url"))
        options = {"pool": True} if "pool" in request.param else {}
        databases = ON_POSTGRESQL.format(**said, options=options)
    made = Project(tmp_path, databases)
    made.follow()
    return made


def test_the_page_alone_protects_a_project(project):
    project.manage("shell", "-c", CLIENT)
    listed = project.manage("oncekey", "ls", "--json")
    assert '"status":"completed"' in listed.replace(" ", "")
    assert "nothing" not in project.manage("migrate")
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")
    assert "No planned migration" not in project.manage("migrate", "oncekey", "zero")
    assert '"status"' in project.manage("oncekey", "ls", "--json")  # the records are still there
    project.manage("migrate")
    project.manage("test", "--parallel", "2")
    for kept in (["--keepdb"], ["--keepdb"], []):
        project.manage("test", "--noinput", *kept)


def test_another_alias_is_migrated_by_name(postgres_url, tmp_path):
    said = conninfo_to_dict(postgres_url)
    other = ON_POSTGRESQL.format(**said, options={}).replace("default", "other")
    databases = other.replace("DATABASES = {", "DATABASES |= {", 1)
    project = Project(tmp_path, databases)
    project.follow()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        there = "SELECT to_regclass('oncekey_records') IS NOT NULL"
        assert connection.execute(there).fetchone() == (False,)
        project.manage("migrate", "--database", "other")
        assert connection.execute(there).fetchone() == (True,)
