"""Options that several commands share."""

from __future__ import annotations

import functools
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from fiprof.cli import output
from fiprof.errors import FiprofError
from fiprof.files import ARCHIVE_FOLDER, ARCHIVE_VARIABLE, archive_folder, clear, write_whole

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fiprof.model.manifest import RunKind
    from fiprof.model.run import Run
    from fiprof.model.selection import Selection
    from fiprof.model.settings import Setting
    from fiprof.orchestrator.run_folder import Archive
    from fiprof.reports.view import Document, Format, View

F = TypeVar("F", bound=Callable[..., Any])

JSON_VERSION = 1  # of the rows: raised when a key goes away or changes its meaning
PLAIN_WIDTH = 120  # columns where the output is no terminal


class Option(click.Option):
    """An option that stands under a heading in the help."""

    def __init__(self, *args: Any, heading: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading


general = functools.partial(click.option, cls=Option, heading="General")
launches = functools.partial(click.option, cls=Option, heading="Launches")
filters = functools.partial(click.option, cls=Option, heading="Filters")
quiet_option = general("--quiet", is_flag=True, help="No progress.")


def count(name: str, default: int | None, words: str, *, least: int = 1) -> Callable[[F], F]:
    """An option that takes a number N."""
    shown = default is not None
    return click.option(name, type=click.IntRange(least), default=default, show_default=shown, metavar="N", help=words)


def seconds(name: str, default: float, words: str) -> Callable[[F], F]:
    """An option that takes a time above 0, given to the command with ``_s`` behind its name."""
    kind, key = FiniteRange(0, None, True, unit="s"), f"{name.removeprefix('--')}_s"
    return click.option(name, key, type=kind, default=default, show_default=True, metavar="S", help=words)


def choice(name: str, choices: Sequence[str], words: str) -> Callable[[F], F]:
    """An option that takes one of the choices, by default the first."""
    return click.option(name, type=click.Choice(choices), default=choices[0], show_default=True, help=words)


def file(name: str, metavar: str, words: str) -> Callable[[F], F]:
    """An option that takes the path of a file to write."""
    return click.option(name, metavar=metavar, type=click.Path(dir_okay=False, path_type=Path), help=words)


def archive_option(function: F) -> F:
    """``--artifacts DIR``, given to the command as ``archive``."""

    @general(
        "--artifacts",
        metavar="DIR",
        default=ARCHIVE_FOLDER,
        envvar=ARCHIVE_VARIABLE,
        show_envvar=True,
        show_default=True,
        help="The archive of run folders.",
    )
    @functools.wraps(function)
    def wrapped(*args: Any, artifacts: str, **kwargs: Any) -> Any:
        from fiprof.orchestrator.run_folder import Archive, recover

        archive = Archive(Path(artifacts), output.message)
        # Where a bundle was being written.
        clear(Path())
        for sentence in recover(archive):
            output.message(f"note: {sentence}")
        return function(*args, archive=archive, **kwargs)

    return wrapped  # type: ignore[return-value]


def catalogue_option(function: F) -> F:
    """``--catalog URL``, given to the command as ``catalog``; brings ``--artifacts`` along."""
    return general(
        "--catalog",
        metavar="URL",
        envvar="FIPROF_CATALOG",
        show_envvar=True,
        help="The database that answers, e.g. postgresql+psycopg://HOST/NAME [default: an SQLite file in the archive].",
    )(archive_option(function))


def question_options(function: F) -> F:
    """Which runs a command is about: ``--kernel``, ``--where``, ``--gpu``, ``--since``, ``--tag`` and ``--status``."""
    where = "batch=128, batch>=64, dtype!=fp16: a parameter, quantity, package, git, user …; may be repeated."
    status = click.Choice(("complete", "failed", "interrupted", "damaged"))

    options = (
        filters("--kernel", metavar="TEXT", default="", help="With TEXT in a kernel's or case's name."),
        filters("--where", metavar="CONDITION", multiple=True, help=where),
        filters("--gpu", metavar="TEXT", default="", help="With TEXT in the GPU's name or UUID."),
        filters("--since", "since_", metavar="TIME", default="", help="30d, 12h, 2w, or a date."),
        filters("--tag", "tags", metavar="NAME", multiple=True, help="With this tag; may be repeated."),
        filters("--status", type=status, help="Ended so."),
    )
    return functools.reduce(lambda made, option: option(made), reversed(options), function)


def run_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The runs that a shell offers: ``latest``, and those of the archive."""
    found = archive_folder(ctx.params.get("artifacts")).glob("[!.]*")
    names = sorted(path.name for path in found if (path / "run.json").exists())
    return [name for name in ("latest", *names) if name.startswith(incomplete)]


def folder_argument(function: F, kinds: Sequence[RunKind] = ("run",), unless: str = "") -> F:
    """RUN, given to the command as the path ``folder``; brings ``--artifacts`` along. kinds: that latest may be.
    unless: an option in place of RUN, with which the command is given None."""

    @click.argument("run", metavar="RUN", shell_complete=run_names, required=not unless)
    @archive_option
    @functools.wraps(function)
    def wrapped(*args: Any, archive: Archive, run: str | None, **kwargs: Any) -> Any:
        if bool(run) == bool(kwargs.get(unless)):
            raise click.UsageError(f"give either RUN or --{unless}" if run else "Missing argument 'RUN'.")
        if not run:
            return function(*args, folder=None, **kwargs)
        folder = archive.find(run, lambda manifest: manifest.kind in kinds)
        if run == "latest" and folder.name != (newest := archive.names()[-1]):
            output.message(f"note: latest is {folder.name}; {newest} is no complete run that this command reads")
        return function(*args, folder=folder, **kwargs)

    return wrapped  # type: ignore[return-value]


any_folder_argument = functools.partial(folder_argument, kinds=("run", "comparison"))


def run_argument(function: F, unless: str = "") -> F:
    """RUN, given to the command as a :class:`fiprof.model.run.Run` whose tables are made if it has none yet. unless: as
    for :func:`folder_argument`."""

    @functools.partial(folder_argument, unless=unless)
    @functools.wraps(function)
    def wrapped(*args: Any, folder: Path | None, **kwargs: Any) -> Any:
        if folder is None:
            return function(*args, run=None, **kwargs)
        run, problems = open_run(folder)
        if kwargs.get("format_") == "table":
            output.message(_what_it_is(run))
        shown = function(*args, run=run, **kwargs)
        if problems:
            raise FiprofError("what is shown lacks what could not be read", f"fiprof parse {folder} tries again")
        return shown

    return wrapped  # type: ignore[return-value]


def _what_it_is(run: Run) -> str:
    """One line: the run, its GPU and how ncu measured."""
    from fiprof.model.settings import NCU_CONDITIONS

    manifest = run.manifest
    facts = [str(run.environment("gpu", "name") or "")]
    facts += [
        f"{title} {manifest.settings[name]}"
        for name, title in NCU_CONDITIONS.items()
        if run.has("launches") and manifest.settings.get(name) is not None
    ]
    if run.imported:
        kinds = ", ".join(dict.fromkeys(file.kind for file in manifest.imported))
        facts.append(f"imported from {manifest.imported[0].source if len(manifest.imported) == 1 else kinds}")
    if manifest.replayed_from:
        facts.append(f"replayed from {manifest.replayed_from}")
    return ": ".join(filter(None, (manifest.name, ", ".join(filter(None, facts)))))


def _import_numpy() -> None:
    """Import NumPy with one thread for linear algebra: more of them spin for 50 ms when it is loaded, and have nothing
    to do. What fiprof starts later inherits nothing of this."""
    variable = "OPENBLAS_NUM_THREADS"
    if variable in os.environ:
        return
    os.environ[variable] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[variable]


def open_run(folder: Path) -> tuple[Run, int]:
    """A run, its tables made where it has none but raw files; and the number of problems with that, which are printed.
    Raises FiprofError where the folder is no run, or a measured comparison."""
    _import_numpy()
    from fiprof.model.manifest import read_manifest
    from fiprof.model.run import Run
    from fiprof.orchestrator.run_folder import clear_run

    clear_run(folder)
    # Read now: a damaged manifest is no reason to make tables first.
    if read_manifest(folder).kind == "comparison":
        what = f"{folder} is a measured comparison: no profiler was started"
        raise FiprofError(what, f"fiprof compare {folder} shows it", exit_code=2)
    from fiprof.orchestrator.parse import with_tables

    def making() -> AbstractContextManager[object]:
        from fiprof.cli.progress import working

        output.message(f"making the tables of {folder}")
        return working("parse")

    at, problems = with_tables(folder, making)
    for problem in problems:
        output.message(f"fiprof: {problem}")
    return Run.of(folder, at), len(problems)


def setting_option(setting: Setting, heading: str = "Options") -> click.Option:
    """The option that a setting's declaration makes, given to the command under the setting's name."""
    option, comma_list = setting.option, setting.several and not setting.repeatable
    kind: Any = {bool: click.BOOL, int: click.INT}.get(setting.type, click.STRING)
    if comma_list:
        kind = lambda text: _chosen_of(setting.choices, text)  # noqa: E731
    elif setting.choices:
        kind = click.Choice(setting.choices)
    elif setting.type is float:
        low = setting.low if setting.above is None else setting.above
        kind = FiniteRange(low, setting.high, setting.above is not None, unit=setting.unit)
    elif setting.type is int and setting.low is not None:
        kind = click.IntRange(int(setting.low), None if setting.high is None else int(setting.high))
    return Option(
        [f"{option}/{option.replace('--', '--no-', 1)}" if setting.type is bool else option, setting.name],
        heading=heading,
        type=kind,
        multiple=setting.repeatable,
        default=",".join(setting.default) if comma_list else setting.default,
        envvar=setting.variable or None,
        show_default=not setting.otherwise and not setting.repeatable,
        metavar=setting.metavar or ("LIST" if comma_list else None),
        help=f"{setting.help} [default: {setting.otherwise}]." if setting.otherwise else setting.help,
    )


def _chosen_of(choices: tuple[str, ...], text: str) -> tuple[str, ...]:
    """Those of the choices that a comma list names, in their order."""
    words = split(text)
    if not words or not set(words) <= set(choices):
        raise click.BadParameter(f"{text} is not a comma list of {', '.join(choices)}")
    return tuple(choice for choice in choices if choice in words)


class FiniteRange(click.FloatRange):
    """A range of numbers; nan and infinities are in none. unit: may stand behind the number."""

    def __init__(self, *bounds: Any, unit: str = "", **more: Any) -> None:
        super().__init__(*bounds, **more)
        self.unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        bare: Any = value.removesuffix(self.unit) if isinstance(value, str) else value
        number = super().convert(bare, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is no finite number", param, ctx)


def split(text: str) -> list[str]:
    """The words of a comma list."""
    return [word.strip() for word in text.split(",") if word.strip()]


class Command(click.Command):
    """A command whose help has its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                heading = "General" if "--help" in parameter.opts else getattr(parameter, "heading", "Options")
                grouped.setdefault(heading, []).append(record)
        for heading, records in grouped.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def command(example: str, kind: type[click.Command] = Command, **more: Any) -> Callable[[F], click.Command]:
    """A command whose help ends with an example of it: ``fiprof NAME …``. more: as its kind takes it."""
    return click.command(example.split()[1], cls=kind, epilog=f"Example: {example}", **more)


class SettingsCommand(Command):
    """A command with options of settings, which are declared when they are asked for.

    settings: names of a collect's; or a class of ``model.settings``, for all of its. Each value is given to the command
    under the name. headings: tool of a setting -> the heading that its option stands under.
    """

    otherwise = "Options"  # the heading of the others

    def __init__(
        self, *args: Any, settings: Sequence[str] | str, headings: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._settings = settings
        self._headings = headings or {}

    @functools.cached_property
    def declared(self) -> dict[str, Setting]:
        """The settings that are options, by name."""
        from fiprof.model import settings

        named = self._settings if isinstance(self._settings, str) else "CollectSettings"
        every = {each.name: each for each in settings.settings_of(getattr(settings, named)) if each.option}
        return every if named == self._settings else {name: every[name] for name in self._settings}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        headings = ((each, self._headings.get(str(each.tool), self.otherwise)) for each in self.declared.values())
        return [*(setting_option(each, heading) for each, heading in headings), *super().get_params(ctx)]


def supervision_options(function: F) -> F:
    """``--wait`` and ``--quiet``, of commands that measure."""
    words = "Wait while another fiprof has the GPU."
    return general("--wait/--no-wait", default=True, show_default=True, help=words)(quiet_option(function))


def format_option(function: F) -> F:
    """``--format``, on every command that prints a table."""
    kind = click.Choice(("table", "json", "csv", "md"))
    option = general("--format", "format_", type=kind, default="table", show_default=True, help="How to print it.")
    return option(function)


class ChosenLaunches(NamedTuple):
    """The launches that the options name."""

    wanted: Selection
    every: bool  # leave nothing out for its length

    def most(self, default: int) -> int | None:
        """How many groups of launches people are shown; None for all."""
        return None if self.every else max(self.wanted.top or 0, default)

    def detailed(self, most: int) -> bool:
        """Whether they asked for single launches, or for everything. most: groups that are shown in full."""
        named = bool(self.wanted.kernel or self.wanted.launches) or (self.wanted.top or most + 1) <= most
        return self.every or named


def reading_options(function: F) -> F:
    """RUN, ``--launch``, ``--kernel``, ``--top``, ``--all`` and ``--format``: what every command takes that shows what
    is in a run. The launches are given to it as ``chosen``."""

    @launches("--launch", metavar="LIST", default="", help="Only the launches with these numbers, e.g. 3 or 0,3.")
    @launches(
        "--kernel",
        metavar="TEXT",
        default="",
        help="Only launches whose kernel or case has TEXT in its name, is TEXT (decode[batch=1], batch=1), or matches "
        "the regular expression TEXT.",
    )
    @launches(
        "--top", type=click.IntRange(1), metavar="N", help="Only the N that take most time, like launches as one."
    )
    @launches("--all", "every", is_flag=True, help="Leave out nothing: every launch, everything about it.")
    @format_option
    @run_argument
    @functools.wraps(function)
    def wrapped(*args: Any, launch: str, kernel: str, top: int | None, every: bool, **kwargs: Any) -> Any:
        from fiprof.model.selection import Selection

        numbers: list[int] = []
        for word in split(launch):
            first, dash, last = word.partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                raise click.BadParameter(f"{word} is no number of a launch", param_hint="--launch")
            numbers += range(int(first), int(last or first) + 1)
        return function(*args, chosen=ChosenLaunches(Selection(kernel, tuple(numbers), top), every), **kwargs)

    return wrapped  # type: ignore[return-value]


def write_page(out: Path, page: Callable[[], str]) -> None:
    """Write the page that ``--out`` names, whole or not at all, and say where."""
    from fiprof.cli.progress import working

    with working("page"):
        write_whole(out, page().encode(), "--out names another")
    output.message(str(out))


def width(plain: int = PLAIN_WIDTH) -> int:
    """Columns of the terminal (or COLUMNS); plain where there is none."""
    return shutil.get_terminal_size((plain, 24)).columns


def show(what: View | Document, format_: Format, *, run: Run | None = None, plain_width: int = PLAIN_WIDTH) -> None:
    """Print a report on stdout as ``--format`` says; colour and bars on a terminal only, unless NO_COLOR is set.

    CSV has no place for warnings: they go to stderr. run: that it is about. plain_width: columns where the output is
    no terminal.
    """
    from fiprof.reports import view, writers

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    about: dict[str, str | None] = {}
    if format_ == "json":
        # The command as it stands behind ``fiprof``, of a subcommand too.
        ctx = click.get_current_context()
        while ctx.parent and ctx.parent.parent:
            ctx = ctx.parent
        about = {
            "schema": f"{ctx.info_name}/{JSON_VERSION}",
            "run": run.manifest.name if run else None,
            "gpu": run.environment("gpu", "name") if run else None,
        }
    text = writers.render(what, format_, width=width(plain_width), colour=colour, bars=colour, about=about)
    output.data(text, styled=colour)
    if format_ == "csv":
        for text in view.warnings(what):
            output.message(f"warning: {text}")
