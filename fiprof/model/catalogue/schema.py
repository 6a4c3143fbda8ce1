"""The tables of the catalogue. Everything in them is derived from run folders and can be made again from those.

``measured`` has a column for each quantity of ``summary.py``. Columns that a catalogue lacks are added when it is
opened, so a new quantity needs no migration. (Rows of key and value were measured: with 20 of them per kernel a rebuild
falls below 420 runs a second at 12,000 runs and keeps falling.) Any other change needs a new HEAD, and a migration for
the databases that teams share.
"""

from __future__ import annotations

import functools
import hashlib

import sqlalchemy as sa

from fiprof.model.catalogue.summary import CASE_QUANTITIES, LAUNCH_QUANTITIES, TRACED

HEAD = "0004"
"""The migration that makes these tables."""
REMADE = ("0001", "0002", "0003")
"""Versions whose tables are thrown away and made again."""

VALUES = (*(each.key for each in CASE_QUANTITIES), *(each.key for each in LAUNCH_QUANTITIES), *TRACED)
"""Keys of the quantities that are columns of ``measured``."""
OF_CASES = frozenset(each.key for each in CASE_QUANTITIES)
"""Keys that a case has as a whole; the others are of a kernel."""

LONGEST_NAME = 200
"""Characters of a name that is indexed: PostgreSQL's B-trees take 2.7 kB."""

METADATA = sa.MetaData()


@functools.lru_cache(10_000)
def row_id(*what: str | int | None) -> int:
    """The id of the row that stands for these words, the same in every catalogue."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest()) >> 1


def _id(name: str = "id") -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, primary_key=True, autoincrement=False)


archives = sa.Table("archives", METADATA, _id(), sa.Column("path", sa.Text, nullable=False))
"""An archive; a database of a team may hold several."""

environments = sa.Table(
    "environments",
    METADATA,
    _id(),
    *(sa.Column(name, sa.Text) for name in ("gpu", "uuid", "driver", "cuda")),
    # A JSON object: name -> version.
    sa.Column("packages", sa.Text, nullable=False),
)
"""A GPU with its driver and the packages, each combination once: hundreds of rows."""

runs = sa.Table(
    "runs",
    METADATA,
    _id(),
    sa.Column("archive", sa.BigInteger, nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    # Of the folder and its manifest when they were read: with another one the run is read again.
    sa.Column("stamp", sa.String(80), nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("started_us", sa.BigInteger, nullable=False),
    sa.Column("started", sa.Text),
    sa.Column("duration_s", sa.Float),
    sa.Column("environment", sa.BigInteger, nullable=False),
    *(sa.Column(name, sa.Text) for name in ("fiprof", "git", "user", "host", "conditions")),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    # A JSON list.
    sa.Column("tags", sa.Text, nullable=False),
    sa.Index("run_started", "archive", "started_us", "name"),
    sa.Index("run_user", "archive", "user"),
    sa.Index("run_git", "archive", "git"),
)
"""What runs are searched by: short rows, of which many are read."""

descriptions = sa.Table("descriptions", METADATA, _id("run"), sa.Column("shown", sa.JSON, nullable=False))
"""What is only shown of a run."""

tags = sa.Table(
    "tags",
    METADATA,
    sa.Column("tag", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("run", sa.BigInteger, primary_key=True, index=True),
)

subjects = sa.Table(
    "subjects",
    METADATA,
    _id(),
    sa.Column("case", sa.Text),
    sa.Column("kernel", sa.Text),
    # The subject of the case as a whole; its own id for such a subject, null outside of cases.
    sa.Column("whole", sa.BigInteger),
)
"""What numbers are of: a case as a whole (without a kernel), a kernel of a case, a kernel outside of cases."""

parameters = sa.Table(
    "parameters",
    METADATA,
    _id("subject"),
    sa.Column("name", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("text", sa.String(LONGEST_NAME), nullable=False),
    sa.Column("number", sa.Float),
    sa.Index("parameter_number", "name", "number", "subject"),
    sa.Index("parameter_text", "name", "text", "subject"),
)
"""Parameters of cases, by the subject of the case as a whole."""

measured = sa.Table(
    "measured",
    METADATA,
    _id("subject"),
    # Of the run, so that one index decides.
    sa.Column("started_us", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("run", sa.BigInteger, primary_key=True, autoincrement=False, index=True),
    sa.Column("archive", sa.BigInteger, nullable=False),
    sa.Column("environment", sa.BigInteger, nullable=False),
    # Its number among the run's results.
    sa.Column("place", sa.Integer, nullable=False),
    *(sa.Column(key, sa.Float) for key in VALUES),
    # What is asked for together lies together.
    sqlite_with_rowid=False,
)
"""The key quantities; null where they were not collected."""

version = sa.Table("alembic_version", METADATA, sa.Column("version_num", sa.String(32), primary_key=True))
"""The migration that made the tables; Alembic's own table."""
