"""Two runs compared: pairs, what explains a change, what is refused; comparisons measured on an H200; and ``compare --measure``, end
to end with a stand-in for the GPU's interpreter."""

import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fiprof.analysis.comparison.kernels import factors
from fiprof.analysis.comparison.measured_result import ComparedCase, MeasuredComparison, compared, read_comparison
from fiprof.analysis.comparison.runs import pair_cases
from fiprof.analysis.comparison.statistics import Outcome
from fiprof.model.manifest import Manifest, read_manifest
from fiprof.orchestrator.compare import CompareRequest, check_out, pairs_of, parse_side
from fiprof.workloads.case import make_cases
from tests.conftest import Completed, Env, Fiprof
from tests.nsys_exports import CUDA_GRAPHS, KERNEL, altered, executed, query
from tests.recorded_runs import RECORDED, RUNS, copied, invoke, parsed
from tests.recorded_runs import rows as answers
from tests.reports_fixture import RAW, case
from tests.test_strangers import git

Rows = list[dict[str, Any]]
answered = partial(answers, "compare")


def about(rows: Rows, what: str, **cells: object) -> Iterator[dict[str, Any]]:
    wanted = {"about": what, **cells}.items()
    return (row for row in rows if wanted <= {key: row[key] for key in row if not isinstance(row[key], list)}.items())


@pytest.mark.fault("the commit of a run is not in this checkout", "`compare` suggests no command that git refuses")
def test_a_commit_that_is_not_here_is_not_suggested(fiprof: Fiprof, tmp_path: Path) -> None:
    commits = []
    for name in ("a", "b"):
        git(tmp_path, "init", "-q")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", name)
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    for name in ("a", "b"):
        shutil.copytree(parsed("decode").path, tmp_path / name, dirs_exist_ok=True)
    for b, suggested in ((commits[1], True), ("0123456789ab", False)):
        for name, commit in (("a", commits[0]), ("b", b)):
            manifest = json.loads((tmp_path / name / "run.json").read_text())
            manifest["environment"]["git"] = commit
            (tmp_path / name / "run.json").write_text(json.dumps(manifest))
        done = fiprof("compare", "./a", "./b", status=0)
        assert (f"--measure git:{commits[0]} git:{b} " in " ".join(done.stdout.split())) == suggested
        assert suggested or "git:" not in done.stdout


@pytest.mark.parametrize("name", ["llama", "tworanks", "all", "decode"])
def test_a_run_against_itself_has_the_same_numbers(name: str) -> None:
    path = parsed(name).path
    rows = answered(path, path)
    assert {row["accounts_us"] or 0.0 for row in rows} == {0.0}
    assert any(about(rows, "part", item="waiting")) == (name == "tworanks")
    if name in RUNS:
        assert {row["change"] or 0.0 for row in rows} == {0.0} and not list(about(rows, "hot_code"))
        assert {row["match"] for row in about(rows, "kernel")} == {"same"}
        assert [(row["item"], row["by"]) for row in about(rows, "outcome")] == [("same", "same_run")]
    else:
        assert invoke("compare", str(path), str(path))[1].startswith("The same numbers: ")


