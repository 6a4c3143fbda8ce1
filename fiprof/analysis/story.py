"""What happened, in order of time: a program's phases and steps, their times, their layers, and what surprises."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from fiprof.analysis import samples, surprises
from fiprof.analysis.copies import dram_rate
from fiprof.analysis.frames import Column, Narrow, Row, columns
from fiprof.analysis.host import host_times
from fiprof.analysis.layers import LAYERS, layers, typical_steps
from fiprof.analysis.moments import BEFORE, DOES, Moments
from fiprof.analysis.program import OUTSIDE, Program
from fiprof.analysis.requests import (
    FEW_STEPS,
    REQUESTS,
    ServerStep,
    StepKind,
    kv_lengths,
    requests,
    says,
    served,
    short_name,
)
from fiprof.analysis.steady import LAYER_NS, steady
from fiprof.analysis.telling import TOLD, doing, tell
from fiprof.analysis.trace import SEPARATOR, calls, marks, phases
from fiprof.errors import FiprofError
from fiprof.model.arrays import Floats, Ints
from fiprof.model.finding import Finding, finding
from fiprof.model.ranks import ranks_of
from fiprof.model.run import Run
from fiprof.model.spans import NOTHING

SHOWN = 0.005  # share of the time below which a phase is told with the others
ON_GPU = 0.25  # share of its time in which the GPU works from which on a step that comes once or twice has layers
RARE = 0.01  # share of the time from which on a step surprises where all of its name take little, or are layers

HAPPENED = columns("happened")
STEPS = (
    *columns("steps"),
    *(Column(f"{does}_ms", does.words, "ms", ",.3f", "Of the launching thread, in the step.") for does in DOES[:-1]),
)
"""One moment; the host's times are those of the launching thread. What its range says in numbers follows, each with
``says_`` before its word."""
LATE = columns("late")
"""Of a step, where there are ranks."""
SAYS = "says_"
MEMORY = columns("memory")
"""An allocation of device memory, of the MOST_ALLOCATIONS largest."""
MOST_ALLOCATIONS = 12
SAMPLED = {"sms_active_pct": "sms_active", "tensor_active_pct": "tensor_active", "dram_pct": "dram"}
"""Column -> what of nsys's samples, in percent, it is the mean of."""


@dataclass(frozen=True)
class Story:
    """What ``fiprof story`` tells of one GPU."""

    rank: int | None
    device: int
    several: int  # GPUs of the run
    tables: dict[str, tuple[Sequence[Column], list[Row]]]
    """Columns and rows, in order of time: told, happened, steps (all that repeat, with what they say), memory (the
    largest allocations), requests, layers (medians over the steps looked at)."""
    found: dict[str, tuple[Finding, ...]]
    """summary; served: what the requests came to; surprises: each slow step, change of kernels, slow layer and leak;
    causes: these, those of one cause as one; first_steps: of each name the first, where it takes longer; layers: what
    repeats inside a step; peak: the most memory; again: how to see findings again; laws: how steps grow longer."""

    def rows(self, table: str) -> list[Row]:
        return self.tables[table][1]


