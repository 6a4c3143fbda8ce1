"""A page to write, with every kind of block and hostile names."""

from fiprof.model.finding import Provenance, TracedNumber, say
from fiprof.reports.charts import scaling_chart
from fiprof.reports.markdown_html import code_block, link, report_html
from fiprof.reports.view import Chart, Column, Document, View

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=\"document.title='owned'\">",
    "<b>bold</b><a href='https://example.invalid/'>click</a>%{customdata[0]}",
    "| pipe `tick` *star* [link](https://example.invalid) # heading",
    "bell\x07escape\x1b[31m override\u202egnirts",
    "a_template<" + ", ".join(f"cute::Layout<cute::_{i}>" for i in range(60)) + ">",
)
"""Names of kernels that are no text for somebody."""

COLUMNS = (
    Column("launch", "#"), Column("label", "case"), Column("kernel", "kernel", meaning="Its short name."),
    Column("duration_us", "ncu", "µs", ".2f", meaning="Duration under ncu."),
    Column("tflops", "achieved", "TFLOP/s", ".2f"), Column("share", "share", "", ".1%"),
    Column("dram_gb_per_s", "DRAM", "GB/s", ",.1f"), Column("hidden_key"),
)  # fmt: skip
LAUNCHES = View(
    columns=COLUMNS,
    rows=(
        (0, "prefill", "PrefillWithKVCacheKernel", 307.87, 1787.05, 0.4651, 487.3, 1),
        (1, "decode batch=32", "BatchDecodeWithPagedKVCacheKernel", 94.62, 14.2, 0.7, 2957.0, 1),
        (2, "rmsnorm", "RMSNormKernel", 22.5, None, None, 1490.24, 1),
        (10, "rope", "RopeKernel", 1093.5, 9.87, 0.087, float("nan"), 1),
    ),
    title="Launches of the run",
    warnings=("the run 20261121-120959-all is interrupted: the user pressed Ctrl-C",),
    summary=("Four launches of four kernels; the longest is RopeKernel with 1,093.50 µs.",),
    notes=("share: achieved of what the lowest roof allows. – was not measured.",),
)


def launch(i: int) -> tuple[int | float | str, ...]:
    """A row of many."""
    time, share, rate = 1000.0 - i * 0.37 % 900, i % 100 / 100, 37.5 * (i % 61)
    return (i, f"case {i % 7}", f"kernel_{i % 13}", time, 1.5 * i, share, rate, 0)


def demo() -> str:
    """Every kind of block."""
    kv_lens = (512, 2048, 8192)
    ends = {"y": (9, 20), "low": (10, 18), "high": (8, 22)}
    points = [
        {"series": f"batch {batch}", "x": kv, **{key: batch * kv / by + plus for key, (by, plus) in ends.items()}}
        for batch in (1, 8, 32)
        for kv in kv_lens
    ]
    scaling = Chart(
        "Decode over KV length",
        lambda: scaling_chart(points, x=("KV length", "tokens"), y=("time", "µs"), roofs=(("DRAM", 30.0),)),
        "A line a batch.",
    )
    fact = TracedNumber(52.84, Provenance("ncu", 'a | b / "c"', launch=3), ".1f", "%")
    wide = (Column("kernel", "kernel"), *(Column(f"m{i}", f"metric {i}", "GB/s", ",.3f") for i in range(12)))
    views = (
        LAUNCHES,
        View(wide, tuple((f"kernel_{r}", *(1e6 * r + i for i in range(12))) for r in range(3)), charts=(scaling,)),
        View(
            (Column("name", "kernel"), Column("time", "time", "µs", ".1f"), Column("", "traced")),
            tuple((name, 10.0 * i, say("at {} of {}", fact, "<b>")) for i, name in enumerate(HOSTILE)),
            title=HOSTILE[0],
            summary=(*HOSTILE, "Hostile names"),
        ),
        View(COLUMNS, tuple(map(launch, range(264))), title="Every launch", folded=True),
        *(View((), (), title=f"Folded {number}", summary=("Folded.",), folded=True) for number in (2, 3)),
        View((), (), title="Reproduction guide", summary=("As it was.",)),
    )
    lead = (link("Analysis", "analysis.md#x"), code_block("fiprof collect --kernel prefill --batch 1,8,32"))
    title = "All five kernels on an H200"
    return report_html(Document(LAUNCHES, views, warnings=("ncu locked no clocks.",)), title, lead=lead)
