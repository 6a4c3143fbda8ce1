"""How to see it again: the command that collects a run, the commands by hand, what to expect, and every file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from fiprof.analysis.analyses import Analyses
from fiprof.model.case_quantities import NCU, NSYS, NSYS_SPREAD, PLAIN, PLAIN_SPREAD
from fiprof.model.layout import NCU_PAGES, NCU_REPORT, NSYS_REPORT, NSYS_SQLITE
from fiprof.model.manifest import Action, CaseEntry, Manifest
from fiprof.model.settings import collect_words
from fiprof.reports.pages.page import Block, Bullets, Caution, Code, Section, Table, Text
from fiprof.reports.pages.traced import LONG_TABLE, Cell, table
from fiprof.reports.run_report.settings import Defaults
from fiprof.reports.view import Column, Value
from fiprof.text import escape_control

CODE_WIDTH = 96
"""Columns of a command; a longer word is broken inside double quotes."""
ALL = "all"
BY_HAND = "by-hand"
"""Folder of the commands to type oneself."""

MOST_CASES = 12
"""That each command of the log says in full; of more they are said once."""

VIEWERS: Mapping[str, str] = {"ncu-ui": NCU_REPORT, "nsys-ui": NSYS_REPORT}
"""Viewer -> the raw report that it opens."""

# What was done


def actions_section(manifest: Manifest) -> Section:
    """Every command of a run, with duration, exit status, log and its words."""
    if not manifest.actions:
        why = manifest.reason or "run.json has none"
        return Section("actions", "Actions log", (Caution(f"no command was started: {why}"),))
    blocks: list[Block] = [_actions(manifest.actions)]
    blocks += [
        Caution(f"{action.step}: {action.message}" + (f" ({action.remedy})" if action.remedy else ""))
        for action in manifest.actions
        if action.message
    ]
    workload = _workload(manifest.actions)
    many = sum(word == "--case" for word in workload) > MOST_CASES
    said = [f"workload=({shell([*map(_quoted, workload)])})"] if many else []
    said += [f"# {action.step}\n{_command(action, workload if many else ())}" for action in manifest.actions]
    blocks.append(Code("\n\n".join(said), "bash" if many else "sh"))
    return Section("actions", "Actions log", tuple(blocks))


_ACTIONS = (
    Column("step", "step"),
    Column("started", "started"),
    Column("duration_s", "took", "s", ",.2f"),
    Column("exit", "exit", spec="d"),
    Column("outcome", "outcome"),
    Column("made", "made"),
    Column("log", "log"),
)


def _actions(actions: Sequence[Action]) -> Table:
    rows: list[list[Cell]] = [
        [
            action.step,
            action.started[11:19],
            action.duration_s,
            action.exit_status,
            action.outcome,
            ", ".join(file.path for file in action.files) or None,
            action.log,
        ]
        for action in actions
    ]
    date = actions[0].started[:10]
    notes = (
        f"started: on {date}, in the collecting machine's time. ncu starts its imports while nsys has the GPU, so that "
        "durations overlap.",
    )
    return table(_ACTIONS, rows, anchor="actions-log", title="Every command", notes=notes)


def _command(action: Action, workload: Sequence[str]) -> str:
    """The command's words; those of the workload, if any are given, as the variable that holds them."""
    env = [f"{name}={shlex.quote(escape_control(value))}" for name, value in action.env.items()]
    return shell([*env, *_with_variable([*map(_quoted, action.argv)], action.argv, workload)])


def _with_variable(words: list[str], argv: Sequence[str], workload: Sequence[str]) -> list[str]:
    """Quoted words with the workload's replaced. argv: the same before they were quoted."""
    start = _index(argv, workload)
    if start is not None:
        words[start : start + len(workload)] = ['"${workload[@]}"']
    return words


# How to see it again


@dataclass(frozen=True)
class Collect:
    """A command that collects cases again."""

    command: str
    """As one types it."""
    cases: tuple[str, ...]
    """Ids of the cases that it makes."""


