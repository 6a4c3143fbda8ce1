"""What happened, in order of time: a program's phases and steps, what each took, which repeat inside a step, and what
in them surprises."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fiprof.analysis import samples, surprises
from fiprof.analysis.copies import dram_rate
from fiprof.analysis.frames import Column, Narrow, Row
from fiprof.analysis.host import host_times
from fiprof.analysis.layers import LAYERS, layers, typical_steps
from fiprof.analysis.moments import BEFORE, DOES, Moments
from fiprof.analysis.program import LAYER_NS, Program
from fiprof.analysis.requests import REQUESTS, Kind, Step, kv_cost, kv_tokens, requests, says, served, short_name
from fiprof.analysis.steady import steady
from fiprof.analysis.surprises import FEW_STEPS
from fiprof.analysis.telling import TOLD, tell
from fiprof.analysis.trace import SEPARATOR, calls, marks, phases
from fiprof.errors import FiprofError
from fiprof.model.arrays import Floats, Ints
from fiprof.model.finding import Finding, finding
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING, split

SHOWN = 0.005
"""Share of the time below which a phase is told with the others."""

HAPPENED = (
    Column("at_ms", "at", "ms", ",.1f", "Since the trace began; of steps of one name the first."),
    Column("what", "what", meaning="The range, its numbers as *; what lies outside ranges."),
    Column("level", meaning="Ranges around it, from 0."),
    Column("count", "x", spec=",d", meaning="How often."),
    Column("each_ms", "each", "ms", ",.3f", "Median: from its begin, or the end of what came before, to its end."),
    Column("spread", "spread", spec=".0%", meaning="(p90 - p10) / median."),
    Column("total_ms", "time", "ms", ",.1f", "Of all of them, one after the other."),
    Column("share", "share", spec=".1%", meaning="Of the time from the first range on."),
    Column("busy", "GPU busy", spec=".0%", meaning="Share of it in which kernels ran that were launched in it."),
    Column("kernels", "kernels", spec=",.0f", meaning="Launched in each; median."),
    Column("copied_bytes", meaning="In all of them."),
    Column("memory_bytes", meaning="Device memory at its end, as CUDA has it."),
    Column("does", "the host", narrow=Narrow.DROP, meaning="What the launching thread does, share of its time."),
    Column("kernel", "longest kernel", narrow=Narrow.DROP, meaning="In all of them, with its share of their kernels."),
    Column("sms_active_pct", "SMs", "%", ".0f", "", narrow=Narrow.DROP),
    Column("tensor_active_pct", "tensor", "%", ".0f", narrow=Narrow.DROP),
    Column("dram_pct", "DRAM", "%", ".0f", "DRAM's throughput by nsys's samples.", narrow=Narrow.DROP),
    Column("hot", meaning="What takes most time."),
)
STEPS = (
    Column("number", "step", spec="d", meaning="Among those of its name, from 0."),
    Column("what", "what", narrow=Narrow.BELOW, meaning="The range as the program names it."),
    Column("at_ms", "at", "ms", ",.3f", "Its begin, or the end of what came before, since the trace began."),
    Column("length_ms", "time", "ms", ",.3f", "From then until the host and the GPU are done with it."),
    Column("busy_ms", "GPU busy", "ms", ",.3f", "With kernels that were launched in it."),
    Column("kernels", "kernels", spec=",d"),
    Column("copied_bytes", "copied", "bytes", ",d"),
    Column("memory_bytes", meaning="Device memory at its end, as CUDA has it."),
    Column("kind", meaning="What it is for: prefill, decode, both (mixed) or other, as it says or is called."),
    Column("kv_tokens", meaning="In the KV cache, of the requests that get a token in it."),
    *(Column(f"{does}_ms", does.words, "ms", ",.3f", "Of the launching thread, in the step.") for does in DOES),
)
"""One moment; the host's times are those of the launching thread. What its range says in numbers follows, each with
``says_`` before its word."""
LATE = (
    Column("late_rank", "late", spec="d", meaning="The rank that the others wait for most in the step's collectives."),
    Column("late_ms", "by", "ms", ",.3f", "From the first rank's start to its own, in all of them."),
    Column("meanwhile", "meanwhile", narrow=Narrow.BELOW, meaning="What it does most then."),
)
"""Of a step, where there are ranks."""
SAYS = "says_"
MEMORY = (
    Column("at_ms", "at", "ms", ",.1f"),
    Column("bytes", "bytes", spec=",d"),
    Column("range", "range", meaning="Of the thread that allocates, outermost first.", narrow=Narrow.BELOW),
    Column("call", "call"),
    Column("total_bytes", "in all", spec=",d", meaning="Of the process on this GPU, after it."),
)
"""An allocation of device memory, of the largest."""
MOST_ALLOCATIONS = 12
SAMPLED = {"sms_active_pct": "sms_active", "tensor_active_pct": "tensor_active", "dram_pct": "dram"}
"""Column -> what of nsys's samples, in percent, it is the mean of."""