def story(run: Run, program: Program, *, rank: int | None = None, kv_bytes: int | None = None, name: str = "") -> Story:
    """What happened on one GPU: that of a rank, or of the first row of the program's verdict. kv_bytes: of a token in
    the KV cache, where the program's ranges and marks do not say it (``kv_bytes_per_token 32768``). name: what commands
    have for RUN, where that is not where it lies.

    Raises FiprofError for a run of cases, or where this rank is not there.
    """
    if run.cases and not (run.of_program or run.imported):
        what = f"{run.manifest.name} measured cases one after the other: there is no program to tell of"
        raise FiprofError(what, f"fiprof timeline {run.given} shows each case in time")
    devices = sorted(steady(run))
    device = program.rows[0]["device"] if program.rows else devices[0]
    pid = None
    if rank is not None:
        of_rank = [each for each in ranks_of(run).all if each.rank == rank]
        if not of_rank:
            raise FiprofError(f"{run.manifest.name} has no rank {rank}", "fiprof top shows those it has", exit_code=2)
        device, pid = NOTHING if of_rank[0].device is None else of_rank[0].device, of_rank[0].pid
    moments = Moments(run, device, pid)
    of_group = {group: np.flatnonzero(moments.group == group) for group in np.unique(moments.group).tolist()}
    repeating = {group: rows for group, rows in of_group.items() if moments.names[group].repeats}
    surprising, first_steps, leaks, laws = (list[Finding]() for _ in range(4))

    # Only steps that are explained, or whose kernels are compared, have their kernels read one by one.
    typical = {group: typical_steps(moments, rows).tolist() for group, rows in repeating.items()}
    usual_ns = {group: float(np.median(moments.length[rows])) for group, rows in repeating.items()}
    least_ns = LAYER_NS * moments.on_gpu
    many = {group: rows for group, rows in repeating.items() if len(rows) >= FEW_STEPS}
    before = np.array([name.text == BEFORE for name in moments.names])[moments.group]
    whole_ns = float(moments.length[~before].sum())
    long = [
        group
        for group, rows in many.items()
        if usual_ns[group] >= least_ns and moments.length[rows].sum() >= SHOWN * whole_ns
    ]
    slow = {
        group: surprises.slow_steps(moments, rows, 0.0 if group in long else RARE * whole_ns)
        for group, rows in many.items()
    }
    changes = {group: surprises.changes(moments, repeating[group]) for group in long}
    paces = {group: surprises.paces(moments, repeating[group]) for group in long}
    wanted = {int(repeating[group][n]) for group, late in slow.items() for pair in late.items() for n in pair}
    compared = chain(changes.values(), (each.values() for each in paces.values()))
    kernels = moments.launched(wanted.union(*typical.values(), *chain.from_iterable(compared)))
    for group, late in slow.items():
        rows = repeating[group]
        first_usual = next(n for n in range(len(rows) + 1) if n not in late)
        for each in surprises.explained(moments, rows, late, kernels):
            (first_steps if each.values["number"] < first_usual else surprising).append(each)
        if group not in long:
            continue
        surprising += [surprises.changed(moments, *pair, kernels) for pair in changes[group]]
        surprising += surprises.paced(moments, rows, late, paces[group], kernels)
        surprising += surprises.uneven(moments, rows)
        leaks += surprises.leak(moments, rows)
        if not (changes[group] or paces[group]):
            laws += surprises.growth(moments, rows)
    surprising += sorted(leaks, key=lambda each: -each.values["more_mb"])[:1]  # what grows in one grows in the others
    # A warm-up and the steps have the same layers: those that come last are told.
    layered = {
        (figures["count"], figures["period"], None if figures["load"] else figures["kernels"]): layer
        for group, places in typical.items()
        if group in many or moments.busy[repeating[group]].sum() >= ON_GPU * moments.length[repeating[group]].sum()
        if (layer := layers(run, moments.names[group].text, [kernels[place] for place in places]))
        for figures in [layer[0].values]
    }
    surprising += [each for _, _, slow_layers in layered.values() for each in slow_layers]
    happened, every = _happened(moments, of_group, max(whole_ns, 1.0)), _steps(moments, surprising + first_steps)
    for group in long:
        if delayed := surprises.late_rank([every[at].late for at in repeating[group].tolist()], usual_ns[group]):
            what = moments.names[group].text
            surprising.append(finding("late_steps", "{what}: {late}.", what=what, late=delayed, **delayed.values))

    server_steps = [step for step in every if step.text and (step.kind is not StepKind.OTHER or step.said)]
    all_requests = requests(marks(run), server_steps)
    said_bytes = (says(text).get("kv_bytes_per_token") for text in marks(run).texts if text and "kv_bytes" in text)
    kv_bytes = kv_bytes or next((each for each in said_bytes if isinstance(each, int)), 0)
    lengths, (memory, peak) = kv_lengths(all_requests, server_steps), _allocations(moments)
    came_to = served(all_requests, server_steps, lengths, kv_bytes, dram_rate(run, device))
    steps = [every[at].row | {"number": n} for rows in repeating.values() for n, at in enumerate(rows.tolist())]
    figures = dict.fromkeys(f"{SAYS}{word}" for rows in repeating.values() for at in rows for word in every[at].said)
    steps = [figures | row | {"kv_tokens": lengths.get(row["what"])} for row in steps]
    says_columns = (Column(key, key.removeprefix(SAYS), spec=",d", narrow=Narrow.DROP) for key in figures)
    rank_of = ranks_of(run).on(device)
    tables: dict[str, tuple[Sequence[Column], list[Row]]] = {
        "happened": (HAPPENED, happened),
        "steps": ((*STEPS, *(LATE if rank_of is not None else ()), *says_columns), steps),
        "told": (TOLD, tell(every, all_requests, SHOWN * whole_ns / 1e6)),
        "memory": (MEMORY, memory),
        "requests": (REQUESTS, [each.row for each in all_requests]),
        "layers": (LAYERS, [row for _, rows, _ in layered.values() for row in rows]),
    }
    # The phases in a sentence, what takes time only.
    once, often = "{what} ({share:.0%})", "{count:,d} x {what} ({share:.0%})"
    timed = [{key: row[key] for key in ("count", "what", "share")} for row in happened if (row["share"] or 0.0) >= 0.02]
    phases_ = tuple(finding("phase", often if each["count"] > 1 else once, **each) for each in timed)
    length_s = sum(row["total_ms"] for row in happened if row["share"] is not None) / 1e3
    words, values = "{length_s:.3f} s: {phases}.", Row(length_s=length_s, phases=phases_)
    shared = {each.pid: each.rank for each in ranks_of(run).all if each.device == device}
    if len(shared) > 1 and (of := shared.get(moments.key >> 32)) is not None:
        words += " The steps are rank {of}'s, and the GPU's work that of {ranks:rank|ranks}: --rank tells of another."
        values |= {"of": of, "ranks": len(shared)}
    sentence = finding("told", words, **values)
    findings = {
        # Of another rank the answer says nothing.
        "summary": (sentence, program.answer) if rank in (None, program.answer.values.get("rank")) else (sentence,),
        "served": came_to,
        "surprises": surprising,
        "causes": surprises.by_cause(surprising),
        "first_steps": surprises.by_cause(first_steps),
        "layers": (figures for figures, _, _ in layered.values()),
        "peak": (*peak, *moments.torch.peak()),
        "again": _again(name or run.given, happened, surprising, came_to),
        "laws": laws,
    }
    return Story(rank_of, device, len(devices), tables, {name: tuple(each) for name, each in findings.items()})


