"""A page to write, with every kind of block and hostile names."""

from __future__ import annotations

from typing import Any

from fiprof.reports.pages import charts_scaling
from fiprof.reports.pages.page import (
    Bullets,
    Caution,
    Chart,
    Code,
    Diagram,
    Link,
    Observation,
    Page,
    PageLink,
    Section,
    Table,
    Text,
)
from fiprof.reports.view import Column, View

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=\"document.title='owned'\">",
    "<b>bold</b><a href='https://example.invalid/'>click</a>%{customdata[0]}",
    "| pipe `tick` *star* [link](https://example.invalid) # heading",
    "bell\x07escape\x1b[31m override\u202egnirts",
    "a_template<" + ", ".join(f"cute::Layout<cute::_{i}>" for i in range(60)) + ">",
)
"""Names of kernels that are no text for somebody."""

LAUNCHES = View(
    columns=(
        Column("launch", "#"),
        Column("label", "case"),
        Column("kernel", "kernel", meaning="Its short name."),
        Column("duration_us", "ncu", "µs", ".2f", meaning="Duration under ncu."),
        Column("tflops", "achieved", "TFLOP/s", ".2f"),
        Column("share", "share", "", ".1%"),
        Column("dram_gb_per_s", "DRAM", "GB/s", ",.1f"),
        Column("bar", "bar", bar=True, least=40),
        Column("hidden_key"),
    ),
    rows=(
        (0, "prefill", "PrefillWithKVCacheKernel", 307.87, 1787.05, 0.4651, 487.3, 0.4651, 1),
        (1, "decode batch=32", "BatchDecodeWithPagedKVCacheKernel", 94.62, 14.2, 0.7, 2957.0, 0.7, 1),
        (2, "rmsnorm", "RMSNormKernel", 22.5, None, None, 1490.24, 0.31, 1),
        (10, Link("rope", "#story"), "RopeKernel", 1093.5, 9.87, 0.687, float("nan"), 0.687, 1),
    ),
    title="Launches of the run",
    warnings=("the run 20261121-120959-all is interrupted: the user pressed Ctrl-C",),
    summary=("Four launches of four kernels; the longest is RopeKernel with 1,093.50 µs.",),
    notes=("share: achieved of what the lowest roof allows. – was not measured.",),
)


def wide(rows: int = 3) -> View:
    """A table of more columns than fit in 100 cells."""
    columns = (Column("kernel", "kernel"), *(Column(f"m{i}", f"metric {i}", "GB/s", ",.3f") for i in range(12)))
    return View(
        columns, tuple((f"kernel_{r}", *(1e6 * r + i for i in range(12))) for r in range(rows)), title="A wide table"
    )


DRAWING = Diagram(
    "drawing",
    "A block",
    "KV ──► ┌──────┐\n       │░░░░░░│ <64> rows\n       └──┬───┘\n          ▼",
    "What <b>it</b> is.",
)


def demo() -> Page:
    """Every kind of block."""
    series = [
        charts_scaling.Series(
            f"batch {batch}",
            tuple(
                charts_scaling.Point(kv, batch * kv / 9 + 20, batch * kv / 10 + 18, batch * kv / 8 + 22)
                for kv in (512, 2048, 8192)
            ),
        )
        for batch in (1, 8, 32)
    ]
    scaling = Chart(
        "chart-scaling",
        "Decode over KV length",
        "",
        lambda: charts_scaling.scaling_chart(
            series, x=("KV length", "tokens"), y=("time", "µs"), roofs=(("DRAM", 30.0),)
        ),
    )
    hostile = View(
        (Column("name", "kernel"), Column("time", "time", "µs", ".1f")),
        tuple((name, 10.0 * i) for i, name in enumerate(HOSTILE)),
        title=HOSTILE[0],
        summary=HOSTILE,
    )
    return Page(
        title="All five kernels on an H200",
        facts=(("GPU", "NVIDIA H200"), ("Run", "20261121-120959-all"), ("Driver", "580.159.04")),
        links=(PageLink("Analysis", "analysis"), Link("run.json", "run.json")),
        sections=(
            Section(
                "summary",
                "Summary",
                (
                    Text(("The prefill reached 1,787 TFLOP/s, ", Link("46.5 % of its roof", "#finding-roof"), ".")),
                    Bullets(
                        (Text(("one",)), Text(("two, with a number that a line must not begin with: 1. or - or #",)))
                    ),
                    Caution("ncu locked no clocks: durations differ from those of nsys by up to 8 %."),
                    Observation(
                        "finding-roof",
                        "Decode moves 2,957 GB/s, 70 % of DRAM's roof.",
                        ("dram__bytes.sum.per_second 2,957 GB/s of 4,226 GB/s (peak at the measured clock)",),
                        "Use tensor cores for GQA decode: the same bytes in 258 instead of 343 µs.",
                        "Sure: ncu and nsys agree within 2 %.",
                    ),
                ),
            ),
            Section(
                "story",
                "Execution story",
                (Table(LAUNCHES, anchor="table-launches"), scaling, Table(wide()), DRAWING),
                (Section("story-hostile", "Hostile names", (Table(hostile),)),),
            ),
            Section(
                "reproduce",
                "Reproduction guide",
                (
                    Code(
                        "fiprof collect --kernel prefill --batch 1,8,32 --seq-len 512,1024,2048,4096 --backend fa2,fa3 --tool nsys,ncu --set full"
                    ),
                    Code("==WARNING== No kernels were profiled.", language="text"),
                ),
            ),
            Section("appendix", "Appendix", (Table(many(1204), anchor="table-all", appendix=True),)),
        ),
    )


def many(rows: int, title: str = "Every launch") -> View:
    """A table of many launches."""
    return View(
        LAUNCHES.columns,
        tuple(
            (
                i,
                f"case {i % 7}",
                f"kernel_{i % 13}",
                1000.0 - i * 0.37 % 900,
                1.5 * i,
                i % 100 / 100,
                37.5 * (i % 61),
                i % 100 / 100,
                0,
            )
            for i in range(rows)
        ),
        title=title,
    )


def drawn(chart: Chart, field: str) -> list[dict[str, Any]]:
    """The marks of a chart that have a field."""
    found = chart.figure().to_dict(validate=False)["datasets"].values()
    return [row for rows in found for row in rows if field in row]


def anchors(part: Page | Section) -> list[str]:
    """Every anchor of a page or section."""
    blocks = part.blocks if isinstance(part, Section) else ()
    own = [anchor for each in (part, *blocks) if (anchor := getattr(each, "anchor", ""))]
    own += [anchor for each in blocks for anchor in getattr(each, "row_anchors", ())]
    return own + [anchor for section in part.sections for anchor in anchors(section)]
