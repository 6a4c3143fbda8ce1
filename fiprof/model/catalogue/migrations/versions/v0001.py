"""The first tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

QUANTITIES = (
    "case_plain_us", "case_plain_spread", "case_wall_us", "case_nsys_us", "case_nsys_spread", "case_ncu_us",
    "case_model_tflops", "case_model_gb_per_s", "duration_us", "dram_share", "dram_gb_per_s", "dram_read_mb",
    "l2_share", "l2_hit_pct", "l1_share", "l1_hit_pct", "tensor_active_pct", "tensor_ops", "fp32_ops",
    "sm_throughput_pct", "issue_active_pct", "achieved_occupancy_pct", "theoretical_occupancy_pct",
    "registers_per_thread", "shared_kb_per_block", "waves_per_sm", "sm_active_share", "idle_pct",
    "warp_latency_cycles", "instructions", "spill_requests", "shared_conflict_share", "global_sectors_per_request",
    "sm_clock_ghz", "nsys_duration_us", "nsys_spread", "program_us", "program_count",
)  # fmt: skip


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    digest, text, name = sa.String(32), sa.Text(), sa.String(200)

    def key() -> sa.Column[int]:
        return sa.Column("id", number, primary_key=True, autoincrement=False)

    def must(name: str, kind: Any, *more: Any, unique: bool = False) -> sa.Column[Any]:
        return sa.Column(name, kind, *more, nullable=False, unique=unique or None)

    def of(table: str) -> sa.ForeignKey:
        return sa.ForeignKey(f"{table}.id")

    op.create_table("archives", key(), must("key", sa.String(100), unique=True), must("path", text))
    op.create_table(
        "environments", key(), must("digest", digest, unique=True),
        *(sa.Column(name, text) for name in ("gpu", "uuid", "driver", "cuda")),
    )  # fmt: skip
    op.create_table(
        "packages",
        sa.Column("environment", number, of("environments"), primary_key=True),
        sa.Column("name", name, primary_key=True),
        must("version", text),
    )
    op.create_table(
        "runs", key(), must("archive", number, of("archives")), must("name", sa.String(255)),
        must("stamp", sa.String(80)), must("status", sa.String(20)), must("reason", text),
        must("started_us", sa.BigInteger()), sa.Column("started", text), sa.Column("duration_s", sa.Float()),
        must("environment", number, of("environments")),
        *(sa.Column(name, text) for name in ("fiprof", "replayed_from", "command", "git", "user", "host")),
        must("bytes", sa.BigInteger()),
        *(must(name, text) for name in ("cases", "case_labels", "tools", "tags", "notes")),
        sa.UniqueConstraint("archive", "name", name="run_name"),
    )  # fmt: skip
    op.create_index("run_started", "runs", ["archive", "started_us", "name"])
    op.create_table(
        "tags",
        sa.Column("tag", name, primary_key=True),
        sa.Column("run", number, of("runs"), primary_key=True, index=True),
    )
    op.create_table("cases", key(), must("digest", digest, unique=True), must("case", text), must("workload", text))
    op.create_table(
        "parameters",
        sa.Column("case", number, of("cases"), primary_key=True),
        sa.Column("name", name, primary_key=True),
        must("text", name),
        sa.Column("number", sa.Float()),
    )
    op.create_index("parameter_number", "parameters", ["name", "number", "case"])
    op.create_index("parameter_text", "parameters", ["name", "text", "case"])
    op.create_table(
        "subjects", key(), must("digest", digest, unique=True), sa.Column("case", number, of("cases"), index=True),
        sa.Column("kernel", text), sa.Column("whole", number),
    )  # fmt: skip
    op.create_table(
        "measured",
        sa.Column("subject", number, of("subjects"), primary_key=True),
        sa.Column("started_us", sa.BigInteger(), primary_key=True),
        sa.Column("run", number, of("runs"), primary_key=True, index=True),
        must("archive", number),
        must("environment", number),
        *(sa.Column(name, sa.Float()) for name in QUANTITIES),
        sqlite_with_rowid=False,
    )