def _happened(moments: Moments, of_group: Mapping[int, Ints], total: float) -> list[Row]:
    """Rows of HAPPENED. total: ns from the first range on."""
    memory, of_device, rows = moments.memory, samples.read(moments.run).get(max(moments.device, 0)), list[Row]()
    edges = np.maximum.accumulate(np.append(moments.from_, moments.done[-1]).astype(np.float64))
    unknown = np.full(moments.count, np.nan)
    sampled = {column: of_device.means(key, edges) if of_device else unknown for column, key in SAMPLED.items()}

    def mean(values: Floats, lengths: Ints) -> float | None:
        finite = np.isfinite(values) & (lengths > 0)
        return float(np.average(values[finite], weights=lengths[finite])) if finite.any() else None

    for group, places in of_group.items():
        level, name, _ = moments.names[group]
        lengths, kernels = moments.length[places], moments.kernel_ns.get(group, {})
        low, median, high = np.percentile(lengths, (10, 50, 90)).tolist()
        whole, longest = float(lengths.sum()), max(kernels, key=kernels.__getitem__, default="")
        share = kernels[longest] / sum(kernels.values()) if longest else 0.0
        rows.append({
            "at_ms": int(moments.begins[places[0]]) / 1e6, "what": name, "level": level, "count": len(places),
            "each_ms": median / 1e6, "spread": (high - low) / median if len(places) > 1 and median else None,
            "total_ms": whole / 1e6, "share": None if name == BEFORE else whole / total,
            "busy": min(float(moments.busy[places].sum()) / whole, 1.0) if whole else None,
            "kernels": float(np.median(moments.kernels[places])), "copied_bytes": int(moments.copied[places].sum()),
            "memory_bytes": None if memory is None else int(memory[places[-1]]),
            "does": doing(moments.does[places].sum(axis=0)),
            "kernel": finding("longest", "{kernel}, {share:.0%}", kernel=longest, share=share) if longest else None,
            **{column: mean(each[places], lengths) for column, each in sampled.items()}, "hot": "",
        })  # fmt: skip
    max(rows, key=lambda row: row["share"] or 0.0)["hot"] = "◀ most time"
    return sorted(rows, key=lambda row: row["at_ms"])


def _allocations(moments: Moments) -> tuple[list[Row], tuple[Finding, ...]]:
    """Rows of MEMORY; and the peak with the ranges whose allocations it is made of."""
    run, (times, sizes, totals, addresses, allocated_bytes) = moments.run, moments.allocations
    if not allocated_bytes.any():
        return [], ()
    paths, calls_ = phases(run), calls(run)
    ranges, called = paths.threads.get(moments.key), calls_.nested.get(moments.thread)
    label, call = (of.at(times) if of else np.full(len(times), NOTHING) for of in (ranges, called))
    names, largest = (*calls_.names, None), np.flatnonzero(allocated_bytes)
    rows: list[Row] = [
        {
            "at_ms": int(times[row]) / 1e6, "bytes": int(sizes[row]), "range": paths.path(int(label[row])),
            "call": names[call[row]], "total_bytes": int(totals[row]),
        }
        for row in np.sort(largest[np.argsort(-sizes[largest], kind="stable")[:MOST_ALLOCATIONS]]).tolist()
    ]  # fmt: skip
    peak, sums = int(np.argmax(totals)), Counter[str]()
    # Of each address the last event until then: memory that was not given back.
    held = np.sort(peak - np.unique(addresses[peak::-1], return_index=True)[1])
    for row in held[allocated_bytes[held] > 0].tolist():
        path = paths.path(int(label[row])) or OUTSIDE
        sums[short_name(path.partition(SEPARATOR)[0])] += int(sizes[row])
    most = [each for each in sums.most_common(4) if each[1] >= 0.01 * int(totals[peak])]
    where = {name: "{gb:,.3f} GB " + ("" if name == OUTSIDE else "in ") + "{range}" for name, _ in most}
    owners = tuple(finding("owner", where[name], gb=size / 1e9, range=name) for name, size in most)
    if moments.memory is None:
        return rows, ()
    words = "Device memory is at most {peak_gb:,.3f} GB, at {at_ms:,.1f} ms" + (": {owners}." if paths.threads else ".")
    values: Row = {"peak_gb": int(totals[peak]) / 1e9, "at_ms": int(times[peak]) / 1e6, "owners": owners}
    return rows, (finding("peak", words, **values),)


