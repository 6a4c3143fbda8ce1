"""Questions to the catalogue in words (``batch>=64``, ``30d``, ``-dram_share``), answered by the database: only what is
shown leaves it."""

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fiprof import clock
from fiprof.errors import FiprofError
from fiprof.model.catalogue.store import EPOCH, MOST_IDS, Catalogue, Row, id_lists
from fiprof.model.catalogue.summary import OF_CASES, VALUES
from fiprof.model.selection import matching
from fiprof.text import escape_control

FACTS = ("git", "user", "host", "fiprof", "command", "driver", "cuda", "uuid")
"""What ``--where`` takes besides parameters, quantities and packages."""
LARGEST = 2**62  # more rows than any database has; its integers end at 2**63


class Condition(NamedTuple):
    """``NAME OPERATOR VALUE``: of a parameter, a quantity, a package or a fact of the run."""

    name: str
    operator: str  # as SQL has it
    text: str

    def on(self, number: str = "", text: str = "") -> tuple[str, float | str]:
        """What SQL compares, of a column of numbers and one of texts: the column, and the value.

        Raises FiprofError for an order of texts.
        """
        if number:
            with contextlib.suppress(ValueError):
                return number, float(self.text)
        if not text or self.operator not in ("=", "!="):
            what = f"{self.name}{self.operator}{self.text} compares no numbers"
            raise FiprofError(what, "texts are compared with = and !=", exit_code=2)
        return text, self.text

    def fits(self, text: str) -> bool:
        """Whether a text does. Raises FiprofError for an order of texts."""
        return (text == self.on(text="it")[1]) == (self.operator == "=")


@dataclass(frozen=True)
class Question:
    """Which runs, and what of them. Empty for all."""

    kernel: str = ""
    """As ``--kernel`` of other commands: a part of a kernel's or case's name, parameters, or a regular expression."""
    where: tuple[Condition, ...] = ()
    gpu: str = ""  # a part of the GPU's name or UUID
    since: datetime | None = None
    metrics: tuple[str, ...] = ()  # keys of VALUES
    tags: tuple[str, ...] = ()  # all of them
    status: str | None = None
    sort: str = "started"  # started, name, duration_s, bytes or a metric; with ``-`` before it the largest first
    limit: int | None = None  # the so many first in the order; of ``started`` the newest
    everywhere: bool = False  # also runs of other archives in the same database


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
        match = re.fullmatch(r"\s*([\w.-]+?)\s*(>=|<=|!=|==|=|>|<)\s*(.*?)\s*", text, re.DOTALL)
        if not match or not match[3]:
            what = f"--where {text} is not a condition"
            raise FiprofError(what, "NAME=VALUE, or with != > >= < <=: batch>=64", exit_code=2)
        conditions.append(Condition(match[1], "=" if match[2] == "==" else match[2], match[3]))
    since = None
    try:
        # A date or time is local unless it says.
        if since_:
            since = clock.now() - age if (age := clock.age(since_)) else datetime.fromisoformat(since_).astimezone()
    except (ValueError, OverflowError) as error:
        remedy = "30d, 12h, 2w or a date such as 2026-11-01"
        raise FiprofError(f"--since {since_} is not a time", remedy, exit_code=2) from error
    keys = tuple(dict.fromkeys(map(_metric, metrics)))
    order, descending = sort.removeprefix("-") or "started", sort.startswith("-")
    if order not in ("started", "name", "duration_s", "bytes"):
        order = _metric(order)
        keys = keys if order in keys else (*keys, order)
    as_they_are |= {key: escape_control(each) for key, each in as_they_are.items() if isinstance(each, str)}
    return Question(
        where=tuple(conditions),
        since=since,
        metrics=keys,
        tags=tuple(map(escape_control, tags)),
        sort=f"{'-' * descending}{order}",
        **as_they_are,
    )


