"""Files of a run and a study with flipped bytes and values of other types: read, or one line that names file and field."""

import contextlib
import copy
import json
import lzma
import random
import re
import shutil
from collections.abc import Callable, Iterator
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
from fiprof.model.manifest import read_jsonl, read_manifest
from fiprof.model.run import Run
from fiprof.orchestrator.study import read_study
from tests.fakes import jit as fake_jit
from tests.recorded_runs import RUNS, STUDY, copied, parsed

OTHER: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "", "\x1b[31m", [], [1], {}, {"a": 1})
"""Values of other types."""


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


def other_type(data: bytes, random: random.Random) -> bytes:
    """One value of some JSON, or of a line of it, replaced."""
    lines = data.splitlines() if data.startswith(b'{"kind"') else [data]
    number = random.randrange(len(lines))
    changed = {"": copy.deepcopy(json.loads(lines[number]))}
    *inside, last = ("", *random.choice(list(places(changed[""]))))
    around: Any = changed
    for key in inside:
        around = around[key]
    around[last] = random.choice(OTHER)
    lines[number] = json.dumps(changed[""]).encode()
    return b"\n".join(lines) + b"\n"


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
    for turn in range(160):
        (folder / name).write_bytes((flipped, other_type)[turn % 2](whole, seed))
        try:
            read(folder)
        except FiprofError as error:
            lines.append(error.message)
    assert len(lines) > 25
    assert all(str(folder) in line and "\n" not in line for line in lines)


@pytest.mark.fault("any byte or type in results of jit changed", "`jit --read` shows it or says one line; no controls")
def test_results_of_jit_are_shown_or_refused(tmp_path: Path) -> None:
    whole, seed = (STUDY / "results/jit_analysis.json").read_bytes(), random.Random(10)
    formats = ("table", "md", "json", "csv")
    refused = 0
    for turn in range(80):
        (tmp_path / "jit.json").write_bytes((flipped, other_type)[turn % 2](whole, seed))
        printed = ends_well("jit", "--read", str(tmp_path / "jit.json"), "--format", formats[turn // 2 % 4])
        refused += printed.startswith(str(tmp_path))
        assert printed.replace("\n", "").isprintable()
    assert 20 < refused < 70


@pytest.mark.fault("any byte of FlashInfer's cache changed: ninja's logs and build files", "read, or one line")
def test_a_cache_is_read_or_refused(tmp_path: Path) -> None:
    fake_jit.fill(tmp_path, "rope")
    paths, seed = sorted(path for path in tmp_path.rglob("*") if path.is_file()), random.Random(10)
    for turn in range(120):
        path = paths[turn % len(paths)]
        whole = path.read_bytes()
        path.write_bytes(flipped(whole, seed) if turn % 5 else whole.replace(b"1", b"9" * 5000))
        with contextlib.suppress(FiprofError):
            jit.read_modules(tmp_path)
        path.write_bytes(whole)


@pytest.mark.fault("markup and controls in every text of a study's results", "escaped in its documents")
def test_documents_escape_what_results_say(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(STUDY, tmp_path / "study"))
    hostile = "<script>alert(1)</script>\x1b[31m\x07"

    def planted(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: planted(each) if key not in ("study", "name") else each for key, each in value.items()}
        if isinstance(value, list):
            return [planted(each) for each in value]
        return value + hostile if isinstance(value, str) else value

    for name in ("jit_analysis.json", "sources.json"):
        path = folder / "results" / name
        path.write_text(json.dumps(planted(json.loads(path.read_text()))))
    printed = ends_well("study", "flashinfer", "--quick", "--results-only", "--out", str(folder))
    documents = {path.name: path.read_text() for path in (folder / "reports").rglob("*.[hm][td]*")}
    assert "final-report.html" in documents and "kernel-dev-guide.md" in documents, printed
    for name, text in documents.items():
        # What stands in code is shown as it is.
        bare = re.sub(r"(?ms)^(`{3,}).*?^\1|`[^`]*`", "", text) if name.endswith(".md") else text
        assert "<script>alert" not in bare, name
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text), name
    assert "&lt;script&gt;alert" in documents["final-report.html"]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("settings", "iterations"), "20", "settings.iterations: expected int, got str"),
        (("settings", "tools"), ["perf"], "settings.tools[0]: invalid enum value 'perf'"),
        (("environment", "gpu", "l2_bytes"), "60 MB", "environment.gpu.l2_bytes: expected int | null, got str"),
        (("environment", "gpu_state"), [], "environment.gpu_state: expected object | null, got array"),
        (("actions", 1, "argv"), "nsys", "actions[1].argv: expected array, got str"),
        (("cases", 0, "params", "batch"), [], "cases[0].params[...]: expected bool | int | float | str, got array"),
    ],
)
def test_the_line_names_the_field(path: tuple[Any, ...], value: Any, line: str, tmp_path: Path) -> None:
    manifest = json.loads((RUNS["all"] / "run.json").read_text())
    around = manifest
    for key in path[:-1]:
        around = around[key]
    around[path[-1]] = value
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(FiprofError) as caught:
        read_manifest(tmp_path)
    assert caught.value.message == f"{tmp_path}/run.json is damaged or not fiprof's: {line}"


