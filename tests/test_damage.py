"""Files of a run and a study with flipped bytes and values of other types, damaged SQLite exports: read, or one line that names file
and field.

Of the exports a sample of seeds; ``FIPROF_SOAK_SQLITE=2000`` takes as many. FIPROF_SOAK_SEED is the first."""

import contextlib
import itertools
import json
import lzma
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fiprof.analysis import study
from fiprof.cli.main import cli
from fiprof.errors import FiprofError
from fiprof.flashinfer.jit import measure as jit
from fiprof.model import tables
from fiprof.model.manifest import read_jsonl, read_manifest
from fiprof.model.run import Run
from fiprof.orchestrator.study import read_study
from fiprof.parsers import nsys
from fiprof.parsers.names import printable
from fiprof.parsers.nsys_export import Export
from tests.conftest import Env, forks, run_fiprof
from tests.fakes import jit as fake_jit
from tests.golden import READERS
from tests.nsys_exports import CUDA_GRAPHS, FIVE_KERNELS, KERNEL, RUNTIME, altered
from tests.recorded_runs import RUNS, STUDY, copied, on_h100, parsed, replayed, served


def ends_well(*arguments: str) -> str:
    """What a command printed, or the one line that it ended with."""
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, FiprofError):
        assert "\n" not in result.exception.message
        return result.exception.message
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exc_info)
    return result.output


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in JSON, of the first three in a list."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def flipped(data: bytes, random: random.Random) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def read_run(folder: Path) -> None:
    run = Run(folder)
    _ = (read_manifest(folder), run.settings, run.plain, run.case_errors)


def read_study_folder(folder: Path) -> None:
    read_study(folder)
    study.load(folder)


@pytest.mark.fault("any byte of run.json, baseline.jsonl, study.json or results/*.json flipped", "read, or one line")
@pytest.mark.fault("any value in them of another type", "read, or one line that names file and field")
@pytest.mark.parametrize(
    ("source", "name", "read"),
    [
        (RUNS["all"], "run.json", read_run),
        (RUNS["all"], "baseline.jsonl", read_run),
        (STUDY, "study.json", read_study_folder),
        (STUDY, "results/environment_info.json", read_study_folder),
        (STUDY, "results/prefill.json", read_study_folder),
    ],
)
def test_json_is_read_or_refused(source: Path, name: str, read: Callable[[Path], None], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(source, tmp_path / "copy", ignore=shutil.ignore_patterns("2*", "*.xz", "reports")))
    whole, seed = (folder / name).read_bytes(), random.Random(10)
    lines = []
    for turn in range(80):
        (folder / name).write_bytes((flipped, odd_text)[turn % 2](whole, seed))
        try:
            read(folder)
        except FiprofError as error:
            lines.append(error.message)
    assert len(lines) > 12 and all(str(folder) in line and "\n" not in line for line in lines)


