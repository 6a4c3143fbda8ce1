"""The tables of the catalogue. Everything in them is derived from run folders, and can be made again from those.

A change here needs a migration (``migrations/versions``), and HEAD its name; a test compares the two.
"""

from __future__ import annotations

import sqlalchemy as sa

from fiprof.model.catalogue.summary import CASE_QUANTITIES, LAUNCH_QUANTITIES, TRACED

HEAD = "0003"
"""The migration that makes these tables."""

VALUES = (*(each.key for each in CASE_QUANTITIES), *(each.key for each in LAUNCH_QUANTITIES), *TRACED)
"""Keys of the quantities that are columns of ``measured``."""
OF_CASES = frozenset(each.key for each in CASE_QUANTITIES)
"""Those of them that a case has as a whole; the others are of a kernel."""

LONGEST_NAME = 200
"""Characters of a name that is indexed: PostgreSQL's B-trees take 2.7 kB."""

METADATA = sa.MetaData()

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _id() -> sa.Column[int]:
    return sa.Column("id", _Id, primary_key=True, autoincrement=False)


archives = sa.Table(
    "archives",
    METADATA,
    _id(),
    sa.Column("key", sa.String(100), nullable=False, unique=True),
    sa.Column("path", sa.Text, nullable=False),
)
"""An archive; a database of a team may hold several."""

environments = sa.Table(
    "environments",
    METADATA,
    _id(),
    sa.Column("digest", sa.String(32), nullable=False, unique=True),
    sa.Column("gpu", sa.Text),
    sa.Column("uuid", sa.Text),
    sa.Column("driver", sa.Text),
    sa.Column("cuda", sa.Text),
)
"""A GPU with its driver and the packages, each combination once."""

packages = sa.Table(
    "packages",
    METADATA,
    sa.Column("environment", sa.ForeignKey("environments.id"), primary_key=True),
    sa.Column("name", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("version", sa.Text, nullable=False),
)

runs = sa.Table(
    "runs",
    METADATA,
    _id(),
    sa.Column("archive", sa.ForeignKey("archives.id"), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    # Of the folder and its manifest when they were read: another one, and the run is read again.
    sa.Column("stamp", sa.String(80), nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("started_us", sa.BigInteger, nullable=False),
    sa.Column("started", sa.Text),
    sa.Column("duration_s", sa.Float),
    sa.Column("environment", sa.ForeignKey("environments.id"), nullable=False),
    sa.Column("fiprof", sa.Text),
    sa.Column("git", sa.Text),
    sa.Column("user", sa.Text),
    sa.Column("host", sa.Text),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    # Under which ncu measured; of older catalogues none until the run is read again.
    sa.Column("conditions", sa.Text),
    sa.UniqueConstraint("archive", "name", name="run_name"),
    sa.Index("run_started", "archive", "started_us", "name"),
    sa.Index("run_user", "archive", "user"),
    sa.Index("run_git", "archive", "git"),
)
"""What runs are looked for by: short rows, of which many are read."""

descriptions = sa.Table(
    "descriptions",
    METADATA,
    sa.Column("run", sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("replayed_from", sa.Text),
    sa.Column("command", sa.Text),
    # JSON lists.
    sa.Column("cases", sa.Text, nullable=False),
    sa.Column("case_labels", sa.Text, nullable=False),
    sa.Column("tools", sa.Text, nullable=False),
    sa.Column("tags", sa.Text, nullable=False),
    sa.Column("notes", sa.Text, nullable=False),
)
"""What is only shown of a run."""

tags = sa.Table(
    "tags",
    METADATA,
    sa.Column("tag", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("run", sa.ForeignKey("runs.id"), primary_key=True, index=True),
)

cases = sa.Table(
    "cases",
    METADATA,
    _id(),
    sa.Column("digest", sa.String(32), nullable=False, unique=True),
    sa.Column("case", sa.Text, nullable=False),
    sa.Column("workload", sa.Text, nullable=False),
)
"""Each case id once, however many runs have it."""

parameters = sa.Table(
    "parameters",
    METADATA,
    sa.Column("case", sa.ForeignKey("cases.id"), primary_key=True),
    sa.Column("name", sa.String(LONGEST_NAME), primary_key=True),
    sa.Column("text", sa.String(LONGEST_NAME), nullable=False),
    sa.Column("number", sa.Float),
    sa.Index("parameter_number", "name", "number", "case"),
    sa.Index("parameter_text", "name", "text", "case"),
)

subjects = sa.Table(
    "subjects",
    METADATA,
    _id(),
    sa.Column("digest", sa.String(32), nullable=False, unique=True),
    sa.Column("case", sa.ForeignKey("cases.id"), index=True),
    sa.Column("kernel", sa.Text),
    # The case as a whole that the kernel is of.
    sa.Column("whole", _Id),
)
"""What numbers are of: a case as a whole (without a kernel), a kernel of a case, a kernel outside of cases."""

measured = sa.Table(
    "measured",
    METADATA,
    sa.Column("subject", sa.ForeignKey("subjects.id"), primary_key=True),
    # Of the run, so that one index decides.
    sa.Column("started_us", sa.BigInteger, primary_key=True),
    sa.Column("run", sa.ForeignKey("runs.id"), primary_key=True, index=True),
    sa.Column("archive", _Id, nullable=False),
    sa.Column("environment", _Id, nullable=False),
    *(sa.Column(key, sa.Float) for key in VALUES),
    # What is asked for together lies together.
    sqlite_with_rowid=False,
)
"""The key quantities; null where they were not collected."""

version = sa.Table("alembic_version", METADATA, sa.Column("version_num", sa.String(32), primary_key=True))
"""Which migration made the tables; Alembic's own table."""
