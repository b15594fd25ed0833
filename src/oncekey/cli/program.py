"""The typer program: its commands, its global options, and exit codes for every error."""

import errno
import os
import sys
from typing import Annotated, Any, Final, TextIO

import typer
from typer.core import TyperGroup

from oncekey import OncekeyError, __version__
from oncekey.cli import errors
from oncekey.cli.audit import audit
from oncekey.cli.bulk import forget_all, resolve_all
from oncekey.cli.dashboard import dashboard
from oncekey.cli.dead_letters import dead_letters
from oncekey.cli.doctor import doctor
from oncekey.cli.exporter import exporter
from oncekey.cli.forget import forget
from oncekey.cli.ls import ls
from oncekey.cli.migrate import migrate
from oncekey.cli.options import DEFAULT_STORE, STORE_VARIABLES, remember_store
from oncekey.cli.outbox import outbox
from oncekey.cli.purge import purge
from oncekey.cli.relay import relay
from oncekey.cli.resolve import resolve
from oncekey.cli.router import router
from oncekey.cli.show import show
from oncekey.cli.size import size
from oncekey.cli.stats import stats
from oncekey.cli.transfer import export, import_
from oncekey.cli.watch import watch
from oncekey.inspection.text import printable

_COMMANDS: Final = (
    *(
        ls,
        show,
        watch,
        stats,
        size,
        forget,
        forget_all,
        resolve,
        resolve_all,
        audit,
        dead_letters,
        outbox,
        purge,
        export,
        import_,
        migrate,
    ),
    *(doctor, dashboard, exporter, router, relay),
)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a full disk says to whoever writes the output to it."""
# Newer releases of typer bundle their own click; this finds the right class in all of them.
_UsageError: Final[Any] = typer.BadParameter.__base__


class Program(TyperGroup):
    """The group of commands. It turns errors into one sentence and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command and end the process with its exit code."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
        except _UsageError as error:
            code = _say(_usage(error), errors.WRONG)
        except typer.Abort:
            code = _say("nothing was changed", errors.NOTHING)
        except errors.CommandError as error:
            code = _say(str(error), error.code)
        except OncekeyError as error:
            code = _say(str(error), errors.code_of(error))
        except OSError as error:
            if error.errno not in _FULL:
                raise
            _write_no_more(sys.stdout)
            code = _say(f"the output cannot be written: {error.strerror}", errors.STORE)
        sys.exit(code or errors.DONE)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A reader that closes the pipe early, like `head`, is no error."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _write_no_more(sys.stdout)
            raise typer.Exit(errors.DONE) from None
        return answer


def _write_no_more(stream: TextIO) -> None:
    """Lead the stream nowhere, or the interpreter writes its rest at exit and complains."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def program(*, terminal: bool) -> typer.Typer:
    """Return the program. `terminal` gives the help frames and colours."""
    app = typer.Typer(
        name="oncekey",
        cls=Program,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,  # they would print variables, which may be secret
        rich_markup_mode="rich" if terminal else None,
    )
    app.callback(invoke_without_command=True)(_start)
    for command in _COMMANDS:
        app.command(command.__name__.strip("_").replace("_", "-"))(command)
    return app


def _version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"oncekey {__version__}")
        raise typer.Exit


def _start(
    *,
    ctx: typer.Context,
    store: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar=list(STORE_VARIABLES), help="Where the records are kept."
        ),
    ] = DEFAULT_STORE,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda value: _version(asked=value),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Look at the records of a store, and change them by hand."""
    source = ctx.get_parameter_source("store")
    remember_store(ctx, store, typed=source is not None and source.name == "COMMANDLINE")
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _usage(error: Any) -> str:
    """Return what is wrong with the command line, and which help to read."""
    words = error.format_message().rstrip(".")
    words = words.replace("Value error, ", "")  # typer says it where pydantic is installed
    path = error.ctx.command_path if error.ctx is not None else "oncekey"
    end = " See" if words.endswith("?") else "; see"
    return f"{words}{end} `{path} --help`"


def _say(sentence: str, code: int) -> int:
    try:
        sys.stderr.write(f"oncekey: {printable(sentence)}\n")
        sys.stderr.flush()
    except OSError:  # the exit code says it, too
        _write_no_more(sys.stderr)
    return code