@pytest.mark.fault("any byte or type in results of jit changed", "`jit --read` shows it or says one line; no controls")
def test_results_of_jit_are_shown_or_refused(tmp_path: Path) -> None:
    whole, seed = (STUDY / "results/jit_analysis.json").read_bytes(), random.Random(10)
    formats = ("table", "md", "json", "csv")
    refused = 0
    for turn in range(40):
        (tmp_path / "jit.json").write_bytes((flipped, odd_text)[turn % 2](whole, seed))
        printed = ends_well("jit", "--read", str(tmp_path / "jit.json"), "--format", formats[turn // 2 % 4])
        refused += printed.startswith(str(tmp_path))
        assert printed.replace("\n", "").isprintable()
    assert 10 < refused < 35


@pytest.mark.fault("any byte of FlashInfer's cache changed: ninja's logs and build files", "read, or one line")
def test_a_cache_is_read_or_refused(tmp_path: Path) -> None:
    fake_jit.fill(tmp_path, "rope")
    paths, seed = sorted(path for path in tmp_path.rglob("*") if path.is_file()), random.Random(10)
    for turn in range(60):
        path = paths[turn % len(paths)]
        whole = path.read_bytes()
        path.write_bytes(flipped(whole, seed) if turn % 5 else whole.replace(b"1", b"9" * 5000))
        with contextlib.suppress(FiprofError):
            jit.read_modules(tmp_path)
        path.write_bytes(whole)


def manifest(*path: Any, value: Any) -> bytes:
    """A recorded run.json with another value at a path."""
    found = json.loads((RUNS["all"] / "run.json").read_text())
    reduce(getitem, path[:-1], found)[path[-1]] = value
    return json.dumps(found).encode()


@pytest.mark.fault("a list nested 100,000 deep in baseline.jsonl", "one line names file and line")
@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("run.json", manifest("settings", "iterations", value="20"), "settings.iterations: expected int, got str"),
        ("run.json", manifest("environment", "gpu", "l2_bytes", value="60 MB"), "environment.gpu.l2_bytes: expected int | null, got str"),
        ("run.json", manifest("actions", 1, "argv", value="nsys"), "actions[1].argv: expected array, got str"),
        ("run.json", manifest("cases", 0, "params", "batch", value=[]), "cases[0].params[...]: expected bool | int | float | str, got array"),
        ("baseline.jsonl", b"[" * 100_000, "line 1: no JSON object"),
        ("baseline.jsonl", b'{"kind": "case", "case": "a", "gpu_us": [1.0, null]}', "line 1: gpu_us[1]: expected float, got null"),
        ("baseline.jsonl", b'{"kind": "case", "case": "\xff"}', "line 1: no JSON object"),
    ],
    ids=range(7),
)  # fmt: skip
def test_the_line_names_the_field(name: str, content: bytes, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content + b"\n")
    with pytest.raises(FiprofError) as caught:
        read_manifest(tmp_path) if name == "run.json" else read_jsonl(tmp_path / name)
    assert caught.value.message.startswith(f"{tmp_path}/{name}") and caught.value.message.endswith(f": {line}")


@pytest.mark.fault("a raw file changed after the run, or put in from another one", "`parse` reads and names it")
def test_parse_names_a_raw_file_that_its_run_did_not_make(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(replayed("all").path, tmp_path / "run"))
    assert "is not the file" not in ends_well("parse", str(folder))
    with lzma.open(RUNS["decode"] / "ncu/raw.csv.xz") as other:
        (folder / "ncu/raw.csv").write_bytes(other.read())
    printed = ends_well("parse", str(folder))
    assert f"note: {folder}/ncu/raw.csv is not the file that its run made: its checksum in run.json differs" in printed


def other_column(table: pa.Table, random: random.Random) -> pa.Table:
    """A column of another type, without a value; or it is not there."""
    place = random.randrange(table.num_columns)
    name, kind = table.column_names[place], table.schema.field(place).type
    other = pa.array([random.choice((1, 1.5, "text", [1], {"a": 1}))] * table.num_rows)
    column = random.choice((other, pa.nulls(table.num_rows, kind), None))
    return table.remove_column(place) if column is None else table.set_column(place, name, column)


TURNS, SEED = (int(number) for number in os.environ.get("FIPROF_TEST_DAMAGES", "6:0").split(":"))
"""How many, and which: as many others with each seed."""