@dataclass(frozen=True)
class Story:
    """What ``fiprof story`` tells of one GPU."""

    rank: int | None
    device: int
    several: int
    """GPUs of the run."""
    tables: dict[str, tuple[Sequence[Column], list[Row]]]
    """Columns and rows, in order of time: told, happened, steps (all that repeat, with what they say), memory (the
    largest allocations), requests, layers (medians over the steps looked at)."""
    found: dict[str, tuple[Finding, ...]]
    """summary; served: what the requests came to; surprises: each slow step, change of kernels, slow layer and leak;
    causes: these, those of one cause as one; first_steps: of each name the first, where it takes longer; layers: what
    repeats inside a step; peak: the most memory; again: how to see findings again; laws: how steps grow longer."""

    def rows(self, table: str) -> list[Row]:
        return self.tables[table][1]


def story(run: Run, program: Program, *, rank: int | None = None, kv_bytes: int | None = None) -> Story:
    """What happened on one GPU: that of a rank, or of the first row of the program's verdict. kv_bytes: of a token in
    the KV cache, where the program's ranges and marks do not say it (``kv_bytes_per_token 32768``).

    Raises FiprofError for a run of cases, where this rank is not there, or for a table that cannot be read.
    """
    if run.cases and not (run.of_program or run.imported):
        raise FiprofError(
            f"{run.manifest.name} measured cases one after the other: there is no program to tell of",
            f"fiprof timeline {run.manifest.name} shows each case in time",
        )
    devices = sorted(steady(run))
    device = program.rows[0]["device"] if program.rows else devices[0]
    if rank is not None:
        found = [each.device for each in ranks_of(run).all if each.rank == rank]
        if not found:
            raise FiprofError(f"{run.manifest.name} has no rank {rank}", "fiprof top shows those it has")
        device = NOTHING if found[0] is None else found[0]
    moments = Moments(run, device)
    of_group = {group: np.flatnonzero(moments.group == group) for group in np.unique(moments.group).tolist()}
    repeating = {group: rows for group, rows in of_group.items() if moments.names[group].repeats}
    surprising, first_steps, laws = list[Finding](), list[Finding](), list[Finding]()

    # Only steps that are explained, or whose kernels are compared, have their kernels read one by one.
    typical, slow, changes = dict[int, list[int]](), dict[int, dict[int, int]](), dict[int, list[tuple[int, int]]]()
    wanted = set[int]()
    for group, rows in repeating.items():
        typical[group] = typical_steps(moments, rows).tolist()
        wanted.update(typical[group])
        if len(rows) >= FEW_STEPS and not (moments.on_gpu and np.median(moments.length[rows]) < LAYER_NS):
            slow[group], changes[group] = surprises.slow_steps(moments, rows), surprises.changes(moments, rows)
            wanted.update(int(rows[n]) for pair in slow[group].items() for n in pair)
            wanted.update(place for pair in changes[group] for place in pair)
    kernels = moments.launched(wanted)
    for group, late in slow.items():
        rows = repeating[group]
        first_usual = next(n for n in range(len(rows) + 1) if n not in late)
        for each in surprises.explained(moments, rows, late, kernels):
            (first_steps if each.values["number"] < first_usual else surprising).append(each)
        surprising += [surprises.changed(moments, *pair, kernels) for pair in changes[group]]
        surprising += surprises.leak(moments, rows)
        laws += surprises.growth(moments, rows)
    # A warm-up and the steps have the same layers: those that come last are told.
    layered = {
        (said["count"], said["period"], None if said["load"] else said["kernels"]): layer
        for group, places in typical.items()
        if (layer := layers(run, moments.names[group].text, [kernels[place] for place in places]))
        for said in [layer[0].values]
    }
    surprising += [each for _, _, slow_layers in layered.values() for each in slow_layers]
    happened, every = _happened(moments, of_group), _steps(moments, surprising + first_steps)
    for group in slow:
        usual_ns = float(np.median(moments.length[repeating[group]]))
        if delayed := surprises.late_rank([every[place].late for place in repeating[group].tolist()], usual_ns):
            what = moments.names[group].text
            surprising.append(finding("late_steps", "{what}: {late}.", what=what, late=delayed, **delayed.values))

    server_steps = [step for step in every if step.text and (step.kind is not Kind.OTHER or step.said)]
    asked = requests(marks(run), server_steps)
    steps = [every[at].row | {"number": n} for rows in repeating.values() for n, at in enumerate(rows.tolist())]
    said = dict.fromkeys(word for row in steps for word in row if word.startswith(SAYS))
    says_columns = (Column(key, key.removeprefix(SAYS), spec=",d", narrow=Narrow.DROP) for key in said)
    rank_of = ranks_of(run).on(device)
    lengths, (memory, peak) = kv_tokens(asked), _allocations(moments)
    steps = [dict.fromkeys(said) | row | {"kv_tokens": lengths.get(row["what"])} for row in steps]
    came_to = served(asked, server_steps, lengths)
    said_bytes = (says(text).get("kv_bytes_per_token") for text in marks(run).texts if text and "kv_bytes" in text)
    kv_bytes, rate = kv_bytes or next((each for each in said_bytes if isinstance(each, int)), 0), dram_rate(run, device)
    if kv_bytes and rate:
        came_to += [kv_cost(each, kv_bytes, rate) for each in came_to if each.kind == "kv_law"]
    tables: dict[str, tuple[Sequence[Column], list[Row]]] = {
        "happened": (HAPPENED, happened),
        "steps": ((*STEPS, *(LATE if rank_of is not None else ()), *says_columns), steps),
        "told": (TOLD, tell(every, asked, SHOWN * float(moments.length.sum()) / 1e6)),
        "memory": (MEMORY, memory),
        "requests": (REQUESTS, [each.row for each in asked]),
        "layers": (LAYERS, [row for _, rows, _ in layered.values() for row in rows]),
    }
    findings = {
        "summary": (_told(happened), program.answer),
        "served": came_to,
        "surprises": surprising,
        "causes": surprises.by_cause(surprising),
        "first_steps": surprises.by_cause(first_steps),
        "layers": (said for said, _, _ in layered.values()),
        "peak": (*peak, *moments.torch.peak()),
        "again": _again(run.manifest.name, happened, surprising, came_to),
        "laws": laws,
    }
    told = {name: tuple(each) for name, each in findings.items()}
    return Story(rank_of, device, len(devices), tables, told)


