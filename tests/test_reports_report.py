"""The report of a whole, partial, odd or large run; its numbers computed again, its commands run again; what ``fiprof report``
writes and where, and what it says when it cannot."""

import csv
import functools
import hashlib
import io
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.top import top
from fiprof.model.finding import words_of
from fiprof.model.run import Run
from fiprof.reports.report import Report, report
from fiprof.reports.run_report import sections
from fiprof.reports.run_report.sections import reproduce, shell
from tests import reports_fixture
from tests.conftest import Fiprof, ran
from tests.raw_figures import RawRun
from tests.recorded_runs import PROGRAMS, RUNS, answer, copied, invoke, on_h100, parsed, refusal, replayed, two_ranks
from tests.reports_fixture import case, ended, make_run, record_run, recorded_cases, write_manifest


def rows(made: Report, run: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made.data["runs"][run]["rows"]
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the recorded run in the archive of the test's folder."""
    recorded = replayed("all").path
    return Path(shutil.copytree(recorded, tmp_path / "artifacts" / recorded.name))


@functools.cache
def reported(name: str) -> Report:
    """The report of a recorded run."""
    return report([parsed(name)])


@pytest.mark.parametrize("name", [*RUNS, *PROGRAMS])
def test_shares_add_up_and_sizes_are_kept(name: str) -> None:
    made = reported(name)
    page = made.html()
    assert sum(row["share"] for row in rows(made) if row["kind"] != "kernels together") == pytest.approx(1.0, abs=0.002)
    if name in RUNS:
        assert [row["share"] for row in rows(made)] == sorted((row["share"] for row in rows(made)), reverse=True)
    else:  # what the verdict says first
        told = answer("top", parsed(name).path)["program"]["answer"]
        if told["cause"] != "ranks":  # whose time is their kernels'
            assert (told["name"] or told["cause"][:5]) in rows(made)[0]["name"]
    assert len({row["id"] for row in rows(made)}) == len(rows(made))
    names = [(row["name"], row["label"]) for row in rows(made)]
    assert len(set(names)) == len(names)
    assert len(page) < (800_000 if name in RUNS else 1_500_000)
    for window in made.data["runs"][0]["timeline"]["windows"]:
        for track in window["tracks"]:
            assert sum(track.get("iv", ())[0::4]) <= 100_000 and len(track.get("iv", ())) % 4 == 0


def test_a_program_begins_with_its_story_and_every_step_is_in_its_picture() -> None:
    made, run = reported("llama"), parsed("llama")
    assert sum(share for _, share, _ in made.data["runs"][0]["wall"]) == pytest.approx(1.0, abs=0.002)
    text = made.markdown()
    assert text.index("## What happened") < text.index("### What surprised") < text.index("## What takes the time")
    steps, memory = made.data["pictures"]
    told = answer("story", run.path, "--table", "steps")["rows"]
    drawn = {group["name"]: group["xy"][1::2] for group in steps["groups"]}
    for name, lengths in drawn.items():
        assert lengths == pytest.approx([row["length_ms"] for row in told if row["what"] == name], abs=1e-4)
    assert {name: len(lengths) for name, lengths in drawn.items()} == {"decode": 48}
    most_gb = max(run.table("memory", ["total_bytes"])[0].to_pylist()) / 1e9
    assert max(memory["groups"][0]["xy"][1::2]) == pytest.approx(most_gb, abs=1e-4)


def test_without_counters_nothing_is_said_of_them_row_by_row() -> None:
    made = report([two_ranks()])
    assert {row["limit"] for row in rows(made)} == {""}
    assert made.markdown().count("no counters, occupancy and roofs") == 1


def test_the_source_of_a_launch_is_whole() -> None:
    details = reported("all").data["runs"][0]["details"]
    found = details["launches"]["3"]["source"]
    code = details["code"][found["code"]]
    lines = code["lines"].split("\n")
    hotspots = parsed("all").table("hotspots", ["launch", "sass", "samples"]).to_pylist()
    sass = [row for row in hotspots if row["launch"] == 3]
    assert len(lines) == len(sass) == len(found["samples"])
    assert found["total"] == sum(row["samples"] or 0 for row in sass) and not any("…" in line for line in lines)
    assert all(lines[int(place)].count("BRA") or "BSSY" in lines[int(place)] or "0x" in lines[int(place)] for place in code["jumps"])  # fmt: skip


def test_without_nsys(tmp_path: Path) -> None:
    run = record_run(tmp_path / "run", trace=False)
    failed = ended("nsys", exit_status=1, outcome="failed", message="the importer failed", remedy="again")
    write_manifest(run.path, cases=recorded_cases(), actions=[failed], status="failed", reason="nsys failed")
    made = report([Run(run.path)])
    assert "no times by nsys: nsys failed: the importer failed" in made.warnings
    assert any(" failed: nsys failed" in text for text in made.warnings)
    assert "nsys: the importer failed (again)" in made.markdown()
    assert [row["limit"] for row in rows(made)[:2]] == ["latency-bound", "latency-bound"]
    assert made.data["runs"][0]["timeline"]["windows"] == []


def test_a_run_with_nothing_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_manifest(folder, status="interrupted", reason="the plain run failed", cases=[], settings={}, environment={})
    made = report([Run(folder)])
    text = made.markdown()
    assert made.title == "run" and rows(made) == []
    assert made.warnings[0] == "the run run was interrupted: the plain run failed"
    assert "0 of 1 checks passed, 0 failed, 1 not possible" in text and "--replay" not in text
    assert made.html()


def test_a_thousand_launches_are_folded(tmp_path: Path) -> None:
    launches = [
        {
            "launch": i, "case": "mine[rows=8]", "iteration": i // 5, "kernel": f"K{i % 5}", "kernel_full": f"K{i % 5}",
            "grid": "64x1x1", "block": "128x1x1", "duration_ns": 1000.0 * (i % 5 + 1) + i, "achieved_occupancy_pct": 50.0,
            "stall_dropped_bytes": 8.0,
        }
        for i in range(1000)
    ]  # fmt: skip
    made = report([make_run(tmp_path / "run", launches=launches)])
    # The launch with the median duration stands for its kernel: of 4, 9, … 999 the hundredth.
    longest = [(row["name"], row["time"]["t"]) for row in rows(made)][:2]
    assert longest == [("K4", "5.50 µs (ncu)"), ("K3", "4.50 µs (ncu)")]
    assert len(rows(made)) == 5 and len(made.markdown().splitlines()) < 400
    said = "| launch 0 (mine), launch 1 (mine), launch 2 (mine), launch 3 (mine) and 996 more | ncu dropped 8 bytes of samples"
    assert f"| failed | no samples were lost {said}" in " ".join(made.markdown().split())


@pytest.mark.fault("raw files that a run folder lacks", "the report names those that are there, and says which are not")
def test_raw_files_are_those_of_the_folder(run: Path) -> None:
    row = r"\| ncu/raw.csv +\| +240,235 \|"

    def written() -> str:
        assert invoke("report", str(run), "--format", "md")[0] == 0
        return (run / "report.md").read_text(encoding="utf-8")

    kept = written()
    assert re.search(row, kept) and "ncu-ui ncu/profile.ncu-rep" in kept
    shutil.rmtree(run / "ncu")
    said = written()
    assert not re.search(row, said) and "ncu-ui" not in said
    assert re.search(r"Left out of the run folder: [^\n]*ncu/profile.ncu-rep[^\n]*ncu/raw.csv", said)
    for name in ("tables", "nsys"):
        shutil.rmtree(run / name)
    text = " ".join(written().split()).replace("> ", "")
    assert "no counters, occupancy and roofs: ncu ran, but its tables are not there" in text


def test_an_idle_row_and_its_gain_are_of_all_gpus() -> None:
    run = two_ranks()
    found = [row for row in rows(report([run])) if row["kind"] == "idle" and row["gain"]]
    assert found and all(row["saving"] <= 1.0 for row in found)
    each = {row["name"].partition(": ")[2]: row for row in found}
    program, spent = top(run, within_steady=True).program, top(run, within_steady=True).activities
    windows = {(of.rank, of.device): of.window_ns for of in spent}
    for row in program.rows:
        if row["name"] is None and words_of(row["cause"]) in each and row["bound_pct"] is not None:
            of_all = [of for of in program.every if (of["cause"], of["name"]) == (row["cause"], row["name"])]
            bound = sum((of["bound_pct"] or 0) * windows[of["rank"], of["device"]] for of in of_all)
            shown = each[words_of(row["cause"])]["saving"]
            assert row["estimate_pct"] is not None or shown == pytest.approx(bound / sum(windows.values()) / 100)


def test_several_runs_stand_beside_each_other_and_differences_are_marked() -> None:
    found = report([parsed("all"), on_h100("all")])
    assert found.title.endswith("decode, norms and RoPE on NVIDIA H200 and NVIDIA H100 80GB HBM3")
    assert {row["id"] for row in rows(found, 1)} == {f"launch=2.{number}" for number in range(6)}
    said = " ".join(found.markdown().split())
    for text in (
        "the runs differ in GPU: NVIDIA H200 (run 1), NVIDIA H100 80GB HBM3 (run 2)",
        "| BatchQKApplyRotaryKernel (rope) | 94.7 µs (nsys) | 125.3 µs (nsys) (+32.4%) |",
        "| how far | 26% (DRAM at 74%) | ≠ 20% (DRAM at 80%) |",
        "| rope · kernels | 94.69 µs | 125.35 µs (+32.4%) |",
    ):
        assert text in said
    # One process a side tells no change from noise, and that is said once.
    assert said.count("One process a side cannot tell a change from noise") == 1 and "faster" not in said


def test_levels_of_the_hardware_are_its_samples() -> None:
    sampled = parsed("all").frame("gpu_metrics")
    sampled = sampled[sampled["metric"].str.startswith("SMs Active")]
    for window in reported("all").data["runs"][0]["timeline"]["windows"][:3]:
        (levels,) = [track["levels"] for track in window["tracks"] if track["name"] == "GPU 0 SMs active"]
        start, end = window["start_us"] * 1e3, (window["start_us"] + window["length_us"]) * 1e3
        inside = sampled["value"][sampled["time_ns"].between(start, end, "left")]
        assert max(levels) > 0 and {level for level in levels if level >= 0} == {round(value) for value in inside}


@pytest.mark.parametrize("name", RUNS)
def test_every_number_names_its_source_and_is_that_of_the_raw_files(name: str) -> None:
    made, raw = reported(name), RawRun(parsed(name).path)
    values = {(fact.source, fact.value) for _, _, fact in made.numbers}
    for source, value in values:
        assert value == pytest.approx(raw.value(source), rel=1e-6, abs=1e-9), source
    assert len(values) > 500
    assert {fact.source.origin for _, _, fact in made.numbers} == {"ncu", "nsys", "plain", "run.json", "facts"}
    for row in rows(made):
        assert "s" in row["time"]
        for said in (row["distance"], row["gain"]):
            plain = "".join(piece for piece in said if isinstance(piece, str)) if isinstance(said, list) else said
            plain = re.sub(r"\d+ bytes|fp\d+", "", plain)
            assert not re.search(r"(?<![\w.])\d", plain), said
        assert all("s" in use for _, use in row["uses"])


def test_a_users_workload_is_named_in_short_and_needs_no_cost(tmp_path: Path) -> None:
    """A file's path names no parameter, and a table of what no case states is left out."""
    folder = copied("decode", tmp_path)
    manifest, baseline = json.loads((folder / "run.json").read_text()), folder / "baseline.jsonl"
    for each in manifest["cases"]:
        each |= {"workload": f"kernels/mine.py:{each['workload']}", "flops": 0, "bytes_read": 0, "bytes_written": 0}
    (folder / "run.json").write_text(json.dumps(manifest))
    records = [json.loads(line) for line in baseline.read_text().splitlines()]
    baseline.write_text("".join(json.dumps({**each, "reference": {}}) + "\n" for each in records))
    assert invoke("report", str(folder), "--out", str(tmp_path / "report"))[0] == 0
    page = (tmp_path / "report/report.md").read_text()
    assert ("| decode batch " in page, "mine.py:decode batch" in page, "least that each case" in page) == (
        True,
        False,
        False,
    )


def commands(run: Run) -> list[str]:
    return list(map(shell, reproduce(run)))


def test_the_command_that_makes_it_again(tmp_path: Path) -> None:
    """fiprof's own command line; of older runs what their actions and settings say."""
    typed = ["fiprof", "collect", "--workload", "my file.py:x\x1b"]
    run = make_run(tmp_path / "run", cases=[case("mine[rows=8]")], argv=typed)
    assert commands(run) == ["fiprof collect --workload 'my file.py:x\\x1b'"]
    older = make_run(tmp_path / "older", actions=[ended("plain", ["python", "-m", "fiprof.workloads", "run"])])
    assert commands(older) == ["python -m fiprof.workloads run"]
    settings = {"tools": ["ncu"], "launches": 7, "cover_pct": 95.0}
    program: dict[str, Any] = {"environment": {"program": {"command": ["./a b", "-x"]}}, "settings": settings}
    (command,) = commands(make_run(tmp_path / "program", cases=[], **program))
    assert command == "fiprof profile --tool ncu --cover 95.0 --launches 7 -- './a b' -x"
    begun = make_run(tmp_path / "window", cases=[], actions=[ended("nsys-start")], **program)
    assert commands(begun)[0] == "fiprof profile --session NAME -- './a b' -x"
    assert commands(begun)[1].startswith("fiprof capture NAME --duration ")


@pytest.mark.parametrize("word", ["a" * 120, "x[y=1]," * 40, "it's " * 30, "$(touch /tmp/x)" * 12, "ü" * 10])
def test_a_command_of_several_lines_is_the_same_to_a_shell(word: str) -> None:
    assert ran("bash", "-c", shell(["printf", "%s", word])).stdout == word


def test_the_commands_by_hand_are_those_of_the_run(tmp_path: Path) -> None:
    argv = ["/opt/nsys", "profile", "--output=artifacts/.partial-run/nsys/trace.nsys-rep", "/opt/python", "-m", "fiprof.workloads",
            "run", "--case", "mine[rows=8]", "--seed=0", "--out=artifacts/.partial-run/logs/nsys.jsonl"]  # fmt: skip
    run = make_run(tmp_path / "run", actions=[ended("nsys", argv)])
    script = [view.code for view in sections.reproduction([run]).blocks if view.code][-1]
    done = ran("bash", "-c", script.replace("nsys profile", "printf '%s\\n' profile").replace("mkdir -p", ": mkdir"))
    assert done.stdout.splitlines() == [
        "profile", "--output=by-hand/nsys/trace.nsys-rep", *argv[3:-1], "--out=by-hand/logs/nsys.jsonl",
    ]  # fmt: skip


def test_documents_are_those_of_the_repository() -> None:
    made = reports_fixture.snapshots()
    differ = [name for name, text in made.items() if text != (reports_fixture.SNAPSHOTS / name).read_text("utf-8")]
    assert not differ, "python -m tests.reports_fixture writes them anew"
    assert {path.name for path in reports_fixture.SNAPSHOTS.iterdir()} == {*made, "baseline.jsonl"}


def test_it_writes_both_into_the_run_folder(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "tables")
    done = fiprof("report", "latest", status=0)
    name = f"artifacts/{run.name}"
    assert done.stdout.splitlines() == [f"{name}/report.md", f"{name}/report.html"]
    assert done.stderr == f"making the tables of {name}\n"
    title = "# FlashInfer prefill, decode, norms and RoPE on NVIDIA H200\n"
    assert (run / "report.md").read_text(encoding="utf-8").startswith(title)
    assert (run / "report.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert not list(run.glob(".report*"))
    # Of several runs it goes into a folder of its own; these do not differ.
    other = shutil.copytree(run, run.with_name("20261121-999999-other"))
    done = fiprof("report", run.name, other.name, "--format", "md", status=0)
    assert done.stdout == "report/report.md\n"
    text = (tmp_path / "report/report.md").read_text(encoding="utf-8")
    assert text.startswith("# 2 runs of FlashInfer prefill, decode, norms and RoPE") and "differ in" not in text


def test_the_bundle(fiprof: Fiprof, run: Path, tmp_path: Path) -> None:
    done = fiprof("report", "latest", "--bundle", "send.zip", status=0)
    assert done.stdout.splitlines()[-1] == "send.zip"
    with zipfile.ZipFile(tmp_path / "send.zip") as bundle:
        assert bundle.testzip() is None
        names = set(bundle.namelist())
        top = {"report.md", "report.html", "guide.md", "numbers.csv"}
        inside = {f"{run.name}/{name}" for name in (
            "run.json", "baseline.jsonl", "ncu/profile.ncu-rep", "tables/launches.csv",
            "tables/launches.parquet", "tables/gpu_metrics.parquet", "tables/checks.csv",
        )}  # fmt: skip
        assert top | inside <= names
        # Unpacked: what ncu-ui opens, with the checksum that run.json has.
        actions = json.loads(bundle.read(f"{run.name}/run.json"))["actions"]
        made = {file["path"]: file["sha256"] for action in actions for file in action["files"]}
        name = "ncu/profile.ncu-rep"
        assert hashlib.sha256(bundle.read(f"{run.name}/{name}")).hexdigest() == made[name]
        rows = list(csv.DictReader(io.StringIO(bundle.read(f"{run.name}/tables/launches.csv").decode())))
        assert [row["launch"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
        assert rows[3]["kernel"] == "PrefillWithKVCacheKernel" and float(rows[3]["duration_ns"]) == 307872
        numbers = list(csv.DictReader(io.StringIO(bundle.read("numbers.csv").decode())))
        number = {"section": "launch-3", "text": "307.87 µs", "value": "307.872"}
        assert {**number, "source": "ncu, launch 3: gpu__time_duration.sum / 1000"} in numbers
        guide = bundle.read("guide.md").decode()
        assert guide.count(f"fiprof collect --replay {run.name}") == 1 and "-m fiprof.workloads run --case" in guide
        bundle.extractall(tmp_path / "unpacked")
    # What the guide says of the bundle holds.
    assert f"```sh\nfiprof show ./{run.name}\nfiprof report ./{run.name} --out new\n```" in guide
    shown = fiprof("show", f"./unpacked/{run.name}")
    assert shown.returncode == 0 and "PrefillWithKVCacheKernel" in shown.stdout
    done = ran(sys.executable, "-c", guide.split("```python\n")[1].split("```")[0], cwd=tmp_path / "unpacked")
    assert "PrefillWithKVCacheKernel" in done.stdout or "[6 rows x" in done.stdout


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    error = refusal("report", make_run(tmp_path / "run").path, "--out", "/proc/fiprof")
    assert error.message == "/proc/fiprof cannot be written: No such file or directory"
    assert error.remedy == "write it elsewhere with --out DIR"