DAMAGED = {
    "single-purpose": on_h100, "vectors": parsed, "graph": parsed, "tworanks": parsed, "batching": served, "ranks": parsed,
}  # fmt: skip
"""Recorded runs -> where they are."""
READING = (
    """
show RUN|show RUN --all|stalls RUN|stalls RUN --all|verdict RUN|verdict RUN --all|top RUN|top RUN --all --table idle
top RUN --by range --table ranges|top RUN --rank 0 --whole --table program|timeline RUN|timeline RUN --all --phase all
top RUN --table copies|timeline RUN --perfetto new|story RUN|story RUN --rank 0 --table steps
story RUN --step 3|story RUN --request 1|story RUN --table requests|story RUN --all --table layers
story RUN --around 5 --table memory|story RUN --table told|comm RUN|comm RUN --all --by rank|comm RUN --by cause
roofline RUN|hotspots RUN|collect --replay RUN
hotspots RUN --all|expected RUN|runs --all|runs --metric duration --metric dram_share --sort -duration
runs --where batch>=1 --kernel e|trend|trend --metric case_plain_us|trend --metric nsys_duration_us --all|verify RUN
report RUN --out new|report RUN other --out new|compare RUN other|compare other RUN|compare other RUN --anyway
export RUN --to parquet --out new|export RUN --to json --out new|parse RUN|index --rebuild
export RUN --to sqlite --out new|export RUN --to perfetto --out new|publish new|kernels
export RUN --to csv --out new|export RUN --to zip --out new|timeline RUN --phase measure --kernel e
note RUN x|tag RUN x|pack RUN|prune --older-than 0d|report RUN --bundle new.zip --out new
baseline set main RUN|gate --against main --dry-run|stalls RUN --launch 0 --reasons 2|trend --metric duration --out new
""".strip()
    .replace("\n", "|")
    .split("|")
)
FORMATTED = {*READERS, "runs", "compare"}
ODD: dict[type, tuple[Any, ...]] = {
    float: (float("nan"), float("inf"), float("-inf"), None, -1.0, 0.0, 1e300, 5e-324),
    int: (None, 0, -1, 2**31 - 1, -(2**31), 2**62, -(2**63)), bool: (None, True, False),
    str: (None, "", "x", "\x1b[31m", "[", "0x0x0", "99999999999999999999x1x1", "{", "[]", '{"a": []}', "x" * 70_000),
}  # fmt: skip
TEXTS = (
    "NaN", "-Infinity", "1e999", "9" * 400, "-1", "[[[[]]]]", "[" * 100_000, '"\\ud800"', '"\\u0000"', '"../x"', "null",
    "9223372036854775808", "0", '"9999-99-99T99:99:99+99:99"', '"' + "x" * 70_000 + '"', '[null]', '{"": {}}', "true", "1.5",
    '""', '"\\u001b[31m"', "[]", "[1]", "{}", '{"a": 1}',
)  # fmt: skip
"""Values of other types, as JSON writes them, and as it must not."""


def odd_values(table: pa.Table, random: random.Random) -> pa.Table:
    """Some values of a column, or all of them, that no measurement has."""
    place = random.randrange(table.num_columns)
    name, kind = table.column_names[place], table.schema.field(place).type
    plain, values = kind.value_type if pa.types.is_dictionary(kind) else kind, table[place].to_pylist()
    of = float if pa.types.is_floating(plain) else int if pa.types.is_integer(plain) else bool if pa.types.is_boolean(plain) else str  # fmt: skip
    share, one = random.choice((0.0, 0.3, 1.0)), random.choice(ODD[of])
    lucky = random.randrange(len(values)) if values else 0
    for number in range(len(values)):
        if number == lucky or random.random() < share:
            values[number] = one if random.random() < 0.8 else random.choice(ODD[of])
    if pa.types.is_int32(plain):
        values = [value if value is None else max(min(value, 2**31 - 1), -(2**31)) for value in values]
    made = pa.array(values, plain)
    return table.set_column(place, name, made.dictionary_encode() if kind != plain else made)