def collects(manifest: Manifest, defaults: Defaults) -> tuple[Collect, ...]:
    """The commands that collect exactly the run's cases: one where its options can say them all, else several.

    defaults: of the workloads; a parameter at its default is left out, so that the commands are those of this fiprof.
    Without a workload's defaults all its parameters are said.
    """
    workloads: dict[str, list[CaseEntry]] = {}
    for case in manifest.cases:
        workloads.setdefault(case.workload, []).append(case)
    together = {name: _choices(cases, defaults.get(name)) for name, cases in workloads.items()}
    settings = [_quoted(word) for word in collect_words(manifest.settings)]
    merged: dict[str, tuple[str, ...]] = {}
    for choices in together.values():
        merged.update(choices or {})
    if workloads and all(
        choices is not None and all(choices.get(key) == merged.get(key) for key in workloads[name][0].params)
        for name, choices in together.items()
    ):
        ids = tuple(case.id for case in manifest.cases)
        return (Collect(shell([*_collect(list(workloads), merged, defaults), *settings]), ids),)
    found = []
    for name, cases in workloads.items():
        choices = together[name]
        if choices is not None:
            words = _collect([name], choices, {})
            found.append(Collect(shell([*words, *settings]), tuple(case.id for case in cases)))
            continue
        for part in _parts(cases):
            words = _collect([name], _choices(part, None) or {}, {})
            found.append(Collect(shell([*words, *settings]), tuple(case.id for case in part)))
    return tuple(found)


def _parts(cases: Sequence[CaseEntry]) -> list[list[CaseEntry]]:
    """The cases in parts that are every combination of some values each: two parts become one while they differ in a
    single parameter. Not the fewest parts there can be, but few."""
    keys = list(dict.fromkeys(key for case in cases for key in case.params))
    boxes: list[tuple[list[CaseEntry], dict[str, tuple[str, ...]]]] = [
        ([case], {key: (_word(case.params.get(key)),) for key in keys}) for case in cases
    ]
    for key in reversed(keys):
        merged: dict[tuple[tuple[str, ...], ...], tuple[list[CaseEntry], dict[str, tuple[str, ...]]]] = {}
        for part, values in boxes:
            rest = tuple(values[other] for other in keys if other != key)
            if rest not in merged:
                merged[rest] = ([*part], dict(values))
                continue
            together = merged[rest]
            together[0].extend(part)
            together[1][key] = tuple(dict.fromkeys((*together[1][key], *values[key])))
        boxes = list(merged.values())
    return [part for part, _ in boxes]


def _choices(cases: Sequence[CaseEntry], known: Mapping[str, Value] | None) -> dict[str, tuple[str, ...]] | None:
    """Parameter -> its values, whose every combination is one of the cases; None where some combination is not."""
    keys = list(cases[0].params)
    values = {key: tuple(dict.fromkeys(_word(case.params.get(key)) for case in cases)) for key in keys}
    made = {tuple(_word(case.params.get(key)) for key in keys) for case in cases}
    if made != set(product(*values.values())):
        return None
    return {
        key: found
        for key, found in values.items()
        if known is None or key not in known or found != (_word(known[key]),)
    }


def _collect(names: Sequence[str], choices: Mapping[str, tuple[str, ...]], defaults: Defaults) -> list[str]:
    words = ["fiprof", "collect"]
    registered = [name for name in names if ".py:" not in name]
    if defaults and set(registered) == set(defaults) and len(registered) > 1:
        words += ["--kernel", ALL]
    elif registered:
        words += ["--kernel", ",".join(map(escape_control, registered))]
    for name in names:
        if ".py:" in name:
            words += ["--workload", escape_control(name)]
    for key, values in choices.items():
        words += [f"--{key.replace('_', '-')}", ",".join(values)]
    return [*map(_quoted, words)]