@pytest.mark.fault("one process starts more slowly than the other", "`compare` tells what changed in the steps")
def test_a_longer_start_is_no_change_of_the_steps(tmp_path: Path) -> None:
    """A step's own changes are told whatever the start-up takes: a kernel that takes longer, and one renamed."""
    a, b = (tmp_path / f"{side}.sqlite" for side in "ab")
    a.write_bytes(lzma.decompress((RECORDED / "20261122-111810-llama/nsys/trace.sqlite.xz").read_bytes()))
    shutil.copy(a, b)
    named = "NVTX_EVENTS LEFT JOIN StringIds ON textId = id WHERE coalesce(text, value) = 'decode'"
    ((begin,),) = query(a, f"SELECT min(start) FROM {named}")
    columns = (
        "sqlite_master AS t JOIN pragma_table_info(t.name) AS c WHERE t.type = 'table' AND c.name IN ('start', 'end')"
    )
    moments = query(a, f"SELECT t.name, c.name FROM {columns}")
    longer, renamed = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm90_tst_8x64_64x16_2x1_v_bz_TNN"
    executed(
        b,
        *(f'UPDATE {name} SET "{at}" = "{at}" + 2000000000 WHERE "{at}" >= {begin}' for name, at in moments),
        f'UPDATE {KERNEL} SET "end" = "end" + 3000 WHERE shortName = (SELECT id FROM StringIds WHERE value = {longer!r})',
        f"UPDATE StringIds SET value = 'another_product' WHERE value = {renamed!r}",
    )
    rows = answered(a, b)
    steps, window = next(about(rows, "work", item="steps")), next(about(rows, "window"))
    assert (steps["a"], steps["b"]) == (24.0, 24.0)
    assert window["accounts_us"] == pytest.approx(0.0, abs=1.0) and window["a"] == pytest.approx(4120, rel=0.05)
    assert next(about(rows, "outside"))["change"] == pytest.approx(2e6, abs=1.0)
    kernels = {row["kernel"]: row for row in about(rows, "kernel", item="total_us")}
    assert kernels[longer]["accounts_us"] == pytest.approx(16 * 3.0) and kernels[longer]["match"] == "same"
    assert kernels["another_product"]["match"] == "replaced"
    assert kernels["another_product"]["accounts_us"] == pytest.approx(0.0, abs=1e-9)
    whole = next(about(answered(a, b, "--whole"), "window"))
    assert whole["accounts_us"] == pytest.approx(2e6, abs=1.0)


@settings(max_examples=30)
@given(st.data())
def test_the_parts_of_a_difference_sum_to_it(data: st.DataObject) -> None:
    runs = [parsed(data.draw(st.sampled_from(("all", "decode")))) for _ in range(2)]
    a, b = ((run, data.draw(st.sampled_from(run.launches))) for run in runs)
    if found := factors(a, b):
        longer = (b[1].duration_us or 0) - (a[1].duration_us or 0)
        assert sum(each.us for each in found) == pytest.approx(longer, abs=1e-6)
        back = {each.item: each.us for each in factors(b, a)}
        assert back == pytest.approx({each.item: -each.us for each in found}, abs=1e-6)


@pytest.mark.fault("two profiles of ncu without a trace are compared", "the change comes first, then what is not known")
def test_files_are_compared_as_they_are(tmp_path: Path) -> None:
    half = "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE start > (SELECT avg(start) FROM CUPTI_ACTIVITY_KIND_KERNEL)"
    other = altered(tmp_path, half, source=CUDA_GRAPHS)
    assert answered(CUDA_GRAPHS, other)[0]["b"].endswith("-trace")
    assert invoke("compare", str(CUDA_GRAPHS), str(tmp_path / "none.sqlite"))[0] == 2
    # A trace and a profile have no time in common; two profiles have that of their launches.
    counted = str(RAW)
    assert invoke("compare", counted, str(CUDA_GRAPHS))[0] == 1
    status, printed = invoke("compare", counted, counted, "--out", str(tmp_path / "page.html"))
    assert (status, "PrefillWithKVCacheKernel           312.83  312.83   +0.00" in printed) == (0, True)
    first = printed.splitlines()[0]
    assert first.startswith("6 kernels under ncu: B took ") and "(+0.00 µs, +0.0%)" in first


def test_cases_are_paired_by_their_parameters() -> None:
    a = [*map(case, ("p[batch=1,backend=fa2]", "p[batch=2,backend=fa2]", "n[rows=1]", "n[rows=2]"))]
    # Another backend throughout, a newer option, and nothing like n[rows=2].
    b = [*map(case, ("p[batch=2,backend=fa3,fast=0]", "p[batch=1,backend=fa3,fast=0]", "n[rows=1]"))]
    pairs, only_a, only_b = pair_cases(a, b)
    assert pairs == [(a[0], b[1]), (a[1], b[0]), (a[2], b[2])] and (only_a, only_b) == (a[3:], [])
    # Two of a side that agree in the rest are no pair of either.
    assert pair_cases([case("p[x=1,y=1]"), case("p[x=1,y=2]")], [case("p[x=2]")])[0] == []