# Rows


def _happened(moments: Moments, of_group: Mapping[int, Ints]) -> list[Row]:
    before = np.array([name.text == BEFORE for name in moments.names])[moments.group]
    total = max(float(moments.length[~before].sum()), 1.0)
    memory, of_device, rows = moments.memory, samples.read(moments.run).get(max(moments.device, 0)), list[Row]()
    edges = np.maximum.accumulate(np.append(moments.from_, moments.done[-1]).astype(np.float64))
    sampled = {column: of_device.means(key, edges) if of_device else None for column, key in SAMPLED.items()}

    def mean(of: Floats | None, places: Ints) -> float | None:
        there = places[:0] if of is None else places[np.isfinite(of[places])]
        lengths = moments.length[there]
        return None if of is None or not lengths.sum() else float(np.average(of[there], weights=lengths))

    for group, places in of_group.items():
        level, name, _ = moments.names[group]
        lengths = moments.length[places]
        low, median, high = np.percentile(lengths, (10, 50, 90)).tolist()
        whole = float(lengths.sum())
        kernels = moments.kernel_ns.get(group, {})
        longest = max(kernels, key=kernels.__getitem__, default=None)
        share = kernels[longest] / sum(kernels.values()) if longest else 0.0
        rows.append(
            {
                "at_ms": int(moments.begins[places[0]]) / 1e6,
                "what": name,
                "level": level,
                "count": len(places),
                "each_ms": median / 1e6,
                "spread": (high - low) / median if len(places) > 1 and median else None,
                "total_ms": whole / 1e6,
                "share": None if name == BEFORE else whole / total,
                "busy": min(float(moments.busy[places].sum()) / whole, 1.0) if whole else None,
                "kernels": float(np.median(moments.kernels[places])),
                "copied_bytes": int(moments.copied[places].sum()),
                "memory_bytes": None if memory is None else int(memory[places[-1]]),
                "does": _doing(moments.does[places].sum(axis=0)),
                "kernel": longest and finding("longest", "{kernel}, {share:.0%}", kernel=longest, share=share),
                **{column: mean(each, places) for column, each in sampled.items()},
                "hot": "",
            }
        )
    max(rows, key=lambda row: row["share"] or 0.0)["hot"] = "◀ most time"
    return sorted(rows, key=lambda row: row["at_ms"])


