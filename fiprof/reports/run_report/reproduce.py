"""How to measure a run again: the command that collects it, the commands by hand, and what opens its files."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from fiprof.analysis.reproduce import reproduce
from fiprof.model.layout import NCU_PAGES, NCU_REPORT, NSYS_REPORT, NSYS_SQLITE
from fiprof.model.manifest import Action, Manifest
from fiprof.model.run import Run
from fiprof.model.wording import say
from fiprof.reports.pages.page import Block, Code, Section, Text
from fiprof.text import escape_control

CODE_WIDTH = 96
"""Columns of a command; a longer word is broken inside double quotes."""
BY_HAND = "by-hand"
"""Folder of the commands to type oneself."""

BY_HAND_STEPS = ("nsys", "nsys-export", "ncu", "ncu-raw")

VIEWERS: Mapping[str, str] = {"ncu-ui": NCU_REPORT, "nsys-ui": NSYS_REPORT}
"""Viewer -> the raw report that it opens."""


def _with_variable(words: list[str], argv: Sequence[str], workload: Sequence[str]) -> list[str]:
    """Quoted words with the workload's replaced by the variable that holds them. argv: the same before quoting."""
    start = _index(argv, workload)
    if start is not None:
        words[start : start + len(workload)] = ['"${workload[@]}"']
    return words


def section(runs: Sequence[Run]) -> Section:
    """What to copy, paste and run."""
    blocks = [block for run in runs for block in _of_run(run, named=len(runs) > 1)]
    return Section("reproduce", "How to do it again", tuple(blocks), folded=True)


def _of_run(run: Run, *, named: bool) -> Iterable[Block]:
    manifest = run.manifest
    if named:
        yield _text("Run {name}:", name=escape_control(manifest.name))
    if (commands := reproduce(run)) and not manifest.imported:
        version = f"fiprof {manifest.fiprof}" if manifest.fiprof else "fiprof"
        kernels = () if run.of_program else (f"{name} {version}" for name, version in _libraries(manifest))
        yield _text("With {what}:", what=" and ".join(filter(None, (version, ", ".join(kernels)))))
        yield Code("\n".join(shell(list(map(shlex.quote, shlex.split(command)))) for command in commands))
        if run.settings.rounds != 1 and not run.of_program:
            yield _text(
                "This run is part of a study and took its cases in {rounds} rounds, as fiprof study does.",
                rounds=run.settings.rounds,
            )
    name = shlex.quote(escape_control(manifest.name))
    made = manifest.files.keys() - {each.path for each in manifest.pruned}
    if manifest.imported:
        yield _text("From the same files, whose checksums run.json has:")
        yield Code("\n".join(shell(list(map(shlex.quote, shlex.split(command)))) for command in commands))
    elif made & {NCU_PAGES["raw"], NSYS_SQLITE} and not run.of_program:
        yield _text("Without a GPU, from the raw files in this run's folder:")
        yield Code(f"fiprof collect --replay {name}\nfiprof report latest")
    if by_hand := _by_hand(manifest):
        yield _text("By hand, in bash:")
        yield Code(by_hand, "bash")
    if opened := tuple(f"{viewer} {report}" for viewer, report in VIEWERS.items() if report in made):
        yield _text("The raw reports open in {opened}; fiprof pack RUN --undo unpacks them.", opened=opened)


def _text(words: str, **values: object) -> Text:
    return Text((say(words, **values),))


def _libraries(manifest: Manifest) -> Iterable[tuple[str, str]]:
    packages = manifest.environment.get("packages")
    for name in ("flashinfer-python", "torch"):
        if isinstance(packages, dict) and packages.get(name):
            yield name, str(packages[name])


def _by_hand(manifest: Manifest) -> str:
    """The run's profiler commands with its folder renamed and the workload's words said once; empty for none."""
    actions = [action for action in manifest.actions if action.argv and action.step in BY_HAND_STEPS]
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
    # python -P -m fiprof.workloads run, or python …/__main__.py run.
    start = max(starts[0] - (3 if argv[starts[0] - 2] == "-m" else 2), 0)
    return argv[max(start - (argv[start] == "-P"), 0) : end]


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