def changed(name: str, into: Path, **settings: Any) -> Path:
    folder = copied(name, into)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["environment"]["gpu"]["name"] = settings.pop("gpu", manifest["environment"]["gpu"]["name"])
    manifest["settings"] |= settings
    (folder / "run.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.fault("two runs of different GPUs are compared", "refused with one line, but for `--anyway`")
def test_another_gpu_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    both = str(parsed("all").path), str(changed("all", tmp_path, gpu="NVIDIA H100"))
    assert invoke("compare", *both) == (1, "")
    status, printed = invoke("compare", *both, "--anyway")
    assert (status, printed.startswith("! GPU differs (NVIDIA H200 · NVIDIA H100)")) == (0, True)


@pytest.mark.fault("ncu's clock or cache control differs between two runs", "its numbers are left out, and it is said")
def test_counters_under_other_conditions_are_not_compared(tmp_path: Path) -> None:
    both = parsed("all").path, changed("all", tmp_path, cache_control="none")
    assert not list(about(answered(*both), "factor"))
    assert list(about(answered(*both, "--anyway"), "factor"))


def test_a_comment_folds_what_explains_and_a_page_draws_it(tmp_path: Path) -> None:
    run, out = parsed("prefill-decode-rope").path, tmp_path / "page.html"
    status, comment = invoke("compare", f"{run}:backend=fa2", f"{run}:backend=fa3", "--format", "md", "--out", str(out))
    explained = comment.partition("<details>")[2]
    assert (status, comment.count("<details>"), comment.count("</details>")) == (0, 1, 1)
    assert comment.startswith("prefill: B took 303.73 µs instead of 465.02 µs without a profiler (-161.30 µs, -34.7%).")
    known, command = comment.split("\n\n")[2:4]
    assert known.endswith("noise is not known; processes of the same code have differed by up to 1.4%.")
    assert command.startswith("To be sure: fiprof compare --measure params:backend=fa2 params:backend=fa3 ")
    assert re.search(r"\| warps in flight a scheduler +\| +1.95 \| +3 \| +-162.31 \|", explained)
    page = out.read_text()
    titles = ("prefill: where the change is", "what its time is made of", "warp stalls of both sides")
    assert [re.search(f'data-title="[^"]*{title}"', page) is not None for title in titles] == [True] * 3
    assert page.endswith("</html>")


# Comparisons measured on an H200, decided anew: how often they are wrong, and what they find. docs/compare.md has these.
Comparisons = dict[str, list[tuple[ComparedCase, ...]]]
SLOWER, FASTER, SAME = Outcome.SLOWER, Outcome.FASTER, Outcome.SAME


@pytest.fixture(scope="module")
def comparisons() -> Comparisons:
    """self, slow or the variant's name -> the comparisons of that."""
    found = defaultdict(list)
    for line in (RECORDED / "comparisons/h200.jsonl").read_text().splitlines():
        record: dict[str, Any] = json.loads(line)
        names = [(case["a"], case["b"]) for case in record["cases"]]
        a, b = ([*zip(*(case[side] for case in record["cases"]), strict=True)] for side in ("a_us", "b_us"))
        name = record["comparison"].split()[0]
        found[name if name in ("self", "slow") else record["comparison"]].append(compared(names, a, b))
    return found


def test_the_same_thing_twice_is_never_called_different(comparisons: Comparisons) -> None:
    found = [case.difference for each in comparisons["self"] for case in each]
    outcomes = Counter(each.outcome for each in found)
    # RMSNorm, 24 µs: five processes a side leave more than 2 % open in four of thirty.
    assert (outcomes, any(each.spread_grew for each in found)) == ({SAME: 86, Outcome.CANNOT_TELL: 4}, False)


def test_a_kernel_slowed_by_a_known_part_is_found(comparisons: Comparisons) -> None:
    """By the kernel's time in µs and the part in percent, which is the mean of all its comparisons."""
    found: dict[str, list[ComparedCase]] = defaultdict(list)
    for each in comparisons["slow"]:
        for one in each:
            found[one.b].append(one)
    rates = {}
    for cases in found.values():
        a_us, b_us = (geometric_mean(us for case in cases for us in getattr(case, f"{side}_us")) for side in "ab")
        slower = sum(case.difference.outcome is SLOWER for case in cases)
        rates[round(a_us), round(100 * (b_us / a_us - 1), 1)] = (slower, len(cases))
    assert rates == {
        # The loop's remainder: more than the 1, 2, 5 and 20 % that were meant.
        (9, 2.9): (5, 5), (9, 5.3): (5, 5), (9, 8.8): (5, 5), (9, 12.0): (5, 5),
        (43, 1.0): (2, 10), (43, 1.8): (10, 10), (43, 4.5): (10, 10), (43, 17.6): (10, 10),
        (174, 1.0): (9, 10), (174, 2.0): (10, 10), (174, 4.9): (10, 10), (174, 19.5): (10, 10),
        (850, 1.0): (10, 10), (850, 2.1): (10, 10), (850, 5.0): (10, 10), (850, 19.9): (10, 10),
    }  # fmt: skip


def test_variants(comparisons: Comparisons) -> None:
    variants = {name: each[0] for name, each in comparisons.items() if name not in ("self", "slow")}
    found = {
        name: [(case.difference.outcome, round(case.difference.difference_pct, 1)) for case in cases]
        for name, cases in variants.items()
    }
    assert found == {
        "decode cores": [(FASTER, -4.0), (FASTER, -23.3), (FASTER, -22.4)],
        "prefill fa2 fa3": [(FASTER, -17.5), (FASTER, -33.6)],
        "page size": [(SLOWER, 1.4), (SAME, 0.1), (SLOWER, 2.5), (SAME, 0.5)],
        "page size again": [(SLOWER, 1.6), (SAME, 0.5), (SLOWER, 2.0), (SAME, 0.5)],
        "commits": [(SLOWER, 11.0), (SLOWER, 13.1), (SLOWER, 14.9)],
        "a commit and its tree": [(SAME, 0.1)],
        "programs": [(FASTER, -37.1)],
    }


FEW = ("--processes", "5", "--order-seed", "7", "--quiet")
CASES = ("--kernel", "decode,rmsnorm", *FEW)
PROCESSES = ["B1", "A1", "A2", "B2", "B3", "B4", "A3", "B5", "A4", "A5"]
ORDERS = [
    "A3 B1 B3 B2 A4 B4 B5 A2 A1 A5", "B1 A3 B4 B5 A2 B2 A4 B3 A5 A1", "B3 B4 A4 B2 A5 B5 B1 A2 A3 A1",
    "B3 A1 B2 A3 B5 B4 A4 B1 A5 A2",
]  # fmt: skip


def measured(done: Completed, folder: Path) -> tuple[Manifest, MeasuredComparison]:
    """What a command left in the archive below a folder."""
    assert done.returncode == 0, done.stderr
    (run,) = folder.glob("artifacts/[!.]*")
    assert not [path for path in folder.rglob(".*") if path.name.startswith((".fiprof", ".partial"))]
    return read_manifest(run), read_comparison(run)


def rows(done: Completed) -> list[list[object]]:
    assert done.returncode == 0, done.stderr
    return [[row["outcome"], round(row["difference_pct"])] for row in json.loads(done.stdout)["rows"]]


def test_two_sides(faked: Fiprof, fakes: Env, tmp_path: Path) -> None:
    side, expected = f"python:{fakes['FIPROF_PYTHON']},env:FAKE_SLOWER=0.95", ["faster", -5]
    done = faked("compare", "--measure", "here", side, *CASES, "--format", "json")
    assert rows(done) == [expected] * 2
    manifest, found = measured(done, tmp_path)
    assert (manifest.kind, manifest.status) == ("comparison", "complete")
    assert found.schedule == "".join(name[0] for name in PROCESSES)
    assert (manifest.settings["a"], manifest.settings["b"]) == ("here", side)
    made = {action.step: [file.path for file in action.files] for action in manifest.actions}
    assert made == {name: [f"measurements/{name}.jsonl"] for name in PROCESSES}
    assert rows(faked("compare", "latest", "--format", "json")) == [expected] * 2
    assert faked("verify").returncode == faked("publish", "site").returncode == 0
    assert f"<h1>here against {side}</h1>" in (tmp_path / f"site/runs/{manifest.name}.html").read_text()


def test_processes_measure_in_turn_each_round_in_another_order(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    """By the times at which they wrote: the one round that lacked the clock in B2 is repeated in all."""
    env = {**fakes, "FAKE_SLOW_CLOCK": "B2 1"}
    done = fiprof("compare", "--measure", "here", "here", *CASES, "--rounds", "3", env=env)
    _, found = measured(done, tmp_path)
    assert (found.repeated_rounds, [case.slow_clock_rounds for case in found.cases]) == (1, [0, 0])
    turns = []
    for path in tmp_path.glob("artifacts/*/measurements/*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        turns += [(each["at"], each["round"], path.stem) for each in records if each["kind"] == "round"]
    order = list(dict.fromkeys((number, name) for _, number, name in sorted(turns)))
    assert [" ".join(name for number, name in order if number == each) for each in range(4)] == ORDERS


def test_an_order_is_drawn_and_kept() -> None:
    """Every one of the 252 is as likely; the one that run.json names comes again."""
    side, words = parse_side("program:true"), ("compare", "--measure", "program:true", "program:true", "--dry-run")
    orders = Counter(CompareRequest(5, order_seed=each, a=side, b=side, pairs=()).schedule for each in range(10_000))
    assert len(orders) == 252 and max(orders.values()) < 80 and {each.count("A") for each in orders} == {5}
    drawn = {invoke(*words, "--order-seed", seed)[1] for seed in "123123"}
    assert len(drawn) == 3


def test_a_clock_that_never_comes_back_is_said(faked: Fiprof, tmp_path: Path) -> None:
    """In the terminal and on the page, which draws the intervals."""
    words = ("--kernel", "decode", "--rounds", "2", *FEW, "--out", "page.html")
    done = faked("compare", "--measure", "here", "here", *words, FAKE_SLOW_CLOCK="B2 all")
    page = (tmp_path / "page.html").read_text()
    assert (done.returncode, "did not help" in done.stdout, "did not help" in page) == (0, True, True)
    assert page.count('class="plot"') == 1


def test_launches_that_take_the_host_longer_are_a_finding(faked: Fiprof) -> None:
    """Where they take longer than the GPU, whose time does not tell it: the recorded decode takes 92 µs, RMSNorm 24."""
    for host_us, expected in ((15, []), (50, ["rmsnorm"]), (900, ["decode", "rmsnorm"])):
        other = f"env:FAKE_HOST_US={host_us},env:FAKE_MEMORY=110000000"
        done = faked("compare", "--measure", "here", other, *CASES, "--format", "json")
        assert rows(done) == [["same", 0]] * 2
        found = [each for each in json.loads(done.stdout)["warnings"] if each["id"] == "launching_grew"]
        assert sorted(each["case"].split()[0] for each in found) == expected, done.stdout
    assert [row["b_host_us"] / row["a_host_us"] for row in json.loads(done.stdout)["rows"]] == pytest.approx(
        [180] * 2, rel=0.02
    )
    shown = " ".join(faked("compare", "latest").stdout.split())
    assert "launching takes longer. The host takes 9" in shown
    assert shown.count("its device memory grew. It takes 110.0 MB on B and 100.0 on A (+10.0%)") == 2


def test_what_runs_need_more_of_beside_the_time_is_told(tmp_path: Path) -> None:
    run = copied("decode", tmp_path)
    lines = (run / "baseline.jsonl").read_text()
    (run / "baseline.jsonl").write_text(re.sub(r'"peak_memory_bytes": (\d+)', r'"peak_memory_bytes": 1\1', lines))
    shown = " ".join(invoke("compare", str(parsed("decode").path), str(run))[1].split())
    assert re.search(
        r"it takes [\d,.]+ MB of device memory instead of [\d,.]+ \(\+\d+.\d%\); more in 7 other cases", shown
    )


@pytest.mark.fault("a case fails on one side of a measured comparison", "named and left out; the others are measured")
def test_a_case_that_one_side_cannot_run(faked: Fiprof, tmp_path: Path) -> None:
    done = faked("compare", "--measure", "here", "env:FAKE_FAILS=decode", *CASES, "--format", "json")
    assert rows(done) == [["same", 0]]
    (warning,) = json.loads(done.stdout)["warnings"]
    assert (warning["id"], warning["side"], warning["reason"]) == ("failed", "B", "does not fit in the GPU's memory")
    manifest, found = measured(done, tmp_path)
    assert [(each.side, each.b.partition("[")[0]) for each in found.failed] == [("b", "decode")]
    assert (manifest.status, len(manifest.warnings)) == ("complete", 1)


@pytest.mark.fault("the sides of a comparison run on different GPUs", "refused with one line")
@pytest.mark.fault("their GPU has another clock on one side", "refused with one line")
@pytest.mark.fault("a process of a comparison dies", "all end; the run says so")
@pytest.mark.parametrize(
    ("side", "reason"),
    [
        ("env:FAKE_UUID=GPU-2", "have different gpu: GPU-2, GPU-1"),
        ("env:FAKE_MHZ=1700", "have different clocks: 1700 MHz, 1980 MHz"),
        ("env:FAKE_DIES=decode", "process B"),
        ("python:/nowhere/python", "/nowhere/python was not found"),
    ],
)
def test_what_ends_a_comparison(side: str, reason: str, faked: Fiprof, tmp_path: Path) -> None:
    done = faked("compare", "--measure", "here", side, "--kernel", "decode", *FEW, status=1)
    assert (reason in done.stderr, "Traceback" in done.stderr) == (True, False)
    (run,) = tmp_path.glob("artifacts/[!.]*")
    assert (read_manifest(run).status, (run / "result.json").exists()) == ("failed", False)


def test_programs_are_timed_as_a_whole_and_in_their_ranges(fiprof: Fiprof, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import fiprof, sys, time\nfor _ in range(3):\n    with fiprof.range('work'):\n        time.sleep(float(sys.argv[1]))\n"
    )
    sides = [f"program:{sys.executable} {program} {seconds}" for seconds in (0.01, 0.02)]
    words = ("--measure", *sides, "--processes", "5", "--quiet")
    done = fiprof("compare", *words, env={"CUDA_VISIBLE_DEVICES": f"GPU-{tmp_path}"})
    manifest, found = measured(done, tmp_path)
    steps = [action.step for action in manifest.actions]
    assert (steps[:2], "".join(step[0] for step in steps[2:])) == (["A0", "B0"], found.schedule)
    assert isinstance(manifest.settings["order_seed"], int)
    work = next(case for case in found.cases if case.a == "work")
    assert {case.a for case in found.cases} == {"work", "wall"}
    assert (min(work.a_us) >= 10_000, min(work.b_us) >= 20_000, found.kept_warm) == (True, True, False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose workload takes twice the time since its last commit, and has changes."""
    top = tmp_path / "checkout"
    (top / "bench").mkdir(parents=True)
    workload = Path(__file__).parent / "programs/known.py"
    git(top, "init", "-q")
    for number in range(2):
        (top / "bench/known.py").write_text(f"{workload.read_text()}\n# {number}\n")
        git(top, "add", "-A")
        git(top, "commit", "-qm", str(number))
    (top / "bench/known.py").write_text(f"{workload.read_text()}\n# changed\n")
    return top


def test_a_commit_is_measured_from_its_files(checkout: Path, faked: Fiprof, tmp_path: Path) -> None:
    """The workload's file and what is imported are those of the commit; the checkout stays as it is."""
    words = ("--workload", f"{checkout}/bench/known.py:known", "--turns", "100", *FEW)
    done = faked("compare", "--measure", f"git:HEAD~1:{checkout}/bench", "here", *words)
    manifest, found = measured(done, tmp_path)
    argv = {action.step: action.argv for action in manifest.actions}
    case, other = (argv[name][argv[name].index("--case") + 1] for name in ("A1", "B1"))
    assert "/A/bench/known.py:known[turns=100" in case
    assert not Path(case.partition(":known")[0]).exists()
    assert os.path.abspath(tmp_path / other).startswith(f"{checkout}/bench/known.py:known[turns=100")
    path = next(action.env["PYTHONPATH"] for action in manifest.actions if action.step == "A1")
    assert path.partition(":")[0].endswith("/A/bench")
    assert (found.a.commit, found.b.commit) == (git(checkout, "rev-parse", "HEAD~1"), None)
    assert (checkout / "bench/known.py").read_text().endswith("# changed\n")


@pytest.mark.fault("a commit whose files git sends through smudge and process filters", "none of them runs")
@pytest.mark.fault("a commit with absolute links, or with links that lead outside it", "the links are as in a checkout")
@pytest.mark.fault("GIT_DIR and others set, as git does for a hook", "the checkout is that around the folder")
@pytest.mark.parametrize("plant", ["smudge", "process", "x=y.smudge", "link", "hook"])
def test_a_commit_is_written_as_it_is(plant: str, checkout: Path, tmp_path: Path, monkeypatch: Any) -> None:
    evil, ran = tmp_path / "evil", tmp_path / "ran"
    evil.write_text(f"#!/bin/sh\necho ran >> {ran}\ncat\n")
    evil.chmod(0o755)
    (checkout / "absolute").symlink_to(tmp_path)
    (checkout / "outside").symlink_to("../../..")
    (checkout / ".gitattributes").write_text("*.py filter=a\n*.txt filter=x=y\n")
    (checkout / "a.txt").write_text("a")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "x")
    if plant not in ("link", "hook"):
        name, _, kind = f"a.{plant}".rpartition(".")
        git(checkout, "config", f"filter.{name.removeprefix('a.')}.{kind}", str(evil))
        git(checkout, "config", "filter.a.required", "true")
        subprocess.run(["git", "-C", str(checkout), "archive", "HEAD"], capture_output=True, check=False)
        assert ran.exists(), "git itself runs it"
        ran.unlink()
    if plant == "hook":
        monkeypatch.setenv("GIT_DIR", str(tmp_path / "nothing"))
        monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    found = check_out(parse_side(f"git:HEAD:{checkout}/bench"), tmp_path / "A")
    assert found is not None and found.folder == tmp_path / "A/bench"
    assert (found.folder / "known.py").read_bytes() == (checkout / "bench/known.py").read_bytes()
    assert [os.readlink(tmp_path / "A" / name) for name in ("absolute", "outside")] == [str(tmp_path), "../../.."]
    assert not ran.exists()


@pytest.mark.fault("a checkout whose files lie elsewhere, by its configuration", "one line")
def test_a_checkout_elsewhere(checkout: Path, fiprof: Fiprof, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    git(checkout, "config", "core.worktree", str(tmp_path / "elsewhere"))
    done = fiprof("compare", "--measure", f"git:HEAD:{checkout}", "here", "--kernel", "decode")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 2)
    assert f"the files of its checkout lie elsewhere, in {tmp_path}/elsewhere" in done.stderr


def test_a_commit_that_is_not_there(fiprof: Fiprof, checkout: Path, tmp_path: Path) -> None:
    sides = {f"git:nosuch:{checkout}": "Needed a single revision", "git:HEAD:/": "not a git repository"}
    for side, reason in sides.items():
        done = fiprof("compare", "--measure", side, "here", "--kernel", "decode")
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 2)
        assert reason in done.stderr
    assert not list(tmp_path.glob("artifacts/*"))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("here", "params:page_size=1,batch=8", {"page_size": (16, 1), "batch": (32, 8)}),
        ("params:tensor-cores=false", "env:A=1,2,params:tensor-cores=true", {"tensor_cores": (False, True)}),
        ("case:decode[batch=1]", "python:p,case:decode[batch=2,page_size=4]", {"batch": (1, 2), "page_size": (16, 4)}),
    ],
)
def test_sides_change_parameters(a: str, b: str, expected: dict[str, object]) -> None:
    ((one, other),) = pairs_of(parse_side(a), parse_side(b), make_cases("decode", {}))
    values = {name: (value, dict(other.params)[name]) for name, value in one.params}
    assert {name: (x, y) for name, (x, y) in values.items() if x != y} == expected


