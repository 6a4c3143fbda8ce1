"""Questions to the catalogue in words (``batch>=64``, ``30d``, ``-dram_share``), answered by the database: only what is
shown leaves it."""

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from fiprof import clock
from fiprof.errors import FiprofError
from fiprof.model.catalogue.store import (
    EPOCH,
    MOST_IDS,
    Row,
    archives,
    descriptions,
    environments,
    measured,
    parameters,
    runs,
    subjects,
    tags,
)
from fiprof.model.catalogue.summary import OF_CASES, VALUES
from fiprof.model.selection import matching
from fiprof.text import escape_control

FACTS = ("git", "user", "host", "fiprof", "command", "driver", "cuda", "uuid")
"""What ``--where`` takes besides parameters, quantities and packages."""
MOST_LISTED = 5000  # numbers in a statement
LARGEST = 2**62  # more rows than any database has; its integers end at 2**63
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt,
    "<": operator.lt,
}  # fmt: skip


class Condition(NamedTuple):
    """``NAME OPERATOR VALUE``: of a parameter, a quantity, a package or a fact of the run."""

    name: str
    operator: str  # one of OPERATORS
    text: str

    def on(self, number: Any = None, text: Any = None) -> Any:
        """The condition on a number, or on a text: on SQL columns an expression.

        Raises FiprofError for an order of texts.
        """
        try:
            if number is not None:
                return OPERATORS[self.operator](number, float(self.text))
        except ValueError:
            pass
        if text is None or self.operator not in ("=", "==", "!="):
            what = f"{self.name}{self.operator}{self.text} compares no numbers"
            raise FiprofError(what, "texts are compared with = and !=", exit_code=2)
        return OPERATORS[self.operator](text, self.text)


@dataclass(frozen=True)
class Question:
    """Which runs, and what of them. Empty for all."""

    kernel: str = ""
    """As ``--kernel`` of the other commands: a part of a kernel's or case's name, parameters, or a regular
    expression."""
    where: tuple[Condition, ...] = ()
    gpu: str = ""  # a part of the GPU's name or UUID
    since: datetime | None = None
    metrics: tuple[str, ...] = ()  # keys of VALUES
    tags: tuple[str, ...] = ()  # all of them
    status: str | None = None
    sort: str = "started"  # started, name, duration_s, bytes or a metric; with ``-`` before it the largest first
    limit: int | None = None  # the so many first in the order; of ``started`` the newest
    everywhere: bool = False  # also runs of other archives in the same database

    @property
    def filters(self) -> bool:
        """Whether it leaves out anything but by its limit."""
        return bool(self.kernel or self.where or self.gpu or self.since or self.metrics or self.tags or self.status)


def question(
    *,
    where: Sequence[str] = (),
    since_: str = "",
    metrics: Sequence[str] = (),
    tags: Sequence[str] = (),
    sort: str = "",
    **as_they_are: Any,
) -> Question:
    """A question from its words, as the options of ``fiprof runs`` take them. Raises FiprofError.

    The catalogue has escapes for what is not printable.
    """
    conditions = []
    for text in map(escape_control, where):
        found = re.fullmatch(r"\s*([\w.-]+?)\s*(>=|<=|!=|==|=|>|<)\s*(.*?)\s*", text, re.DOTALL)
        if not found or not found[3]:
            raise FiprofError(
                f"--where {text} is not a condition", "NAME=VALUE, or with != > >= < <=: batch>=64", exit_code=2
            )
        conditions.append(Condition(found[1], found[2], found[3]))
    keys = tuple(dict.fromkeys(map(_metric, metrics)))
    order, descending = sort.removeprefix("-") or "started", sort.startswith("-")
    if order not in ("started", "name", "duration_s", "bytes"):
        order = _metric(order)
        keys = keys if order in keys else (*keys, order)
    escaped: dict[str, Any] = {
        name: escape_control(each) if isinstance(each, str) else each for name, each in as_they_are.items()
    }
    return Question(
        where=tuple(conditions),
        since=_since(since_) if since_ else None,
        metrics=keys,
        tags=tuple(map(escape_control, tags)),
        sort=f"{'-' * descending}{order}",
        **escaped,
    )


