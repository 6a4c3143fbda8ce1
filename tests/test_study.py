"""A study's definition and plan, and the command around them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from fiprof.cli.progress import TerminalProgress
from fiprof.errors import FiprofError
from fiprof.flashinfer.jit import measure as jit
from fiprof.flashinfer.jit.measure import JitRequest
from fiprof.flashinfer.results import JitResults
from fiprof.model.results import read
from fiprof.model.settings import Settings, StudySettings, settings_of
from fiprof.orchestrator import study as orchestrator
from fiprof.orchestrator.process import Supervisor
from fiprof.orchestrator.study import Where, entries, label, load, make_plan, mixed, read_study, run_study
from fiprof.workloads.case import short_name
from tests.conftest import REPOSITORY, Fiprof

GIB = 2**30


def counts(cases) -> dict[str, int]:  # type: ignore[no-untyped-def]
    names = [short_name(case.workload) for case in cases]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def test_the_packaged_matrix() -> None:
    study = load("flashinfer")
    assert counts(study.cases) == {
        "prefill": 64,
        "decode": 108,
        "rmsnorm": 10,
        "fused_add_rmsnorm": 10,
        "add_then_rmsnorm": 10,
        "rope": 12,
    }
    assert len({case.id for case in study.cases}) == 214
    modes = [(p["tensor_cores"], p["cuda_graph"]) for case in study.cases[64:172] for p in (dict(case.params),)]
    assert (modes.count((False, False)), modes.count((True, False)), modes.count((False, True))) == (36, 36, 36)
    assert study.cases[0].id == (
        "prefill[batch=1,seq_len=512,q_heads=32,kv_heads=8,head_dim=128,page_size=16,causal=true,backend=fa2,dtype=fp16]"
    )


def test_what_does_not_fit_is_skipped_and_said() -> None:
    study = load("flashinfer")
    costs = entries(study)
    plan = make_plan(study.cases, costs, done={}, free_bytes=16 * GIB, batch_cases=120)
    # 2 x 256 x 8192 tokens x 32 heads x 128 elements x 2 bytes of keys and values are 32 GiB.
    largest = (
        "decode[batch=256,kv_len=8192,q_heads=32,kv_heads=32,head_dim=128,page_size=16,"
        "tensor_cores=false,cuda_graph=false,dtype=fp16]"
    )
    assert plan.skipped[largest] == "does not fit: it needs some 34.0 GiB of device memory, 16.0 GiB are free"
    assert {dict(case.params)["batch"] for case in study.cases if case.id in plan.skipped} == {128, 256}
    assert plan.cases + len(plan.skipped) == 214
    assert not make_plan(study.cases, costs, done={}, free_bytes=139 * GIB, batch_cases=120).skipped
    assert not make_plan(study.cases, costs, done={}, free_bytes=None, batch_cases=120).skipped


def test_what_is_done_is_not_planned_again() -> None:
    study = load("flashinfer")
    done = {case.id: "20261121-120000-decode" for case in study.cases[64:172]}
    plan = make_plan(study.cases, entries(study), done=done, free_bytes=None, batch_cases=120)
    assert label(plan.batches[0]) == "prefill (64)"
    assert (plan.cases, len(plan.done)) == (106, 108)


CASES = '[[cases]]\nworkload = "rope"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is not TOML: Invalid value (at "),
        (CASES, "Object missing required field name"),
        ('name = "../x"\n' + CASES, "name: expected str matching regex '^[a-z0-9][a-z0-9_-]*$'"),
        ('name = "x"', "Object missing required field cases"),
        (
            'name = "x"\ncolour = 1\n' + CASES,
            "Object contains unknown field colour",
        ),
        ('name = "x"\n[[cases]]\nbatch = 1', "[[cases]] 1: it has no workload"),
        ('name = "x"\n' + CASES + "batch = 1", "[[cases]] 1: rope has no parameter batch"),
        ('name = "x"\n' + CASES + "tokens = [1, 0]", "[[cases]] 1: --tokens: '0' is not valid (at least 1)"),
        ('name = "x"\n' + CASES + "tokens = []", "[[cases]] 1: tokens is neither a value nor a list of values"),
        ('name = "x"\n' + CASES + "tokens = {a = 1}", "[[cases]] 1: tokens is neither a value nor a list of values"),
        ('name = "x"\n[[cases]]\nworkload = "sort"', "[[cases]] 1: there is no workload 'sort'"),
        ('name = "x"\n[settings]\nrounds = "6"\n' + CASES, "[settings].rounds: expected int, got str"),
        ('name = "x"\n[settings]\nrounds = 0\n' + CASES, "[settings]: rounds is below 1"),
        ('name = "x"\n[quick]\nround = 1\n' + CASES, "quick has no round; it has ncu_set, iterations"),
        ('name = "x"\n[quick]\ncache_control = "warm"\n' + CASES, "[quick]: cache_control is none of all, none"),
        ('name = "x"\n[extras]\ngit = []\n' + CASES, "extras has no git; it has jit"),
        ('name = "x"\nextras.jit = ["prefill[backend=fa9]"]\n' + CASES, "--backend: 'fa9' is not valid (auto|fa2|fa3)"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(FiprofError) as raised:
        load(str(file))
    assert raised.value.message.startswith(f"{file}") and message in raised.value.message
    assert raised.value.exit_code == 2


def test_no_such_study() -> None:
    with pytest.raises(FiprofError, match="there is no study flashinfr") as raised:
        load("flashinfr")
    assert "the installed packs bring flashinfer" in raised.value.remedy


def test_a_dry_run_lists_everything_and_makes_nothing(fiprof: Fiprof, tmp_path: Path) -> None:
    done = fiprof("study", "flashinfer", "--quick", "--only", "rope,rmsnorm", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "FlashInfer's kernels over their range: 22 cases to measure, 0 done, 0 do not fit; 1 batches, "
        "3 processes on the GPU, into artifacts/study-flashinfer-quick"
    )
    assert lines[2] == "batch 1: rmsnorm (10), rope (12): one plain, one nsys, one ncu process"
    assert lines[3] == "  rmsnorm[rows=1,hidden=4096,dtype=fp16]"
    assert len(lines) == 3 + 22
    assert list(tmp_path.iterdir()) == []


def test_only_names_what_there_is(fiprof: Fiprof) -> None:
    done = fiprof("study", "flashinfer", "--only", "sort", "--dry-run")
    assert done.returncode == 2
    assert "the study flashinfer has no sort" in done.stderr
    assert "--only takes of prefill, decode, rmsnorm, fused_add_rmsnorm, add_then_rmsnorm, rope, jit" in done.stderr


def test_a_folder_of_something_else_is_refused(faked: Fiprof, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").touch()
    done = faked("study", "flashinfer", "--out", "mine")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "fiprof: mine holds something else: it has no study.json",
    )
    assert json.dumps(sorted(path.name for path in (tmp_path / "mine").iterdir())) == '[".lock", "thesis.tex"]'


def test_compilation_is_studied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    clock = [0.0]

    def measure(request: JitRequest, *_: object, study: str, **__: object) -> JitResults:
        asked.append([case.id for case in request.cases])
        clock.append(clock[-1] + 231.0)
        return JitResults(study, [], [], [], 5, [], {})

    monkeypatch.setattr(jit, "measure", measure)
    monkeypatch.setattr(orchestrator, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    study = load("flashinfer", quick=True)
    for _ in range(2):
        info = run_study(
            study, tmp_path, Where("python", None, wait=True), TerminalProgress(quiet=True), Supervisor(), only=["jit"]
        )
    assert len(asked) == 1 and asked[0][0].startswith("prefill[") and len(asked[0]) == 5
    assert read(tmp_path / "results/jit_analysis.json", JitResults).cache_bytes == 5
    assert (info.status, info.missing["prefill"], info.missing["decode"]) == ("incomplete", 64, 108)
    # Measured in the first session, known in the second; no part of the cases' time.
    sessions = read_study(tmp_path).sessions
    assert [(session.duration_s, session.extras_s) for session in sessions] == [(231.0, 231.0), (0.0, 0.0)]
    assert info.duration_s == 0.0


def test_runs_that_differ_in_what_matters_are_named() -> None:
    one = {
        "gpu": {"uuid": "A"},
        "packages": {"torch": "2.11", "flashinfer-python": "0.6.13"},
        "tools": {"ncu": "2025.3.1"},
    }
    other = {**one, "packages": {"torch": "2.11", "flashinfer-python": "0.7.0"}}
    assert mixed([one, one]) == {}
    assert mixed([one, other, {}]) == {"flashinfer-python": ["0.6.13", "0.7.0"]}


def test_the_documentation(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/study.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE))
    common = {each.name: each.default for each in settings_of(Settings)}
    own = {each.name: each.default for each in settings_of(StudySettings) if common.get(each.name, "") != each.default}
    assert rows == {name: str(default).lower() for name, default in own.items()}
    (tmp_path / "norms.toml").write_text(text.partition("```toml\n")[2].partition("```")[0])
    study = load(str(tmp_path / "norms.toml"))
    assert (len(study.cases), study.settings.ncu_set, [case.workload for case in study.extras["jit"]]) == (
        7,
        "quick",
        ["rmsnorm"],
    )