def test_items_of_a_side() -> None:
    side = parse_side("git:main~1:src,env:A=1,2,env:B=,python:/p,program:run --x 'a b',env:C=1")
    assert (side.ref, str(side.folder), side.python) == ("main~1", "src", "/p")
    assert (side.env, side.program) == ((("A", "1,2"), ("B", "")), ("run", "--x", "a b,env:C=1"))


def test_wrong_sides() -> None:
    no_sides = ("", "nonsense", "git:", "env:A", "env:1A=2", "params:x", "git:a,git:b", "program:")
    for side in (*no_sides, "case:decode,params:batch=1", "program:true", "case:decode", "params:nosuch=1"):
        assert invoke("compare", "--measure", "here", side, "--kernel", "decode", "--dry-run")[0] == 2, side
    for ref, status in ("git:no-such-commit", 1), ("git:HEAD", 0):
        assert invoke("compare", "--measure", "here", ref, "--kernel", "decode", "--dry-run")[0] == status, ref


def test_each_side_is_profiled_to_explain_the_difference(faked: Fiprof, tmp_path: Path) -> None:
    """In its own environment, into runs of their own; the comparison's page shows both."""
    side = "env:FAKE_SLOWER=1.1"
    words = ("--kernel", "decode", *FEW, "--explain", "--out", "page.html")
    done = faked("compare", "--measure", "here", side, *words, status=0)
    (folder,) = tmp_path.glob("artifacts/*compare*")
    found = read_comparison(folder)
    assert found.explained
    environments = []
    for name in found.explained:
        manifest = read_manifest(tmp_path / "artifacts" / name)
        assert (manifest.status, manifest.settings["check"]) == ("complete", False)
        environments.append([action.env.get("FAKE_SLOWER") for action in manifest.actions if action.step == "plain"])
    assert environments == [[None], ["1.1"]]
    assert "What accounts for it" in done.stdout
    assert "What accounts for it" in (tmp_path / "page.html").read_text()
    shutil.rmtree(tmp_path / "artifacts" / found.explained[1])
    without = faked("compare", folder.name)
    assert (without.returncode, "What accounts for it" in without.stdout) == (0, False)
    assert f"has no run {found.explained[1]}" in without.stderr


def test_programs_are_profiled_to_explain_them(faked: Fiprof, tmp_path: Path) -> None:
    """In its side's environment; below the verdicts stands where the GPU's time changed."""
    sides = [f"env:SIDE={side},program:sleep {seconds}" for side, seconds in (("A", 0.01), ("B", 0.05))]
    done = faked("compare", "--measure", *sides, *FEW, "--explain", status=0)
    (folder,) = tmp_path.glob("artifacts/*compare*")
    runs = [read_manifest(tmp_path / "artifacts" / name) for name in read_comparison(folder).explained or ()]
    steps = [[action.env.get("SIDE") for action in run.actions if action.step in ("nsys", "ncu")] for run in runs]
    assert steps == [["A", "A"], ["B", "B"]]
    assert "Where the GPUs' time went" in done.stdout


def test_what_cannot_be_explained_is_not_measured(fiprof: Fiprof, fakes: Env, tmp_path: Path) -> None:
    words = ("compare", "--measure", "program:true", "program:true", "--explain")
    done = fiprof(*words, env={**fakes, "FIPROF_NCU": "/no/such/ncu"})
    assert (done.returncode, list(tmp_path.glob("artifacts/2*"))) == (1, [])