def _since(text: str) -> datetime:
    """``30d``, ``12h``, ``2w`` before now, or a date or time, local unless it says. Raises FiprofError."""
    try:
        if found := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(h|d|w)", text.strip()):
            return clock.now() - timedelta(hours=float(found[1]) * {"h": 1, "d": 24, "w": 168}[found[2]])
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise FiprofError(
            f"--since {text} is not a time", "30d, 12h, 2w or a date such as 2026-11-01", exit_code=2
        ) from error


def _metric(name: str) -> str:
    """The key of a quantity that the catalogue has: itself, or without its unit (``l2_hit``). Raises FiprofError.

    A case's duration is that of an iteration without a profiler.
    """
    names = {"case_plain_us" if name == "duration" else name, f"case_{name}"}
    found = [key for key in VALUES if key in names or re.sub("_(us|pct|ghz|gb_per_s|tflops|mb)$", "", key) in names]
    if not found:
        raise FiprofError(f"the catalogue has no quantity {name}", f"it has {', '.join(VALUES)}", exit_code=2)
    return found[0]


class Answer(NamedTuple):
    """What a question finds, in its order."""

    rows: tuple[Row, ...] = ()
    """Runs by the keys of ``fiprof runs --format json``. Where the question names metrics, kernels and cases of runs:
    their name, path, started, gpu, uuid, driver, git, conditions (under which ncu measured), packages (name ->
    version), tags, case (its id), kernel, and each metric."""
    more: bool = False  # whether there are rows beyond the question's limit


def ask(connection: sa.Connection, archive: int, question: Question) -> Answer:
    """The answer. archive: whose runs are meant. Raises FiprofError for a name that no run has."""
    finder = _Finder(connection, archive, question)
    return finder.results() if question.metrics else finder.runs()