def _allocations(moments: Moments) -> tuple[list[Row], tuple[Finding, ...]]:
    """Rows of MEMORY; and the peak with the ranges whose allocations it is made of."""
    run, (times, sizes, totals, addresses, given) = moments.run, moments.allocations
    if not given.any():
        return [], ()
    nothing = np.full(len(times), NOTHING)
    label, call = (
        of.at(times) if of else nothing
        for of in (phases(run).threads.get(moments.key), calls(run).nested.get(moments.thread))
    )
    largest = np.flatnonzero(given)
    largest = largest[np.sort(np.argsort(-sizes[largest], kind="stable")[:MOST_ALLOCATIONS])]
    made: list[Row] = [
        {
            "at_ms": int(times[row]) / 1e6,
            "bytes": int(sizes[row]),
            "range": phases(run).path(int(label[row])),
            "call": None if call[row] == NOTHING else calls(run).names[call[row]],
            "total_bytes": int(totals[row]),
        }
        for row in largest.tolist()
    ]
    peak = int(np.argmax(totals))
    # Of each address the last event until then: memory that was not given back.
    held = np.sort(peak - np.unique(addresses[peak::-1], return_index=True)[1])
    held, sums = held[given[held]], Counter[str]()
    for owner, of in split(label[held]):
        path = phases(run).path(owner) or "outside every range"
        sums[short_name(path.partition(SEPARATOR)[0])] += int(sizes[held][of].sum())
    owners = tuple(
        finding("owner", "{gb:,.3f} GB in {range}", gb=size / 1e9, range=name) for name, size in sums.most_common(4)
    )
    words = "Device memory is at most {peak_gb:,.3f} GB, at {at_ms:,.1f} ms: {owners}."
    values: Row = {"peak_gb": int(totals[peak]) / 1e9, "at_ms": int(times[peak]) / 1e6, "owners": owners}
    return made, (finding("peak", words, **values),)


