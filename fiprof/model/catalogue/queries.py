"""Questions to the catalogue, answered by the database: only what is shown leaves it."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from fiprof.errors import FiprofError
from fiprof.model.annotations import Note
from fiprof.model.catalogue.entry import EPOCH
from fiprof.model.catalogue.question import Condition, Operator, Question
from fiprof.model.catalogue.schema import (
    OF_CASES,
    VALUES,
    archives,
    cases,
    descriptions,
    environments,
    measured,
    packages,
    parameters,
    runs,
    subjects,
    tags,
)
from fiprof.model.catalogue.store import SOME
from fiprof.model.selection import matching

FACTS: dict[str, sa.Column[Any]] = {
    "git": runs.c.git, "user": runs.c.user, "host": runs.c.host, "fiprof": runs.c.fiprof,
    "command": descriptions.c.command, "driver": environments.c.driver,
    "cuda": environments.c.cuda, "uuid": environments.c.uuid,
}  # fmt: skip
"""What ``--where`` takes beside parameters, quantities and packages."""
MOST_LISTED = 5000
"""Numbers in a statement."""
FACTS_SHOWN = tuple(environments.c[name] for name in ("gpu", "uuid", "driver"))


@dataclass(frozen=True)
class RunRow:
    """A run of the catalogue."""

    name: str
    status: str
    """complete, failed, interrupted, or damaged where its manifest cannot be read."""
    path: str
    reason: str
    """Why it is not complete; empty otherwise."""
    started: str | None
    """ISO 8601 with offset."""
    duration_s: float | None
    cases: tuple[str, ...]
    """Case ids."""
    case_labels: tuple[str, ...]
    """The same in short."""
    gpu: str | None
    uuid: str | None
    driver: str | None
    tools: tuple[str, ...]
    """The profilers that were asked for."""
    fiprof: str | None
    """The version that wrote it."""
    replayed_from: str | None
    """The run whose raw files it reads."""
    command: str | None
    git: str | None
    user: str | None
    host: str | None
    bytes: int
    tags: tuple[str, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class ResultRow:
    """A case of a run, or a kernel of one, with the metrics that were asked for."""

    name: str
    """Of the run."""
    path: str
    started: str | None
    gpu: str | None
    uuid: str | None
    driver: str | None
    git: str | None
    conditions: str | None
    """Under which ncu measured."""
    environment: int
    """Its number in the catalogue, for :func:`packages_of`."""
    tags: tuple[str, ...]
    case: str | None
    """Case id."""
    kernel: str | None
    values: dict[str, float | None]
    """Metric -> its value, in the order of the question."""


@dataclass(frozen=True)
class Answer:
    """What a question finds, in its order."""

    runs: tuple[RunRow, ...] = ()
    results: tuple[ResultRow, ...] = ()
    """Instead of runs, where the question names metrics."""
    more: bool = False
    """Whether there are rows beyond the question's limit."""
    filtered: bool = False
    """Whether the question is of some runs only."""