class _Finder:
    """A question on its way to a statement."""

    def __init__(self, connection: sa.Connection, archive: int, question: Question) -> None:
        self.connection = connection
        self.question = question
        self.archive = archive
        self.environments = {
            row.id: {**row._mapping, "packages": json.loads(row.packages)}
            for row in connection.execute(sa.select(environments))
        }
        quantities = [each for each in question.where if each.name in VALUES]
        asked = {*question.metrics, *(each.name for each in quantities)}
        # Rows are of kernels, or of cases as a whole; where both are asked for, the case's stands beside its kernels'.
        of_kernels = bool(asked.difference(OF_CASES))
        self.whole: sa.FromClause | None = None
        self.source: sa.FromClause = measured
        if of_kernels and asked.intersection(OF_CASES):
            whole = self.whole = measured.alias("whole")
            of_case = sa.select(subjects.c.whole).where(subjects.c.id == measured.c.subject).scalar_subquery()
            same = sa.and_(whole.c.run == measured.c.run, whole.c.subject == of_case)
            self.source = measured.join(whole, same, isouter=True)
        self.of_runs: list[sa.ColumnElement[bool]] = [
            runs.c.id.in_(sa.select(tags.c.run).where(tags.c.tag == tag)) for tag in question.tags
        ]
        if question.status:
            self.of_runs.append(runs.c.status == question.status)
        of_subjects = [self._kernel(question.kernel)] if question.kernel else []
        for each in question.where:
            if each.name not in VALUES:
                self._add(each, of_subjects)
        self.of_measured = [each.on(self._value(each.name)) for each in quantities]
        self.by_subject = bool(of_subjects)
        if of_subjects:
            # The rows of the other level have nothing of what is asked.
            kernel = subjects.c.kernel
            level = [kernel.is_not(None) if of_kernels else kernel.is_(None)] if asked else []
            wanted = sa.select(subjects.c.id).where(*level, *of_subjects)
            # As numbers, by which a database plans better, where there are few.
            numbers = connection.scalars(wanted.limit(MOST_LISTED + 1)).all()
            few = len(numbers) <= MOST_LISTED
            self.of_measured.append(measured.c.subject.in_(_listed(numbers) if few else wanted))

    # Conditions

    def _add(self, wanted: Condition, of_subjects: list[sa.ColumnElement[bool]]) -> None:
        """Add a condition on a fact of the run, a parameter or a package."""
        name = wanted.name
        if name in ("driver", "cuda", "uuid"):
            fits = self._in_environments(runs, lambda each: wanted.on(text=each[name] or "") and each[name])
            self.of_runs.append(fits)
        elif name == "git" and wanted.operator != "!=":
            wanted.on(text="")
            self.of_runs.append(runs.c.git.like(f"{_escaped(wanted.text)}%", escape="\\"))
        elif name == "command":
            fits = wanted.on(text=descriptions.c.shown["command"].as_string())
            self.of_runs.append(runs.c.id.in_(sa.select(descriptions.c.run).where(fits)))
        elif name in FACTS:
            self.of_runs.append(wanted.on(text=runs.c[name]))
        elif self.connection.execute(sa.select(1).where(parameters.c.name == name).limit(1)).first():
            fits = sa.and_(parameters.c.name == name, wanted.on(parameters.c.number, parameters.c.text))
            of_subjects.append(subjects.c.whole.in_(sa.select(parameters.c.subject).where(fits)))
        elif any(name in each["packages"] for each in self.environments.values()):
            wanted.on(text="")
            with_package = [each for each in self.environments.values() if name in each["packages"]]
            fitting = [each["id"] for each in with_package if wanted.on(text=each["packages"][name])]
            self.of_runs.append(runs.c.environment.in_(_listed(fitting)))
        else:
            names = self.connection.scalars(sa.select(parameters.c.name).distinct().order_by(parameters.c.name)).all()
            remedy = f"--where takes {', '.join([*names, *FACTS])}, a metric, or a package with = or !="
            raise FiprofError(f"no run has a parameter {name}", remedy, exit_code=2)

    def _in_environments(self, table: sa.Table, fits: Callable[[Row], object]) -> sa.ColumnElement[bool]:
        return table.c.environment.in_(_listed([number for number, each in self.environments.items() if fits(each)]))

    def _kernel(self, words: str) -> sa.ColumnElement[bool]:
        """Subjects that ``--kernel`` means, as other commands take it, and the cases that they are of."""
        fitting = subjects.alias()
        part = f"%{_escaped(words)}%"
        like = sa.or_(fitting.c.kernel.ilike(part, escape="\\"), fitting.c.case.ilike(part, escape="\\"))
        if "=" in words or not self.connection.execute(sa.select(fitting.c.id).where(like).limit(1)).first():
            found = self.connection.execute(sa.select(subjects.c.id, subjects.c.kernel, subjects.c.case))
            names = {number: (kernel or "", "", case or "", "") for number, kernel, case in found}
            meant = matching(words, names.values())
            like = fitting.c.id.in_(_listed([number for number, name in names.items() if name in meant]))
        whole = subjects.c.id.in_(sa.select(fitting.c.whole).where(like))
        return sa.or_(subjects.c.id.in_(sa.select(fitting.c.id).where(like)), whole)

    def _shared(self, table: sa.Table) -> list[sa.ColumnElement[bool]]:
        """Conditions on what both ``runs`` and ``measured`` have."""
        asked, part = self.question, self.question.gpu.lower()
        found = [] if asked.everywhere else [table.c.archive == self.archive]
        if asked.since:
            found.append(table.c.started_us >= (asked.since - EPOCH) // timedelta(microseconds=1))
        if part:
            found.append(self._in_environments(table, lambda each: part in f"{each['gpu']}\n{each['uuid']}".lower()))
        return found

    # Rows

    def _value(self, key: str) -> sa.ColumnElement[Any]:
        return (self.whole if self.whole is not None and key in OF_CASES else measured).c[key]

    def runs(self) -> Answer:
        """Runs that have what was asked for, each once."""
        conditions = [*self._shared(runs), *self.of_runs]
        found = sa.select(measured.c.run).select_from(self.source)
        if self.by_subject and not self.question.tags:
            conditions.append(runs.c.id.in_(found.where(*self._shared(measured), *self.of_measured)))
        elif self.of_measured:
            # Without a subject every row would be read, and few runs have a tag: these are looked through.
            conditions.append(found.where(measured.c.run == runs.c.id, *self.of_measured).exists())
        order = self.question.sort.removeprefix("-")
        column = runs.c["started_us" if order == "started" else order]
        rows, more = self._first(sa.select(runs.c.id).where(*conditions), column, runs.c.name)
        facts = self._facts([row.id for row in rows])
        shown = self._by_id(descriptions, [row.id for row in rows])
        answered = tuple({**shown[row.id].shown, **facts[row.id]} for row in rows)
        return Answer(answered, more)

    def results(self) -> Answer:
        """Kernels with the metrics; cases where all metrics are of those."""
        metrics = self.question.metrics
        conditions = [*self._shared(measured), *self.of_measured]
        conditions.append(sa.or_(*(self._value(key).is_not(None) for key in metrics)))
        if self.of_runs:
            conditions.append(measured.c.run.in_(sa.select(runs.c.id).where(*self._shared(runs), *self.of_runs)))
        columns = (self._value(key).label(key) for key in metrics)
        wanted = sa.select(measured.c.run, measured.c.subject, *columns).select_from(self.source)
        order = self.question.sort.removeprefix("-")
        column: sa.ColumnElement[Any] = measured.c.started_us
        if order in VALUES:
            column = self._value(order)
        elif order != "started":
            wanted, column = wanted.join(runs, runs.c.id == measured.c.run), runs.c[order]
        found, more = self._first(wanted.where(*conditions), column, measured.c.run, measured.c.place)
        facts, names = self._facts([row.run for row in found]), self._by_id(subjects, [row.subject for row in found])
        keys = ("name", "path", "started", "gpu", "uuid", "driver", "git", "conditions", "packages", "tags")
        rows = []
        for row in found:
            subject = {"case": names[row.subject].case, "kernel": names[row.subject].kernel}
            values = {key: getattr(row, key) for key in metrics}
            rows.append({key: facts[row.run][key] for key in keys} | subject | values)
        return Answer(tuple(rows), more)

    def _first(
        self, wanted: sa.Select[Any], column: sa.ColumnElement[Any], *then: sa.ColumnElement[Any]
    ) -> tuple[list[Any], bool]:
        """The rows in their order, and whether there are more than the limit: of times the newest are kept."""
        newest = self.question.sort == "started"
        order = column.desc() if newest or self.question.sort.startswith("-") else column.asc()
        limit = self.question.limit
        ordered = wanted.order_by(order, *((each.desc() if newest else each) for each in then))
        if limit is not None:
            ordered = ordered.limit(min(limit, LARGEST) + 1)
        found = list(self.connection.execute(ordered).all())
        kept = found[:limit]
        return (kept[::-1] if newest else kept), len(kept) < len(found)

    def _by_id(self, table: sa.Table, numbers: Sequence[int]) -> dict[int, Any]:
        """Rows of a table by their first column."""
        key, found, wanted = next(iter(table.columns)), {}, list({*numbers})
        for start in range(0, len(wanted), MOST_IDS):
            some = sa.select(table).where(key.in_(wanted[start : start + MOST_IDS]))
            found.update({row[0]: row for row in self.connection.execute(some)})
        return found

    def _facts(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Facts of runs, with those of their environments."""
        roots = {row.id: row.path for row in self.connection.execute(sa.select(archives))}
        found = {}
        for number, row in self._by_id(runs, numbers).items():
            own = {"tags": tuple(json.loads(row.tags)), "path": f"{roots[row.archive]}/{row.name}"}
            found[number] = {**self.environments[row.environment], **row._mapping, **own}
        return found


def _listed(numbers: Sequence[int]) -> sa.BindParameter[Any]:
    """Numbers that stand in the statement, for databases limit its parameters."""
    return sa.bindparam(None, numbers, expanding=True, literal_execute=True)


def _escaped(text: str) -> str:
    """A text as LIKE takes it literally."""
    return re.sub(r"([\\%_])", r"\\\1", text)