def _again(
    name: str, happened: Sequence[Row], surprising: Sequence[Finding], came_to: Sequence[Finding]
) -> Iterator[Finding]:
    """A command for each of the most important findings, and what it says. came_to: of the requests."""
    said: list[tuple[str, str, Row]] = []
    slow = sorted((each for each in surprising if each.kind == "slow_step"), key=lambda each: each.values["more_ms"])
    of_cause = {surprises.same_cause(each): each.values for each in slow}
    for each in sorted(of_cause.values(), key=lambda each: -each["more_ms"])[:2]:
        values = {key: each[key] for key in ("what", "length_ms")}
        said.append((f"--around {each['at_ms']:.1f}", "{what} takes {length_ms:,.3f} ms.", values))
    for ttft_ms in (each.values["ttft_ms"] for each in came_to if each.kind == "served"):
        words = "the median of ttft_ms is {ttft_ms:,.3f}."
        said.append(("--table requests --format csv", words, {"ttft_ms": ttft_ms}))
    if steps := [row for row in happened if row["count"] > 1]:
        longest = max(steps, key=lambda row: row["total_ms"])
        values = {key: longest[key] for key in ("what", "each_ms")}
        said.append(("--format csv", "each_ms of {what} is {each_ms:,.3f}.", values))
    for options, words, values in said:
        yield finding("again", "{command}: " + words, command=f"fiprof story {name} {options}", **values)


def _doing(host: Floats) -> tuple[Finding, ...]:
    """What the launching thread does most, with its share. host: ns of each of DOES."""
    shares = sorted(zip((host / max(host.sum(), 1.0)).tolist(), DOES, strict=True), reverse=True)
    return tuple(
        finding("doing", "{share:.0%} {does}", share=share, does=does) for share, does in shares[:2] if share >= 0.1
    )


def _functions(moments: Moments, begin: int, end: int) -> tuple[Finding, ...]:
    """The Python functions in which the launching thread was for a tenth of some time or more."""
    work = host_times(moments.run).during(moments.key, np.array([begin]), np.array([end]))
    longest = sorted(((ns, each.label) for each, ns in work.items() if each.label), reverse=True)[:3]
    return tuple(
        finding("function", "{ms:,.0f} ms {name}", ms=ns / 1e6, name=name)
        for ns, name in longest
        if ns >= 0.1 * (end - begin)
    )


def _steps(moments: Moments, surprising: Sequence[Finding]) -> list[Step]:
    """All moments, with what each says of itself."""
    slow = {each.values["place"]: each for each in surprising if each.kind == "slow_step"}
    counts, made = np.bincount(moments.group), list[Step]()
    for place, group in enumerate(moments.group.tolist()):
        _, name, repeats = moments.names[group]
        text, since, begin = moments.texts[place], int(moments.from_[place]), int(moments.begins[place])
        step = Step(text, begin, int(moments.done[place]), says(text), float(moments.busy[place]), since, place, name)
        step.repeats, step.slow, step.late = repeats, slow.get(place), next(iter(moments.delays.get(place, ())), None)
        step.doing = _doing(moments.does[place]) if counts[group] < FEW_STEPS else ()
        step.inside = () if repeats else _functions(moments, since, int(moments.edges[place + 1]))
        said = {word: list(value) if isinstance(value, tuple) else value for word, value in step.said.items()}
        step.row = {
            "what": step.name,
            "at_ms": since / 1e6,
            "length_ms": int(moments.length[place]) / 1e6,
            "busy_ms": step.busy / 1e6,
            "kernels": int(moments.kernels[place]),
            "copied_bytes": int(moments.copied[place]),
            "memory_bytes": None if moments.memory is None else int(moments.memory[place]),
            "kind": step.kind,
            **{f"{SAYS}{word}": value for word, value in said.items()},
            **{f"{does}_ms": float(moments.does[place, n]) / 1e6 for n, does in enumerate(DOES)},
            "late_rank": step.late and step.late.rank,
            "late_ms": step.late and step.late.ns / 1e6,
            "meanwhile": step.late and step.late.doing,
        }
        made.append(step)
    return made


def _told(happened: Sequence[Row]) -> Finding:
    """The phases in a sentence, what takes time only."""
    phases = []
    for row in happened:
        if (row["share"] or 0.0) >= 0.02:
            words = ("{count} x " if row["count"] > 1 else "") + "{what} ({share:.0%})"
            phases.append(finding("phase", words, count=row["count"], what=row["what"], share=row["share"]))
    length_s = sum(row["total_ms"] for row in happened if row["share"] is not None) / 1e3
    return finding("told", "{length_s:.3f} s: {phases}.", length_s=length_s, phases=tuple(phases))