@pytest.mark.fault("a list nested 100,000 deep in baseline.jsonl", "one line names file and line")
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[" * 100_000, "line 1: no JSON object"),
        (b'{"kind": "case", "case": "a", "gpu_us": [1.0, null]}', "line 1: gpu_us[1]: expected float, got null"),
        (b'{"kind": "case", "case": "\xff"}', "line 1: no JSON object"),
    ],
)
def test_a_line_of_the_baseline(line: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "baseline.jsonl").write_bytes(line + b"\n")
    with pytest.raises(FiprofError) as caught:
        read_jsonl(tmp_path / "baseline.jsonl")
    assert caught.value.message == f"{tmp_path}/baseline.jsonl: {problem}"


@pytest.mark.fault("one of several run.json damaged", "`runs` lists the others and names the damaged one in a line")
@pytest.mark.parametrize("damage", [b"\xff\xfe", b"[" * 100_000, b'{"schema_version": 1, "name": 3}', b""])
def test_one_bad_run_hides_no_other(damage: bytes, tmp_path: Path) -> None:
    for name in ("good-1", "bad", "good-2"):
        (tmp_path / name).mkdir()
        shutil.copy(RUNS["all"] / "run.json", tmp_path / name)
    (tmp_path / "bad/run.json").write_bytes(damage)
    printed = ends_well("runs", "--artifacts", str(tmp_path), "--format", "json")
    rows = {row["name"]: row for row in json.loads(printed)["rows"]}
    assert [rows[name]["status"] for name in ("good-1", "bad", "good-2")] == ["complete", "damaged", "complete"]
    assert rows["bad"]["reason"].startswith(f"{tmp_path}/bad/run.json is damaged or not fiprof's: ")


@pytest.mark.fault("a raw file changed after the run, or put in from another one", "`parse` reads and names it")
def test_parse_names_a_raw_file_that_its_run_did_not_make(tmp_path: Path) -> None:
    folder = copied("all", tmp_path)
    assert "is not the file" not in ends_well("parse", str(folder))
    with lzma.open(RUNS["decode"] / "ncu/raw.csv.xz") as other:
        (folder / "ncu/raw.csv").write_bytes(other.read())
    printed = ends_well("parse", str(folder))
    assert f"note: {folder}/ncu/raw.csv is not the file that its run made: its checksum in run.json differs" in printed
    assert f"note: {folder}/ncu/raw.csv is of another run: decode[" in printed


# Tables

COMMANDS = {
    "launches": ("show", "roofline", "compare"), "metrics": ("show",), "stalls": ("stalls",), "rules": ("verdict",),
    "hotspots": ("hotspots", "compare"), "kernels": ("timeline", "top"), "ranges": ("timeline",), "api": ("timeline",),
    "copies": ("timeline",), "memory": ("timeline",), "gpu_metrics": ("timeline",), "checks": ("show",),
}  # fmt: skip
"""Table -> commands that read it."""

ODD: dict[str, tuple[Any, ...]] = {
    "double": (float("inf"), float("-inf"), -1.0, 0.0, 1e300), "int32": (0, -1, 2**31 - 1), "int64": (0, -1, 2**62),
    "bool": (True, False), "string": ("", "x", "\x1b[31m", "[", "0x0x0"),
}  # fmt: skip


def other_column(table: pa.Table, random: random.Random) -> pa.Table:
    """A column of another type, without a value, or with one value that no measurement has; or it is not there."""
    place = random.randrange(table.num_columns)
    name, kind = table.column_names[place], table.schema.field(place).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    values = [random.choice(ODD[str(plain)])] * table.num_rows
    columns = (
        pa.array([random.choice((1, 1.5, "text", [1], {"a": 1}))] * table.num_rows),
        pa.nulls(table.num_rows, kind),
        pa.array(values, plain).dictionary_encode() if kind != plain else pa.array(values, kind),
        None,
    )
    column = random.choice(columns)
    return table.remove_column(place) if column is None else table.set_column(place, name, column)


@pytest.mark.fault("any column of a Parquet table missing, of another type, without values", "one line names it")
@pytest.mark.fault("any byte of a Parquet table flipped", "the page's checksum tells: one line")
@pytest.mark.parametrize("table", COMMANDS)
def test_tables_are_read_or_refused(table: str, tmp_path: Path) -> None:
    folder, seed = copied("all", tmp_path), random.Random(table)
    path = folder / f"tables/{table}.parquet"
    whole, rows = path.read_bytes(), pq.read_table(path)
    for turn in range(4):
        if turn % 3:
            pq.write_table(other_column(rows, seed), path)
        else:
            path.write_bytes(flipped(whole, seed))
        for command in COMMANDS[table]:
            ends_well(command, str(folder), *([str(parsed("all").path)] if command == "compare" else []))


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
