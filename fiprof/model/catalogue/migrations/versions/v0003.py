"""What is only shown of a run in a table of its own: runs are looked through in short rows. Every run is read again."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

MUST = ("reason", "cases", "case_labels", "tools", "tags", "notes")
MAY = ("replayed_from", "command")


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "descriptions",
        sa.Column("run", number, sa.ForeignKey("runs.id"), primary_key=True),
        *(sa.Column(name, sa.Text(), nullable=name in MAY) for name in (*MUST, *MAY)),
    )
    for name in (*MUST, *MAY):
        op.drop_column("runs", name)
    op.execute("UPDATE runs SET stamp = ''")