def packages_of(connection: sa.Connection, numbers: Iterable[int]) -> dict[int, dict[str, str]]:
    """Environment -> its packages by name, with their versions."""
    found: dict[int, dict[str, str]] = {number: {} for number in numbers}
    for row in connection.execute(sa.select(packages).where(packages.c.environment.in_(list(found)))):
        found[row.environment][row.name] = row.version
    return found


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
        self.descending = question.sort.startswith("-")
        self.order = question.sort.removeprefix("-")
        self._of_runs: list[sa.ColumnElement[bool]] = []
        self._of_subjects: list[sa.ColumnElement[bool]] = []
        self._add_conditions()

    # Conditions

    def _add_conditions(self) -> None:
        asked = self.question
        if asked.kernel:
            self._of_subjects.append(self._named(asked.kernel))
        for each in asked.where:
            self._add(each)
        if asked.tags:
            self._of_runs += [runs.c.id.in_(sa.select(tags.c.run).where(tags.c.tag == tag)) for tag in asked.tags]
        if asked.status:
            self._of_runs.append(runs.c.status == asked.status)

    def _shared(self, table: sa.Table) -> list[sa.ColumnElement[bool]]:
        """Conditions on what both ``runs`` and ``measured`` have."""
        asked = self.question
        found = [] if asked.everywhere else [table.c.archive == self.archive]
        if asked.since:
            found.append(table.c.started_us >= (asked.since - EPOCH) // timedelta(microseconds=1))
        if asked.gpu:
            like = [environments.c[name].ilike(_part(asked.gpu), escape="\\") for name in ("gpu", "uuid")]
            found.append(self._among(table.c.environment, sa.select(environments.c.id).where(sa.or_(*like))))
        return found

    def _among(self, column: sa.Column[Any], wanted: sa.Select[Any]) -> sa.ColumnElement[bool]:
        """A condition that a column is among few numbers: as numbers, by which a database plans better."""
        numbers = self.connection.scalars(wanted.limit(MOST_LISTED + 1)).all()
        return column.in_(_listed(numbers) if len(numbers) <= MOST_LISTED else wanted)

    def _add(self, wanted: Condition) -> None:
        if wanted.name in VALUES:
            return
        if wanted.name in FACTS:
            self._of_runs.append(_of_fact(wanted, FACTS[wanted.name]))
        elif self._has(parameters, wanted.name):
            fits = sa.and_(parameters.c.name == wanted.name, _compared(wanted, parameters.c.number, parameters.c.text))
            self._of_subjects.append(subjects.c.case.in_(sa.select(parameters.c.case).where(fits)))
        elif self._has(packages, wanted.name):
            fits = sa.and_(packages.c.name == wanted.name, _compared(wanted, None, packages.c.version))
            self._of_runs.append(runs.c.environment.in_(sa.select(packages.c.environment).where(fits)))
        else:
            known = self.connection.scalars(sa.select(parameters.c.name).distinct().order_by(parameters.c.name)).all()
            raise FiprofError(
                f"no run has a parameter {wanted.name}",
                f"--where takes {', '.join([*known, *FACTS])}, a metric, or a package with = or !=",
                exit_code=2,
            )

    def _has(self, table: sa.Table, name: str) -> bool:
        return self.connection.execute(sa.select(1).where(table.c.name == name).limit(1)).first() is not None

    def _named(self, words: str) -> sa.ColumnElement[bool]:
        """Subjects that ``--kernel`` means, as other commands take it, and the cases that they are of."""
        fitting = subjects.alias()
        part = _part(words)
        like: sa.ColumnElement[bool] = sa.or_(
            fitting.c.kernel.ilike(part, escape="\\"),
            fitting.c.case.in_(sa.select(cases.c.id).where(cases.c.case.ilike(part, escape="\\"))),
        )
        if "=" in words or not self.connection.execute(sa.select(fitting.c.id).where(like).limit(1)).first():
            joined = sa.select(subjects.c.id, subjects.c.kernel, cases.c.case).join(cases, isouter=True)
            found = self.connection.execute(joined)
            names = {number: (kernel or "", "", case or "", "") for number, kernel, case in found}
            meant = matching(words, names.values())
            numbers = [number for number, name in names.items() if name in meant]
            like = fitting.c.id.in_(_listed(numbers))
        whole = subjects.c.id.in_(sa.select(fitting.c.whole).where(like))
        return sa.or_(subjects.c.id.in_(sa.select(fitting.c.id).where(like)), whole)

    # Rows

    def runs(self) -> Answer:
        """Runs that have what was asked for, each once."""
        conditions = [*self._shared(runs), *self._of_runs]
        inside = self._of_measured()
        found = sa.select(measured.c.run).select_from(self.source)
        if self._of_subjects and not self.question.tags:
            conditions.append(runs.c.id.in_(found.where(*self._shared(measured), *inside)))
        elif inside:
            # Without a subject every row would be read, and few runs have a tag: these are looked through.
            conditions.append(found.where(measured.c.run == runs.c.id, *inside).exists())
        column = runs.c["started_us" if self.order == "started" else self.order]
        rows, more = self._first(sa.select(runs.c.id).where(*conditions), column, runs.c.name)
        described = (column for column in descriptions.c if column is not descriptions.c.run)
        wanted = sa.select(runs, *described, *FACTS_SHOWN, archives.c.path.label("root")).join(environments)
        wanted = wanted.join(descriptions, descriptions.c.run == runs.c.id)
        by_id = {row.id: row for row in self._by(wanted.join(archives, archives.c.id == runs.c.archive), rows)}
        return Answer(runs=tuple(_run_row(by_id[row.id]) for row in rows), more=more, filtered=self.question.filters)

    def results(self) -> Answer:
        """Kernels with the metrics; cases where all metrics are of those."""
        metrics = self.question.metrics
        conditions = [*self._shared(measured), *self._of_measured()]
        conditions.append(sa.or_(*(self._value(key).is_not(None) for key in metrics)))
        if self._of_runs:
            conditions.append(measured.c.run.in_(sa.select(runs.c.id).where(*self._shared(runs), *self._of_runs)))
        values = (self._value(key).label(key) for key in metrics)
        wanted = sa.select(measured.c.run.label("id"), measured.c.subject, *values).select_from(self.source)
        column: sa.ColumnElement[Any] = measured.c.started_us
        if self.order in VALUES:
            column = self._value(self.order)
        elif self.order != "started":
            wanted, column = wanted.join(runs, runs.c.id == measured.c.run), runs.c[self.order]
        found, more = self._first(wanted.where(*conditions), column, measured.c.run, measured.c.subject)
        of_run = (runs.c.id, *(runs.c[name] for name in RESULT_FACTS), descriptions.c.tags)
        facts = sa.select(*of_run, *FACTS_SHOWN, archives.c.path.label("root")).join(environments)
        facts = facts.join(archives, archives.c.id == runs.c.archive)
        facts = facts.join(descriptions, descriptions.c.run == runs.c.id)
        run_of = {row.id: row for row in self._by(facts, found)}
        names = sa.select(subjects.c.id, subjects.c.kernel, cases.c.case).join(cases, isouter=True)
        name_of = {row.id: row for row in self._by(names, found, "subject")}
        rows = (
            _result_row(run_of[row.id], name_of[row.subject], {key: getattr(row, key) for key in metrics})
            for row in found
        )
        return Answer(results=tuple(rows), more=more)

    @functools.cached_property
    def values_asked(self) -> tuple[Condition, ...]:
        """The conditions on quantities."""
        return tuple(each for each in self.question.where if each.name in VALUES)

    @functools.cached_property
    def asked(self) -> frozenset[str]:
        """Every quantity of the question."""
        return frozenset((*self.question.metrics, *(each.name for each in self.values_asked)))

    @functools.cached_property
    def of_kernels(self) -> bool:
        """Whether rows are of kernels, not of cases as a whole."""
        return bool(self.asked - OF_CASES)

    @functools.cached_property
    def whole(self) -> sa.FromClause | None:
        """What was measured of the case that a kernel is of, where both are asked for."""
        return measured.alias("whole") if self.of_kernels and self.asked & OF_CASES else None

    @functools.cached_property
    def source(self) -> sa.FromClause:
        """``measured``, with ``whole`` where there is need of it."""
        if self.whole is None:
            return measured
        of_case = sa.select(subjects.c.whole).where(subjects.c.id == measured.c.subject).scalar_subquery()
        same = sa.and_(self.whole.c.run == measured.c.run, self.whole.c.subject == of_case)
        return measured.join(self.whole, same, isouter=True)

    def _value(self, key: str) -> sa.ColumnElement[Any]:
        return (self.whole if self.whole is not None and key in OF_CASES else measured).c[key]

    def _of_measured(self) -> list[sa.ColumnElement[bool]]:
        """Conditions on ``measured`` that it does not share with ``runs``."""
        found = [_compared(each, self._value(each.name), None) for each in self.values_asked]
        if self._of_subjects:
            # The rows of the other level have nothing of what is asked.
            kernel = subjects.c.kernel
            level = [kernel.is_not(None) if self.of_kernels else kernel.is_(None)] if self.asked else []
            wanted = sa.select(subjects.c.id).where(*level, *self._of_subjects)
            found.append(self._among(measured.c.subject, wanted))
        return found

    def _first(
        self, wanted: sa.Select[Any], column: sa.ColumnElement[Any], *then: sa.ColumnElement[Any]
    ) -> tuple[list[Any], bool]:
        """The rows in their order, and whether there are more than the limit: of times the newest are kept."""
        newest = self.question.sort == "started"
        order = column.desc() if newest or self.descending else column.asc()
        limit = self.question.limit
        ordered = wanted.order_by(order, *((each.desc() if newest else each) for each in then))
        found = list(self.connection.execute(ordered if limit is None else ordered.limit(limit + 1)).all())
        kept = found[:limit]
        return (kept[::-1] if newest else kept), len(kept) < len(found)

    def _by(self, wanted: sa.Select[Any], rows: Sequence[Any], column: str = "id") -> Iterator[Any]:
        """The rows of a statement whose first column is among those of other rows."""
        numbers = list({getattr(row, column) for row in rows})
        first = next(iter(wanted.selected_columns))
        for start in range(0, len(numbers), SOME):
            yield from self.connection.execute(wanted.where(first.in_(numbers[start : start + SOME])))


def _run_row(row: Any) -> RunRow:
    return RunRow(
        **{name: getattr(row, name) for name in RUN_FACTS},
        path=f"{row.root}/{row.name}",
        cases=tuple(json.loads(row.cases)),
        case_labels=tuple(json.loads(row.case_labels)),
        tools=tuple(json.loads(row.tools)),
        tags=tuple(json.loads(row.tags)),
        notes=tuple(Note(**note) for note in json.loads(row.notes)),
    )


RUN_FACTS = (
    "name", "status", "reason", "started", "duration_s", "gpu", "uuid", "driver", "fiprof", "replayed_from", "command",
    "git", "user", "host", "bytes",
)  # fmt: skip


RESULT_FACTS = ("name", "started", "git", "conditions", "environment")


def _result_row(run: Any, subject: Any, values: dict[str, float | None]) -> ResultRow:
    facts = {name: getattr(run, name) for name in (*RESULT_FACTS, "gpu", "uuid", "driver")}
    facts["tags"] = tuple(json.loads(run.tags))
    return ResultRow(**facts, path=f"{run.root}/{run.name}", case=subject.case, kernel=subject.kernel, values=values)


def _of_fact(wanted: Condition, column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """A condition on a fact of the run; a commit is named by its first digits."""
    if column is runs.c.git and wanted.operator is Operator.EQUAL:
        return column.like(f"{_escaped(wanted.text)}%", escape="\\")
    fits = _compared(wanted, None, column)
    if column.table is descriptions:
        return runs.c.id.in_(sa.select(descriptions.c.run).where(fits))
    return fits if column.table is runs else runs.c.environment.in_(sa.select(environments.c.id).where(fits))


def _listed(numbers: Sequence[int]) -> sa.BindParameter[Any]:
    """Numbers that stand in the statement, for databases limit its parameters."""
    return sa.bindparam(None, numbers, expanding=True, literal_execute=True)


def _compared(
    wanted: Condition, number: sa.ColumnElement[Any] | None, text: sa.ColumnElement[Any] | None
) -> sa.ColumnElement[bool]:
    """A condition on a column of numbers, or of texts. Raises FiprofError for an order of texts."""
    if number is not None and wanted.number is not None:
        return _COMPARE[wanted.operator](number, wanted.number)
    if text is None or wanted.operator not in (Operator.EQUAL, Operator.UNEQUAL):
        raise FiprofError(
            f"{wanted.name}{wanted.operator}{wanted.text} compares no numbers",
            "texts are compared with = and !=",
            exit_code=2,
        )
    return _COMPARE[wanted.operator](text, wanted.text)


_COMPARE: dict[Operator, Callable[[Any, Any], sa.ColumnElement[bool]]] = {
    Operator.EQUAL: operator.eq,
    Operator.UNEQUAL: operator.ne,
    Operator.AT_LEAST: operator.ge,
    Operator.AT_MOST: operator.le,
    Operator.ABOVE: operator.gt,
    Operator.BELOW: operator.lt,
}


def _escaped(text: str) -> str:
    """A text as LIKE takes it literally."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _part(text: str) -> str:
    return f"%{_escaped(text)}%"