def _word(value: object) -> str:
    """A parameter's value as a case id writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def guide_section(measured: Analyses, defaults: Defaults) -> Section:
    """Copy, paste, run; and the result to expect."""
    manifest = measured.run.manifest
    blocks: list[Block] = []
    commands = collects(manifest, defaults)
    if commands:
        version = f"fiprof {manifest.fiprof}" if manifest.fiprof else "fiprof"
        kernels = ", ".join(f"{name} {version}" for name, version in _libraries(manifest))
        blocks.append(Text((f"With {version}{' and ' + kernels if kernels else ''} on such a GPU:",)))
        blocks.append(Code("\n".join(each.command for each in commands)))
        if len(commands) > 1:
            blocks.append(Text(("Each makes a run of its own: no single one has exactly these cases.",)))
        if (rounds := measured.run.settings.rounds) != 1:
            blocks.append(
                Text((f"This run is part of a study and took its cases in {rounds} rounds, as fiprof study does.",))
            )
        if measured.run.plain or measured.run.trace.cases or measured.run.launches:
            blocks.append(_expect(measured))
    name = shlex.quote(escape_control(manifest.name))
    made = {file.path for action in manifest.actions for file in action.files}
    if made & {NCU_PAGES["raw"], NSYS_SQLITE}:
        blocks.append(Text(("Without a GPU, the same analysis from the raw files in this run's folder:",)))
        blocks.append(Code(f"fiprof collect --replay {name}\nfiprof report latest"))
    if by_hand := _by_hand(manifest):
        blocks.append(
            Text(("By hand, in bash, without fiprof's supervision: its own commands, in a folder of their own.",))
        )
        blocks.append(Code(by_hand, "bash"))
    opened = [f"{viewer} {report}" for viewer, report in VIEWERS.items() if report in made]
    also = []
    if opened:
        open_ = "opens this run's raw report" if len(opened) == 1 else "open this run's raw reports"
        also.append(f"{' and '.join(opened)} {open_}; xz -dk FILE.xz unpacks one that is packed.")
    if made:
        also.append("fiprof show, stalls, roofline, hotspots and timeline print the tables behind this report.")
        blocks.append(Bullets(tuple(Text((text,)) for text in also)))
    return Section("reproduce", "Reproduction guide", tuple(blocks))


def _libraries(manifest: Manifest) -> Iterable[tuple[str, str]]:
    packages = manifest.environment.get("packages")
    for name in ("flashinfer-python", "torch"):
        if isinstance(packages, dict) and packages.get(name):
            yield name, str(packages[name])


def _by_hand(manifest: Manifest) -> str:
    """The run's profiler commands with its folder renamed and the workload's words said once; empty for none."""
    actions = [action for action in manifest.actions if action.step in ("nsys", "nsys-export", "ncu", "ncu-raw")]
    if not actions:
        return ""
    workload = _workload(actions)
    lines = [f"mkdir -p {BY_HAND}/nsys {BY_HAND}/ncu {BY_HAND}/logs"]
    if workload:
        lines.append(f"workload=({shell([*map(_quoted, workload)])})")
    for action in actions:
        words = [_moved(word, manifest.name) for word in action.argv]
        words = [*map(_quoted, [words[0].rpartition("/")[2], *words[1:]])]
        words = _with_variable(words, action.argv, workload)
        lines.append(shell(words) + (f" > {BY_HAND}/ncu/raw.csv" if action.step == "ncu-raw" else ""))
    return "\n".join(lines)


def _workload(actions: Sequence[Action]) -> list[str]:
    """The workload's words that the profilers' commands share: from its interpreter to its last case."""
    argv = next((action.argv for action in actions if "--case" in action.argv), [])
    if not argv:
        return []
    end = max(index for index, word in enumerate(argv) if word == "--case") + 2
    starts = [index for index, word in enumerate(argv[:end]) if word == "run"]
    if not starts:
        return []
    # python -m fiprof.workloads run, or python …/__main__.py run.
    return argv[max(starts[0] - (3 if argv[starts[0] - 2] == "-m" else 2), 0) : end]


def _index(argv: Sequence[str], words: Sequence[str]) -> int | None:
    """Where the words stand in a command."""
    starts = range(len(argv) - len(words) + 1)
    return next((at for at in starts if list(argv[at : at + len(words)]) == list(words)), None) if words else None


def _moved(word: str, name: str) -> str:
    """A path in the run folder as one in BY_HAND."""
    head, found, tail = word.partition(f".partial-{name}/")
    if not found:
        return word
    before, equals, _ = head.rpartition("=")
    return f"{before}{equals}{BY_HAND}/{tail}"


_EXPECTED = (
    Column("case", "case"),
    Column("plain_us", "plain", "µs", ",.2f"),
    Column("plain_spread", "spread", spec=".1%"),
    Column("nsys_us", "nsys", "µs", ",.2f"),
    Column("nsys_spread", "spread", spec=".1%"),
    Column("ncu_us", "ncu", "µs", ",.2f"),
)


def _expect(measured: Analyses) -> Table:
    rows: list[list[Cell]] = [
        [
            measured.run.labels(case.id),
            PLAIN.traced(measured.run, case.id),
            PLAIN_SPREAD.traced(measured.run, case.id),
            NSYS.traced(measured.run, case.id),
            NSYS_SPREAD.traced(measured.run, case.id),
            NCU.traced(measured.run, case.id),
        ]
        for case in measured.run.manifest.cases
    ]
    notes = (
        "Medians of an iteration; spread: (p90 - p10) / median over this run's iterations. Another run on the same GPU "
        "lies within a few times that, unless clocks, temperature or company differ; another GPU, driver or library is "
        "another measurement. plain: between CUDA events, without a profiler. nsys, ncu: kernels alone.",
    )
    return table(
        _EXPECTED,
        rows,
        anchor="reproduce-expected",
        title="What to expect",
        notes=notes,
        appendix=len(rows) > LONG_TABLE,
    )


# Files

_FILES = (
    Column("path", "file"),
    Column("bytes", "bytes", spec=",d"),
    Column("sha256", "sha256", least=64),
)


def files_table(manifest: Manifest) -> Table | None:
    """Every raw file with its checksum; None for none."""
    rows: list[list[Cell]] = [
        [file.path, file.bytes, file.sha256] for action in manifest.actions for file in action.files
    ]
    if not rows:
        return None
    notes = ("Of the files as the tools wrote them; a packed one (.xz) has this sum when it is unpacked.",)
    return table(_FILES, rows, anchor="appendix-files", title="Raw files", notes=notes, appendix=True)


# Shell


def _quoted(word: str) -> str:
    """A word for a shell, what cannot be printed as its escape."""
    return shlex.quote(escape_control(word))


def shell(words: Sequence[str], width: int = CODE_WIDTH) -> str:
    """Quoted words as a command of lines no longer than width, as far as a shell can break them.

    A word that is too long for a line is put into double quotes and broken after a comma or slash: inside them, a
    backslash at a line's end joins the lines again.
    """
    lines, line = [], ""
    room = width - len(" \\")
    for word in words:
        if line and len(line) + 1 + len(word) > room:
            lines.append(line + " \\")
            line = "  "
        if len(line) + len(word) > room and (pieces := _broken(word, room - 3)):
            lines += [f"{line if index == 0 else ''}{piece}\\" for index, piece in enumerate(pieces[:-1])]
            line = pieces[-1]
        else:
            line = word if not line else f"{line}{word}" if line == "  " else f"{line} {word}"
    return "\n".join([*lines, line])


def _broken(word: str, room: int) -> list[str]:
    """A quoted word in pieces, in double quotes; empty where it cannot be broken so."""
    plain = shlex.split(word)[0] if word else ""
    if set(plain) & set('"$`\\!'):
        return []
    pieces, piece = [], '"'
    for part in plain.replace(",", ",\0").replace("/", "/\0").split("\0"):
        if len(piece) + len(part) > room and piece != '"':
            pieces.append(piece)
            piece = ""
        piece += part
    return [*pieces, piece + '"']