def odd_rows(table: pa.Table, random: random.Random) -> pa.Table:
    """Rows missing, twice, in another order; or the values of one column in another order."""
    rows = list(range(table.num_rows))
    if not rows:
        return odd_values(table, random)
    mixed = random.sample(rows, len(rows))
    match random.randrange(6):
        case 0:
            return table.take(mixed)
        case 1:
            return table.take([*rows, *rows])
        case 2:
            return table.take(rows[:1])
        case 3:
            return table.slice(0, 0)
        case 4:
            return table.take(mixed[: len(rows) // 2])
    place = random.randrange(table.num_columns)
    return table.set_column(place, table.column_names[place], table[place].take(mixed))


def odd_table(data: bytes, random: random.Random) -> bytes:
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    pq.write_table(random.choice((other_column, odd_values, odd_values, odd_rows))(table, random), sink)
    return bytes(sink.getvalue())


def odd_text(data: bytes, random: random.Random) -> bytes:
    """A value of some JSON as text that stands for none; a key twice, or gone; or another value of the same file."""
    lines = data.splitlines() if data.startswith(b'{"kind"') else [data]
    number, mark = random.randrange(len(lines)), "\0here\0"
    content = json.loads(lines[number])
    found = list(places(content))[1:]
    *inside, last = random.choice(found)
    around = reduce(getitem, inside, content)
    if (way := random.randrange(6)) == 0:
        del around[last]
    elif way == 1 and isinstance(around, list):
        around += around
    elif way == 2:
        around[last] = json.loads(json.dumps(reduce(getitem, random.choice(found), content)))
    else:
        new = random.choice(TEXTS)
        if way == 3 and isinstance(last, str):
            new += f", {json.dumps(last)}: {json.dumps(around[last])}"
        around[last] = mark
        lines[number] = json.dumps(content).replace(json.dumps(mark), new).encode()
        return b"\n".join(lines)
    lines[number] = json.dumps(content).encode()
    return b"\n".join(lines)


def cut(data: bytes, random: random.Random) -> bytes:
    return data[: random.choice((0, random.randrange(len(data))))]


@pytest.mark.fault("a column of any table missing, of another type, NaN, inf, null or huge", "read, or one line")
@pytest.mark.fault("rows of any table missing, twice, in another order", "every command reads it, or one line")
@pytest.mark.fault("any byte of a Parquet table flipped", "the page's checksum tells: one line")
@pytest.mark.fault("any value in a run's JSON no number, huge, nested 100,000 deep, twice, gone", "likewise")
def test_every_command_on_any_damage(tmp_path: Path) -> None:
    """FIPROF_TEST_DAMAGES=TURNS:SEED: more damages, and others."""
    archive, wrong = tmp_path / "artifacts", []
    constants: list[str] = []
    env = {"PATH": "/nowhere", "HOME": str(tmp_path), "COLUMNS": "100"}
    for turn in range(TURNS):
        seed = random.Random(f"{SEED} {turn}")
        chosen, run = seed.choice([*DAMAGED]), archive / "run"
        for name, source in (("run", chosen), ("other", chosen if turn % 3 else "single-purpose")):
            shutil.rmtree(archive / name, ignore_errors=True)
            shutil.copytree(DAMAGED[source](source).path, archive / name)
        path = seed.choice(sorted(run.glob(seed.choice(("tables/*.parquet", "tables/*.parquet", "**/*.json*")))))
        odd = odd_table if path.suffix == ".parquet" else odd_text
        path.write_bytes(seed.choice((*[odd] * 8, flipped, cut))(path.read_bytes(), seed))
        for words in seed.sample(READING, 6):
            line = words.replace("RUN", "artifacts/run").replace("other", "artifacts/other").split()
            if line[0] in FORMATTED:
                line += ["--format", seed.choice(("table", "json", "md", "csv"))]
            shutil.rmtree(tmp_path / "new", ignore_errors=True)
            for left in ("new", "new.zip"):
                (tmp_path / left).unlink(missing_ok=True)
            ended = forks().run(line, tmp_path, env)
            if line[-1] == "json" and ended.stdout:
                json.loads(ended.stdout, parse_constant=constants.append)
            if constants or not (ended.in_order and ended.stdout.replace("\n", "").isprintable()):
                wrong.append((turn, line, f"{path.name}: {ended.status}: {ended.stderr[-2000:]}"))
    assert not wrong, "\n".join(map(str, wrong))


KEPT = {
    "artifacts/catalogue.sqlite": "runs --all|runs --kernel e --where batch>=1|trend|verify|index|publish new|index --rebuild",
    "artifacts/run/annotations.json": "runs --tag x|tag run y|note run z|verify|publish new|prune --older-than 0d --dry-run",
    "artifacts/baselines/main.json": "baseline list|baseline show main|baseline set main run|runs|gate --against main --dry-run"
    "|prune --older-than 0d --dry-run|verify|baseline remove main",
    "measured/run/result.json": "compare measured/run|report measured/run --out new|runs --artifacts measured|publish new --artifacts measured",
    "site/site.json": "publish site --only-new|publish site",
    "study/study.json": "study flashinfer --quick --out study --results-only --no-documents|runs --artifacts study",
    "study/results/prefill.json": "study flashinfer --quick --out study --results-only --no-documents",
    "study/results/jit_analysis.json": "jit --read study/results/jit_analysis.json",
}
"""What fiprof keeps beside a run's tables -> the commands that read it."""


@pytest.mark.fault("any byte or value of catalogue, notes, baseline, comparison, site, study", "read, or one line")
def test_what_is_kept_beside_the_tables(fakes: Env, tmp_path: Path) -> None:
    """FIPROF_TEST_DAMAGES as above, a sixth of the turns for each file."""
    wrong, whole, folder = [], tmp_path / "whole", tmp_path / "now"
    env = {"PATH": "/nowhere", "HOME": str(tmp_path), "COLUMNS": "100"}
    shutil.copytree(on_h100("single-purpose").path, whole / "artifacts/run")
    (whole / "artifacts/run/run.json").write_text((whole / "artifacts/run/run.json").read_text().replace("-dirty", ""))
    shutil.copytree(STUDY, whole / "study", ignore=shutil.ignore_patterns("*.xz", "reports"))
    words = ("--measure", "here", "env:X=1", "--kernel", "decode", "--processes", "5", "--artifacts", "measured")
    assert run_fiprof("compare", *words, cwd=whole, env=fakes).returncode == 0
    next((whole / "measured").glob("2*")).rename(whole / "measured/run")
    for line in ("tag run x", "note run y", "baseline set main run --artifacts artifacts", "index", "publish site"):
        assert forks().run(line.split(), whole, env).status == 0, line
    for turn in range(TURNS // 6 or 1):
        for name, lines in KEPT.items():
            seed = random.Random(f"{SEED} {turn} {name}")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
            odd = (flipped, cut) if name.endswith(".sqlite") else (flipped, cut, odd_text, odd_text, odd_text)
            (folder / name).write_bytes(seed.choice(odd)((folder / name).read_bytes(), seed))
            for line in lines.split("|"):
                ended = forks().run(line.split(), folder, env)
                if not (ended.in_order and ended.stdout.replace("\n", "").isprintable()):
                    wrong.append((turn, line, f"{name}: {ended.status}: {ended.stderr[-2000:]}"))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.fault("a range inside a later one, a share beyond 1, fewer samples than none", "one line names it")
@pytest.mark.parametrize(
    ("table", "column", "value", "command"),
    [("ranges", "parent", 2**31 - 1, "top"), ("stalls", "share", 1.5, "stalls"), ("stalls", "samples", -5, "stalls")],
)
def test_impossible_values_are_refused(table: str, column: str, value: float, command: str, tmp_path: Path) -> None:
    folder = copied("decode", tmp_path)
    rows = pq.read_table(path := folder / f"tables/{table}.parquet")
    place, values = rows.column_names.index(column), rows[column].to_pylist()
    pq.write_table(rows.set_column(place, column, pa.array([value, *values[1:]], rows.schema.field(place).type)), path)
    assert f"its column {column} has impossible values in 1 rows" in ends_well(command, str(folder))


@pytest.mark.fault("a table of checks without `value`, or with NaN", "the checks are made anew")
@pytest.mark.parametrize("value", [None, float("nan")])
def test_checks_without_a_value_are_made_anew(value: float | None, tmp_path: Path) -> None:
    folder = copied("all", tmp_path)
    path, whole = folder / "tables/checks.parquet", ends_well("verdict", str(folder))
    table = pq.read_table(path)
    place = table.column_names.index("value")
    nothing = pa.array([value] * table.num_rows, pa.float64())
    pq.write_table(table.remove_column(place) if value is None else table.set_column(place, "value", nothing), path)
    assert ends_well("verdict", str(folder)) == whole


SEEDS = int(os.environ.get("FIPROF_SOAK_SQLITE", "60"))
FIRST = int(os.environ.get("FIPROF_SOAK_SEED") or 21)
PAGE_BYTES = (4096, 512, 65536)
WORK = {"start": "start_ns", "end": "end_ns", "globalPid": "pid", "streamId": "stream", "correlationId": "correlation"}
READ: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "kernels": ((KERNEL,), {**WORK, "registersPerThread": "registers", "demangledName": "kernel_full"}, "globalPid"),
    "api": ((RUNTIME,), {"start": "start_ns", "end": "end_ns", "globalTid": "pid", "correlationId": "correlation"}, "globalTid"),
    "copies": (("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"), {**WORK, "bytes": "bytes"}, "globalPid"),
    "gpu_metrics": (("GPU_METRICS",), {"timestamp": "time_ns", "value": "value"}, ""),
}  # fmt: skip
"""Table -> those of nsys that it is made of, their columns and ours, and which must have a value beside start and end."""


def bases(folder: Path) -> list[Path]:
    """Whole exports with pages of several sizes, and with as many more levels."""
    found = []
    for page_bytes, source in itertools.product(PAGE_BYTES, (FIVE_KERNELS, CUDA_GRAPHS)):
        (inside := folder / f"{page_bytes}-{source.stem}").mkdir()
        found.append(altered(inside, f"PRAGMA page_size = {page_bytes}", "VACUUM", source=source))
    return found


def with_log(path: Path, seed: random.Random) -> Path:
    """A copy of an export with changes in a log that its program left: of those to come (WAL), or to be undone."""
    mode = seed.choice(("wal", "delete"))
    left = path.with_name(f"left-{mode}.sqlite")
    suffix = "-wal" if mode == "wal" else "-journal"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute(f"DELETE FROM {KERNEL} WHERE rowid > 100")
        writer.execute(f"UPDATE {RUNTIME} SET returnValue = 7, correlationId = correlationId + 1")
        if mode == "wal":
            writer.execute("COMMIT")
        shutil.copy(path, left)
        shutil.copy(f"{path}{suffix}", f"{left}{suffix}")
    return left


WAYS = ("byte", "bytes", "file's header", "page's header", "pointers", "records")
"""What of a file gets other bytes."""


def damage(path: Path, seed: random.Random) -> str:
    """Change some bytes of a file as it may happen. Returns how."""
    data = bytearray(path.read_bytes())
    page_bytes = int.from_bytes(data[16:18]) if data[:6] == b"SQLite" else 4096
    page_bytes = 65536 if page_bytes == 1 else max(page_bytes, 512)
    page = seed.randrange(max(1, len(data) // page_bytes)) * page_bytes
    other = seed.randrange(max(1, len(data) // page_bytes)) * page_bytes
    how = seed.choice((*WAYS, "zeroed", "another", "cut", "copied while it was written"))
    places = [
        (0, len(data), 1), (page, page_bytes, 20), (0, 100, 1), (page, 12, 1), (page + 8, 60, 3),
        (page + page_bytes // 2, page_bytes // 2, 3),
    ]  # fmt: skip
    if how in WAYS:
        begin, length, times = places[WAYS.index(how)]
        for _ in range(times):
            byte = seed.choice((0, 1, 13, 127, 128, 255, seed.randrange(256)))
            data[min(begin + seed.randrange(length), len(data) - 1)] = byte
    elif how == "cut":
        del data[seed.randrange(len(data)) :]
    elif how == "copied while it was written":
        # Only SQLite can notice, where it meets a missing page.
        del data[page + page_bytes :]
        data[28:32] = (page // page_bytes + 1).to_bytes(4)
    else:
        new = bytes(page_bytes) if how == "zeroed" else bytes(data[other : other + page_bytes])
        data[page : page + page_bytes] = new
    path.write_bytes(data)
    return how


def cell(name: str, value: Any) -> Any:
    """As a table of ours has a value of nsys's column."""
    if value is None:
        return None
    if name == "value":
        return value / 1e6 if value > 1e5 else value
    if name in ("streamId", "registersPerThread"):
        return (value + (1 << 31)) % (1 << 32) - (1 << 31)
    return value >> 24 & 0xFFFFFF if name.startswith("global") else value


def by_sqlite(path: Path, name: str, span: tuple[int, int]) -> Counter[Any]:
    """The rows of one of our tables as sqlite3 reads them. Raises sqlite3.Error."""
    sources, columns, owner = READ[name]
    found: Counter[Any] = Counter()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda raw: printable(raw.decode(errors="replace"))
        for source in sources:
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({source})")}
            if not there or not {"start", "end", "globalTid"} & {*columns} <= there:
                continue
            read = {each: f'CAST("{each}" AS REAL)' if each == "value" else f'"{each}"' for each in there}
            cells = ", ".join(read.get(each, "0" if each == "globalPid" else "NULL") for each in columns)
            for row in connection.execute(f"SELECT {cells} FROM {source}"):
                of = dict(zip(columns, row, strict=True))
                times = [of[each] for each in ("start", "end", "timestamp") if each in of]
                if (None in times and name != "gpu_metrics") or (owner and of[owner] is None):
                    continue
                if not all(time is None or span[0] <= time <= span[1] for time in times) or (
                    times[0] is not None and times[-1] < times[0]
                ):
                    continue
                if "demangledName" in of:
                    (of["demangledName"],) = connection.execute(
                        "SELECT (SELECT CAST(value AS TEXT) FROM StringIds WHERE id = ?)", (of["demangledName"],)
                    ).fetchone()
                found[tuple(cell(each, value) for each, value in of.items())] += 1
    return found


def read_by_fiprof(path: Path, folder: Path, command: bool) -> Path | str:
    """The folder of the tables, or the line of the refusal."""
    if not command:
        try:
            nsys.parse(path, folder / "tables")
        except FiprofError as error:
            return error.message
        return folder / "tables"
    result = CliRunner().invoke(cli, ("import", str(path), "--artifacts", str(folder / "archive"), "--quiet"))
    if result.exit_code == 0:
        (tables_folder,) = (folder / "archive").glob("2*/tables")
        return tables_folder
    assert isinstance(result.exception, FiprofError), result.exc_info
    return result.exception.message


@pytest.mark.fault("nsys's export cut off at any byte, or copied while nsys wrote it", "read, or one line: damaged")
@pytest.mark.fault("random bytes of nsys's export changed", "read, or one line")
@pytest.mark.fault(
    "2,000 damages of an SQLite: pages, headers, cells, records, its WAL and journal, cut, pages of another place",
    "read as sqlite3 reads it, or one line; `FIPROF_SOAK_SQLITE=2000` tries them all",
)
def test_damage_is_read_as_sqlite_reads_it_or_refused(tmp_path: Path) -> None:
    whole, outcomes = bases(tmp_path), Counter[str]()
    for number in range(FIRST, FIRST + SEEDS):
        seed = random.Random(number)
        (folder := tmp_path / str(number)).mkdir()
        path = Path(shutil.copy(seed.choice(whole), folder / "trace.sqlite"))
        logged = number % 5 == 0
        if logged:
            path = with_log(path, seed)
        files = [each for suffix in ("", "-wal", "-journal") if (each := path.with_name(path.name + suffix)).exists()]
        how = damage(files[-1] if seed.random() < 0.7 else path, seed)
        own = [Path(shutil.copy(each, folder / each.name.replace(path.name, "own.sqlite"))) for each in files]
        before = [each.read_bytes() for each in files]
        result = read_by_fiprof(path, folder, number % 10 < 2)
        assert [each.read_bytes() for each in files] == before
        if isinstance(result, str):
            assert "\n" not in result and str(folder) in result, (number, how, result)
            outcomes["refused"] += 1
        else:
            with Export(path) as export:
                span = export.span
            for name, (_, columns, _) in READ.items():
                read = tables.read(result, name, [*columns.values()]).to_pylist()
                found = Counter(
                    tuple(cell(ours, row[ours]) if ours == "value" else row[ours] for ours in columns.values())
                    for row in read
                )
                assert found == by_sqlite(own[0], name, span), (number, how, name)
            outcomes["read"] += 1
        shutil.rmtree(folder)
    print(dict(outcomes))
    assert outcomes["read"] > SEEDS / 5 and outcomes["refused"] > SEEDS / 10
