"""The command line on a MariaDB: looking makes no tables, and migrating says what it did."""

import subprocess
import sys

from oncekey import Once


def oncekey(*words):
    program = "from oncekey.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )


def test_looking_changes_nothing_and_migrate_makes_the_tables(mariadb, new_url):
    name = new_url.rpartition("/")[2]
    looked = oncekey("ls", "--store", new_url)
    assert looked.returncode != 0
    assert "`oncekey migrate` makes the tables" in looked.stderr
    assert mariadb.say(f"SHOW TABLES FROM {name}") == ()
    assert "made the tables, schema 1" in oncekey("migrate", "--store", new_url).stdout
    assert "everything is up to date" in oncekey("migrate", "--store", new_url).stdout


def test_records_are_listed_counted_exported_and_forgotten(new_url, tmp_path):
    once = Once(new_url)
    for number in range(3):
        once.run(f"order:{number}", lambda: "done")
    once.close()
    listed = oncekey("ls", "--store", new_url, "--json")
    assert listed.returncode == 0, listed.stderr
    assert all(f"order:{number}" in listed.stdout for number in range(3))
    counted = oncekey("stats", "--store", new_url, "--json")
    assert counted.returncode == 0, counted.stderr
    assert '"completed": 3' in counted.stdout
    exported = oncekey("export", str(tmp_path / "records"), "--store", new_url)
    assert exported.returncode == 0, exported.stderr
    assert (tmp_path / "records").stat().st_size > 0
    forgotten = oncekey("forget", "order:1", "--store", new_url, "--yes")
    assert forgotten.returncode == 0, forgotten.stderr
    assert "order:1" in oncekey("audit", "--store", new_url).stdout