def _metric(name: str) -> str:
    """The key of a quantity that the catalogue has: itself, or without its unit (``l2_hit``). Raises FiprofError.

    A case's duration is that of an iteration without a profiler.
    """
    names = {"case_plain_us" if name == "duration" else name, f"case_{name}"}
    keys = [key for key in VALUES if key in names or re.sub("_(us|pct|ghz|gb_per_s|tflops|mb)$", "", key) in names]
    if not keys:
        raise FiprofError(f"the catalogue has no quantity {name}", f"it has {', '.join(VALUES)}", exit_code=2)
    return keys[0]


class Answer(NamedTuple):
    """What a question finds, in its order."""

    rows: tuple[Row, ...] = ()
    """Runs by the keys of ``fiprof runs --format json``. Where the question names metrics, kernels and cases of runs:
    their name, path, started, gpu, uuid, driver, git, conditions (under which ncu measured), packages (name ->
    version), tags, case (its id), kernel, and each metric."""
    more: bool = False  # whether there are rows beyond the question's limit


def ask(catalogue: Catalogue, question: Question) -> Answer:
    """The answer, within a transaction. Raises FiprofError for a name that no run has."""
    finder = _Finder(catalogue, question)
    return finder.results() if question.metrics else finder.runs()


class _Finder:
    """A question on its way to a statement."""

    def __init__(self, catalogue: Catalogue, question: Question) -> None:
        self.catalogue = catalogue
        self.question = question
        self.values: dict[str, Any] = {}
        """Parameters of statements, by their names."""
        self.environments = {
            row["id"]: {**row, "packages": json.loads(row["packages"])}
            for row in catalogue.rows("SELECT * FROM environments")
        }
        quantities = [each for each in question.where if each.name in VALUES]
        metrics = {*question.metrics, *(each.name for each in quantities)}
        # Rows are of kernels, or of cases as a whole; where both are asked for, the case's stands beside its kernels'.
        of_kernels = bool(metrics.difference(OF_CASES))
        self.both = of_kernels and bool(metrics.intersection(OF_CASES))
        self.source = "measured"
        if self.both:
            of_case = "SELECT subjects.whole FROM subjects WHERE subjects.id = measured.subject"
            self.source += f" LEFT JOIN measured AS whole ON whole.run = measured.run AND whole.subject = ({of_case})"
        self.of_runs = [f"runs.id IN (SELECT run FROM tags WHERE tag = {self._value(tag)})" for tag in question.tags]
        if question.status:
            self.of_runs.append(f"runs.status = {self._value(question.status)}")
        of_subjects = [self._kernel(question.kernel)] if question.kernel else []
        for each in question.where:
            if each.name not in VALUES:
                self._add(each, of_subjects)
        self.of_measured = [self._compared(each, self._column(each.name)) for each in quantities]
        self.by_subject = bool(of_subjects)
        if of_subjects:
            # The rows of the other level have nothing of what is asked.
            level = [f"kernel IS {'NOT ' * of_kernels}NULL"] if metrics else []
            chosen = f"SELECT id FROM subjects WHERE {_all([*level, *of_subjects])}"
            # As numbers, by which a database plans better, where there are few.
            numbers = [row[0] for row in self._execute(f"{chosen} LIMIT {MOST_IDS + 1}")]
            few = len(numbers) <= MOST_IDS
            self.of_measured.append(f"measured.subject IN ({_numbers(numbers) if few else chosen})")

    def _value(self, value: Any) -> str:
        """A parameter for a value, as it stands in a statement."""
        self.values[name := f"value{len(self.values)}"] = value
        return f":{name}"

    def _execute(self, statement: str) -> Any:
        return self.catalogue.execute(statement, self.values)

    # Conditions

    def _compared(self, condition: Condition, number: str = "", text: str = "") -> str:
        column, value = condition.on(number, text)
        return f"{column} {condition.operator} {self._value(value)}"

    def _add(self, condition: Condition, of_subjects: list[str]) -> None:
        name, named = condition.name, self._value(condition.name)
        if name in ("driver", "cuda", "uuid"):
            found = [each for each in self.environments.values() if condition.fits(each[name] or "") and each[name]]
            self.of_runs.append(_in("runs", found))
        elif name == "git" and condition.operator != "!=":
            like = self._value(f"{_escaped(str(condition.on(text=name)[1]))}%")
            self.of_runs.append(f"runs.git LIKE {like} ESCAPE '\\'")
        elif name == "command":
            text = "json_extract(shown, '$.command')" if self.catalogue.is_sqlite else "shown ->> 'command'"
            fits = self._compared(condition, text=text)
            self.of_runs.append(f"runs.id IN (SELECT run FROM descriptions WHERE {fits})")
        elif name in FACTS:
            self.of_runs.append(self._compared(condition, text=f'runs."{name}"'))
        elif self._execute(f"SELECT 1 FROM parameters WHERE name = {named} LIMIT 1").fetchone():
            fits = self._compared(condition, "number", "text")
            of_subjects.append(f"subjects.whole IN (SELECT subject FROM parameters WHERE name = {named} AND {fits})")
        elif having := [each for each in self.environments.values() if name in each["packages"]]:
            self.of_runs.append(_in("runs", [each for each in having if condition.fits(each["packages"][name])]))
        else:
            names = [row[0] for row in self._execute("SELECT DISTINCT name FROM parameters ORDER BY name")]
            remedy = f"--where takes {', '.join([*names, *FACTS])}, a metric, or a package with = or !="
            raise FiprofError(f"no run has a parameter {name}", remedy, exit_code=2)

    def _kernel(self, words: str) -> str:
        """Subjects that ``--kernel`` means, as other commands take it, and the cases that they are of."""
        # SQLite's LIKE is PostgreSQL's ILIKE.
        like = f"{'LIKE' if self.catalogue.is_sqlite else 'ILIKE'} {self._value(f'%{_escaped(words)}%')} ESCAPE '\\'"
        fits = f'(kernel {like} OR "case" {like})'
        if "=" in words or not self._execute(f"SELECT id FROM subjects WHERE {fits} LIMIT 1").fetchone():
            subjects = self._execute('SELECT id, kernel, "case" FROM subjects')
            names = {number: (kernel or "", "", case or "", "") for number, kernel, case in subjects}
            meant = matching(words, names.values())
            fits = f"id IN ({_numbers([number for number, name in names.items() if name in meant])})"
        return " OR ".join(f"subjects.id IN (SELECT {of} FROM subjects WHERE {fits})" for of in ("id", "whole"))

    def _shared(self, table: str) -> list[str]:
        """Conditions on what both ``runs`` and ``measured`` have."""
        query, part = self.question, self.question.gpu.lower()
        conditions = [] if query.everywhere else [f"{table}.archive = {self.catalogue.archive}"]
        if query.since:
            conditions.append(f"{table}.started_us >= {(query.since - EPOCH) // timedelta(microseconds=1)}")
        if part:
            environments = self.environments.values()
            named = [each for each in environments if part in f"{each['gpu']}\n{each['uuid']}".lower()]
            conditions.append(_in(table, named))
        return conditions

    # Rows

    def _column(self, key: str) -> str:
        return f"{'whole' if self.both and key in OF_CASES else 'measured'}.{key}"

    def runs(self) -> Answer:
        """Runs that have what was asked for, each once."""
        conditions = [*self._shared("runs"), *self.of_runs]
        if self.by_subject and not self.question.tags:
            condition = _all([*self._shared("measured"), *self.of_measured])
            conditions.append(f"runs.id IN (SELECT measured.run FROM {self.source} WHERE {condition})")
        elif self.of_measured:
            # Without a subject every row would be read, and few runs have a tag: these are looked through.
            condition = _all(["measured.run = runs.id", *self.of_measured])
            conditions.append(f"EXISTS (SELECT 1 FROM {self.source} WHERE {condition})")
        order = self.question.sort.removeprefix("-")
        column = f"runs.{'started_us' if order == 'started' else order}"
        rows, more = self._first(f"SELECT runs.id FROM runs WHERE {_all(conditions)}", column, "runs.name")
        facts = self._facts([row["id"] for row in rows])
        shown = self._by_id("run", "run, CAST(shown AS TEXT) AS shown FROM descriptions", [*facts])
        answered = tuple({**json.loads(shown[row["id"]]["shown"]), **facts[row["id"]]} for row in rows)
        return Answer(answered, more)

    def results(self) -> Answer:
        """Kernels with the metrics; cases where all metrics are of those."""
        columns = {key: self._column(key) for key in self.question.metrics}
        conditions = [*self._shared("measured"), *self.of_measured]
        conditions.append(" OR ".join(f"{column} IS NOT NULL" for column in columns.values()))
        if self.of_runs:
            of_runs = _all([*self._shared("runs"), *self.of_runs])
            conditions.append(f"measured.run IN (SELECT runs.id FROM runs WHERE {of_runs})")
        source, order = self.source, self.question.sort.removeprefix("-")
        column = "measured.started_us"
        if order in VALUES:
            column = self._column(order)
        elif order != "started":
            source, column = f"{source} JOIN runs ON runs.id = measured.run", f"runs.{order}"
        wanted = f"measured.run, measured.subject, {', '.join(f'{of} AS {key}' for key, of in columns.items())}"
        statement = f"SELECT {wanted} FROM {source} WHERE {_all(conditions)}"
        results, more = self._first(statement, column, "measured.run", "measured.place")
        facts = self._facts([row["run"] for row in results])
        names = self._by_id("id", "* FROM subjects", [row["subject"] for row in results])
        keys = ("name", "path", "started", "gpu", "uuid", "driver", "git", "conditions", "packages", "tags")
        rows = []
        for row in results:
            subject = {key: names[row["subject"]][key] for key in ("case", "kernel")}
            values = {key: row[key] for key in columns}
            rows.append({key: facts[row["run"]][key] for key in keys} | subject | values)
        return Answer(tuple(rows), more)

    def _first(self, chosen: str, column: str, *then: str) -> tuple[list[Row], bool]:
        """The rows in their order, and whether there are more than the limit: of times the newest are kept."""
        newest = self.question.sort == "started"
        order = [f"{column} {'DESC' if newest or self.question.sort.startswith('-') else 'ASC'}"]
        order += [f"{each} {'DESC' if newest else 'ASC'}" for each in then]
        limit = self.question.limit
        most = "" if limit is None else f" LIMIT {min(limit, LARGEST) + 1}"
        rows = self.catalogue.rows(f"{chosen} ORDER BY {', '.join(order)}{most}", self.values)
        first = rows[:limit]
        return (first[::-1] if newest else first), len(first) < len(rows)

    def _by_id(self, key: str, chosen: str, numbers: Sequence[int]) -> dict[int, Row]:
        """Rows of a table by a column that tells them apart."""
        batches = (self.catalogue.rows(f"SELECT {chosen} WHERE {key} IN ({some})") for some in id_lists([*{*numbers}]))
        return {row[key]: row for rows in batches for row in rows}

    def _facts(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Facts of runs, with those of their environments."""
        roots = dict(self.catalogue.execute("SELECT id, path FROM archives").fetchall())
        facts = {}
        for number, row in self._by_id("id", "* FROM runs", numbers).items():
            own = {"tags": tuple(json.loads(row["tags"])), "path": f"{roots[row['archive']]}/{row['name']}"}
            facts[number] = {**self.environments[row["environment"]], **row, **own}
        return facts


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(f"({each})" for each in conditions) or "1 = 1"


def _in(table: str, environments: Sequence[Row]) -> str:
    return f"{table}.environment IN ({_numbers([each['id'] for each in environments])})"


def _numbers(numbers: Sequence[int]) -> str:
    """Numbers as a condition lists them; what nothing equals where there are none."""
    return ", ".join(map(str, numbers)) or "NULL"


def _escaped(text: str) -> str:
    """A text as LIKE takes it literally."""
    return re.sub(r"([\\%_])", r"\\\1", text)