def _again(
    name: str, happened: Sequence[Row], surprising: Sequence[Finding], came_to: Sequence[Finding]
) -> Iterator[Finding]:
    """A command for each of the most important findings, and what it says. came_to: of the requests."""

    def again(options: str, words: str, **values: Any) -> Finding:
        return finding("again", "{command}: " + words, command=f"fiprof story {name} {options}", **values)

    slow = sorted((each for each in surprising if each.kind == "slow_step"), key=lambda each: each.values["more_ms"])
    of_cause = {surprises.same_cause(each): each.values for each in slow}
    for each in sorted(of_cause.values(), key=lambda each: -each["more_ms"])[:2]:
        at, words = f"--around {each['at_ms']:.1f}", "{what} takes {length_ms:,.3f} ms."
        yield again(at, words, what=each["what"], length_ms=each["length_ms"])
    for ttft_ms in (each.values["ttft_ms"] for each in came_to if each.kind == "served"):
        yield again("--table requests --format csv", "the median of ttft_ms is {ttft_ms:,.3f}.", ttft_ms=ttft_ms)
    if steps := [row for row in happened if row["count"] > 1 and row["kernels"]]:
        longest = max(steps, key=lambda row: row["total_ms"])
        words = "each_ms of {what} is {each_ms:,.3f}."
        yield again("--format csv", words, what=longest["what"], each_ms=longest["each_ms"])


def _steps(moments: Moments, surprising: Sequence[Finding]) -> list[ServerStep]:
    slow = {each.values["place"]: each for each in surprising if each.kind == "slow_step"}
    paces, paced = Counter[int](), {each.values["place"] for each in surprising if each.kind == "pace"}
    counts, server_steps, host = np.bincount(moments.group), list[ServerStep](), host_times(moments.run)
    columns = {
        "at_ms": moments.from_ / 1e6, "length_ms": moments.length / 1e6, "busy_ms": moments.busy / 1e6,
        "kernels": moments.kernels, "copied_bytes": moments.copied.astype(np.int64),
        "memory_bytes": np.full(moments.count, None) if moments.memory is None else moments.memory,
        **{f"{does}_ms": moments.does[:, n] / 1e6 for n, does in enumerate(DOES[:-1])},
    }  # fmt: skip
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    for place, (group, of_place) in enumerate(zip(moments.group.tolist(), values, strict=True)):
        _, name, repeats = moments.names[group]
        text, since, begin = moments.texts[place], int(moments.from_[place]), int(moments.begins[place])
        step = ServerStep(
            text, begin, int(moments.done[place]), says(text), float(moments.busy[place]), since, place, name
        )
        paces[group] += place in paced
        step.pace, step.repeats, step.slow = paces[group], repeats, slow.get(place)
        step.late = next(iter(moments.delays.get(place, ())), None)
        step.does = moments.does[place] if counts[group] < FEW_STEPS else None
        if not repeats or counts[group] < FEW_STEPS:
            until = int(moments.edges[place + 1])
            work = host.during(moments.key, np.array([since]), np.array([until]))
            functions = ((ns, each.label) for each, ns in work.items() if each.label and ns >= 0.1 * (until - since))
            longest = sorted(functions, reverse=True)[:3]
            inside = tuple(finding("function", "{ms:,.0f} ms {name}", ms=ns / 1e6, name=each) for ns, each in longest)
            step.inside = finding("inside", "of it {inside}", inside=inside) if inside else None
        said = {f"{SAYS}{word}": list(each) if isinstance(each, tuple) else each for word, each in step.said.items()}
        step.row = {
            "what": step.name, "kind": step.kind, **said, **dict(zip(columns, of_place, strict=True)),
            "late_rank": step.late and step.late.rank, "late_ms": step.late and step.late.ns / 1e6,
            "meanwhile": step.late and step.late.doing,
        }  # fmt: skip
        server_steps.append(step)
    return server_steps
