"""``fiprof compare --measure``, end to end with a stand-in for the GPU's interpreter."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fiprof.analysis.comparison.measured_result import MeasuredComparison, read_comparison
from fiprof.model.manifest import Manifest, read_manifest
from fiprof.orchestrator.compare import CompareRequest, check_out, pairs_of, parse_side
from fiprof.workloads.case import make_cases
from tests.conftest import Completed, Env, Fiprof
from tests.recorded_runs import invoke
from tests.test_strangers import git

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
        done = faked("compare", "--measure", "here", f"env:FAKE_HOST_US={host_us}", *CASES, "--format", "json")
        assert rows(done) == [["same", 0]] * 2
        found = [each for each in json.loads(done.stdout)["warnings"] if each["id"] == "launching_grew"]
        assert sorted(each["case"].split()[0] for each in found) == expected, done.stdout
    assert [row["b_host_us"] / row["a_host_us"] for row in json.loads(done.stdout)["rows"]] == pytest.approx(
        [180] * 2, rel=0.02
    )
    shown = faked("compare", "latest").stdout
    assert "launching takes longer. The host takes 9" in " ".join(shown.split())


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
