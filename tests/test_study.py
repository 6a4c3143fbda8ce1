"""A study's definition and plan, its documents, and the recorded study computed again from its JSON; and a pack of somebody
else's, installed beside fiprof: the one that docs/packs.md shows."""

import ast
import dataclasses
import json
import os
import random
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import unescape
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import lsq_linear

from fiprof.analysis import claims
from fiprof.analysis.expected import read_expectations
from fiprof.analysis.study import Study, load
from fiprof.cli.progress import TerminalProgress
from fiprof.errors import FiprofError
from fiprof.flashinfer import pack
from fiprof.flashinfer.data import JitResults, SourceResults, guide_pages
from fiprof.flashinfer.jit import measure as jit
from fiprof.flashinfer.jit.measure import JitRequest
from fiprof.flashinfer.study import claims as declared_claims
from fiprof.model import json_file, packs
from fiprof.model.results import CaseResult, CaseTimes, KernelResults, read
from fiprof.model.settings import Settings, StudySettings, settings_of
from fiprof.orchestrator.batches import too_large
from fiprof.orchestrator.process import Supervisor
from fiprof.orchestrator.run_folder import Archive
from fiprof.orchestrator.run_session import Bench
from fiprof.orchestrator.study import entries, run_study
from fiprof.orchestrator.study import load as load_definition
from fiprof.reports.markdown_html import Markdown, document_html, escape_markdown, grid, plain_markdown, slug
from fiprof.reports.study import DOCUMENTS, cases_csv, documents, pages
from tests.conftest import REPOSITORY, Env, Fiprof, python_path, ran
from tests.recorded_runs import STUDY, a_study, invoke, refusal
from tests.test_workloads import INSTALLED


def test_what_does_not_fit_is_skipped_and_said() -> None:
    study = load_definition("flashinfer")
    costs = entries(study).values()
    skipped = too_large(costs, {"memory_total_bytes": 20 << 30, "memory_used_bytes": 4 << 30})
    # 2 x 256 x 8192 tokens x 32 heads x 128 elements x 2 bytes of keys and values are 32 GiB.
    assert max(skipped.values()) == "does not fit: it needs some 34.0 GiB of device memory, 16.0 GiB are free"
    assert {dict(case.params)["batch"] for case in study.cases if case.id in skipped} == {128, 256}
    assert not too_large(costs, {"memory_total_bytes": 139 << 30, "memory_used_bytes": 0})
    assert not too_large(costs, {})


CASES = '[[cases]]\nworkload = "rope"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is not TOML: Invalid value (at "),
        (CASES, "Object missing required field name"),
        ('name = "../x"\n' + CASES, "name: expected str matching regex '^[a-z0-9][a-z0-9_-]*$'"),
        ('name = "x"\n[[cases]]\nbatch = 1', "[[cases]] 1: it has no workload"),
        ('name = "x"\n' + CASES + "batch = 1", "[[cases]] 1: rope has no parameter batch"),
        ('name = "x"\n' + CASES + "tokens = [1, 0]", "[[cases]] 1: --tokens: '0' is not valid (at least 1)"),
        ('name = "x"\n' + CASES + "tokens = []", "[[cases]] 1: tokens is neither a value nor a list of values"),
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
        load_definition(str(file))
    assert (raised.value.exit_code, raised.value.message.startswith(f"{file}")) == (2, True)
    assert message in raised.value.message


def test_a_dry_run_lists_everything_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one GPU a workload is parted only where it must be."""
    monkeypatch.chdir(tmp_path)
    words = ("study", "flashinfer", "--quick", "--dry-run", "--only")
    lines = invoke(*words, "rope,rmsnorm")[1].splitlines()
    assert lines[0] == (
        "FlashInfer's kernels over their range: 22 cases to measure, 0 done, 0 too large; 1 batch, "
        "3 processes on the GPU, into artifacts/study-flashinfer-quick"
    )
    assert lines[2] == "batch 1: rmsnorm (10), rope (12): one plain, one nsys, one ncu process"
    assert (lines[3], len(lines)) == ("  rmsnorm[rows=1,hidden=4096,dtype=fp16]", 3 + 22)
    batches = re.findall("(?m)^batch .*?: (.*):", invoke(*words[:-1])[1])
    norms = "rmsnorm (10), fused_add_rmsnorm (10), add_then_rmsnorm (10), rope (12)"
    assert batches == [f"prefill (64), {norms}", "decode (108)"]
    refused = refusal(*words, "sort")
    assert (refused.message, refused.exit_code) == ("the study flashinfer has no sort", 2)
    assert "of prefill, decode, rmsnorm, fused_add_rmsnorm, add_then_rmsnorm, rope, jit" in refused.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_is_whole_needs_no_gpu(fiprof: Fiprof, tmp_path: Path) -> None:
    a_study(tmp_path / "study")
    done = fiprof("study", "flashinfer", "--quick", "--no-documents", "--out", "study", env={"PATH": "/nowhere"})
    assert done.returncode == 0 and "214 cases, all of them done" in done.stderr, done.stderr


def test_a_folder_of_something_else_is_refused(faked: Fiprof, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").touch()
    done = faked("study", "flashinfer", "--out", "mine", status=2)
    assert done.stderr.startswith("fiprof: mine holds something else: it has no study.json\n")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {".lock", "thesis.tex"}


def test_compilation_is_studied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def measure(request: JitRequest, *_: object, study: str, **__: object) -> JitResults:
        asked.append([case.id for case in request.cases])
        return JitResults(study, [], [], [], 5, [], {})

    monkeypatch.setattr(jit, "measure", measure)
    study = load_definition("flashinfer", quick=True)
    for _ in range(2):
        bench = Bench(Archive(tmp_path), TerminalProgress(quiet=True), Supervisor())
        info = run_study(study, bench, python="python", gpu=None, only=["jit"])
    assert len(asked) == 1 and asked[0][0].startswith("prefill[") and len(asked[0]) == 5
    assert read(tmp_path / "results/jit_analysis.json", JitResults).cache_bytes == 5
    assert (info.status, info.missing["prefill"], info.missing["decode"]) == ("incomplete", 64, 108)


def test_the_documentation(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs/study.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE))
    common = {each.name: each.default for each in settings_of(Settings)}
    own = {each.name: each.default for each in settings_of(StudySettings) if common.get(each.name, "") != each.default}
    assert rows == {name: str(default).lower() for name, default in own.items()}
    (tmp_path / "norms.toml").write_text(text.partition("```toml\n")[2].partition("```")[0])
    study = load_definition(str(tmp_path / "norms.toml"))
    assert (len(study.cases), study.settings.ncu_set) == (7, "quick")
    assert [case.workload for case in study.extras["jit"]] == ["rmsnorm"]


RECORDED = load(STUDY)
BY_NAME = {claim.name: claim for claim in declared_claims()}


def times_around(median_us: float, *, relative: float = 0.005, seed: str = "") -> CaseTimes:
    """With an interval of ± relative."""
    noise = random.Random(seed)
    each = [median_us * (1 + relative * (noise.random() - 0.5)) for _ in range(6)]
    return CaseTimes(median_us, median_us * (1 - relative), median_us * (1 + relative), 0.97, 60, 6, each)


def make_case(workload: str, params: dict[str, Any], us: float) -> CaseResult:
    """A case of these parameters with the results of another one and this time."""
    words = (f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in params.items())
    case = f"{workload}[{','.join(words)}]"
    plain = times_around(us, seed=case)
    return dataclasses.replace(RECORDED.by_workload["rope"][0], id=case, workload=workload, params=params, plain=plain)


def write_study(folder: Path, cases: Mapping[str, Sequence[CaseResult]], **info: Any) -> Path:
    """A study folder with these results and no runs. info: fields of environment_info.json that differ."""
    (folder / "results").mkdir(parents=True)
    for workload, found in cases.items():
        results = KernelResults(workload, "flashinfer", list(found), fiprof="0.1.0")
        json_file.write(folder / f"results/{workload}.json", results)
    environment = dataclasses.replace(RECORDED.info, workloads=list(cases), **info)
    json_file.write(folder / "results/environment_info.json", environment)
    return folder


def changed(change: Callable[[CaseResult], CaseResult], **info: Any) -> Study:
    """The recorded study with other cases, and with such fields of its environment."""
    results = tuple(dataclasses.replace(each, cases=list(map(change, each.cases))) for each in RECORDED.results)
    return dataclasses.replace(RECORDED, results=results, info=dataclasses.replace(RECORDED.info, **info))


def advice(study: Study) -> str:
    (only,) = [item for item in claims.choices(study)[0] if item.question == "Prefill by FA3 (GQA 32/8)"]
    return only.advice(study)


def test_a_recommendation_turns_with_the_times() -> None:
    def advised(us: Callable[[Any, float], float]) -> str:
        """Where prefill takes another time, by parameters and the time that it took."""

        def change(case: CaseResult) -> CaseResult:
            if case.workload != "prefill" or not case.plain:
                return case
            return dataclasses.replace(case, plain=times_around(us(case.params, case.plain.median_us)))

        return advice(changed(change))

    assert 'ass backend="fa3"' in advice(RECORDED) and "fa2" not in advice(RECORDED)
    assert 'ass backend="fa2"' in advised(lambda params, us: us * (10 if params["backend"] == "fa3" else 1))
    small = {"backend": "fa3", "batch": 1, "seq_len": 512}.items()
    found = advised(lambda params, us: us * (10 if small <= params.items() else 1))
    assert 'fa3"; but pass backend="fa2" at batch 1, sequence 512' in found
    assert "backend" not in advised(lambda params, _: 20 + params["batch"] * params["seq_len"] / 100)


def test_what_crosses_boards_is_less_sure_by_what_lies_between_them() -> None:
    """By 1.2%, as an anchor has it; on one board nothing changes."""
    info = {"boards": {"a": "GPU-a", "b": "GPU-b"}, "anchors": {"rope[]": {"GPU-a": 100.0, "GPU-b": 101.2}}}

    def on_two(case: CaseResult) -> CaseResult:
        return dataclasses.replace(case, run="b" if case.params.get("kv_len") == 512 else "a")

    before, after = (BY_NAME["four-times-the-kv"].result(each).tested for each in (RECORDED, changed(on_two, **info)))
    wider: Counter[bool] = Counter()
    for one, other in zip(before, after, strict=True):
        assert one.ratio and other.ratio and one.ratio.value == other.ratio.value
        crosses = one.cases[1].params["kv_len"] == 512
        factor = 1.012 if crosses else 1.0
        assert (other.ratio.low * factor, other.ratio.high / factor) == pytest.approx((one.ratio.low, one.ratio.high))
        wider[crosses] += 1
    assert wider == {True: 36, False: 36}


def test_a_study_of_one_workload_says_nothing_of_others(tmp_path: Path) -> None:
    study = load(write_study(tmp_path / "study", {"rmsnorm": RECORDED.by_workload["rmsnorm"]}))
    assert (claims.choices(study), claims.results(study)) == (([], []), ())
    for name, text in pages(study).items():
        for word in ("Prefill", "FA3", "Not measured", "add_then", "#what-others", "fiprof jit"):
            assert word not in text or name == "kernel-dev-guide", (name, word)


def test_a_study_without_ncu_has_times_and_says_what_is_missing() -> None:
    study = changed(lambda case: dataclasses.replace(case, kernels=[], ncu_us=None, plan={}))
    assert 'ass backend="fa3"' in advice(study)
    assert {item.title for item in packs.joined("study_sections", study) if item.absent} == {"Split-K's merge"}
    absences = {item.claim.name: item.absence.kind for item in claims.results(study) if item.absence}
    verdicts = dict.fromkeys(("prefill-compute-bound", "decode-memory-bound"), "verdict")
    assert absences == {**verdicts, "fusing-saves-traffic": "dram_bytes"}
    made = pages(study)
    assert "growth along batch" in made["analysis"] and "no grid, no counters" in made["analysis"]
    assert "ncu gave no verdict of any of these cases" in made["final-report"]


def test_what_was_skipped_or_is_missing_is_said() -> None:
    def change(case: CaseResult) -> CaseResult:
        return CaseResult(case.id, case.workload, case.params, run="", skipped="does not fit")

    made = pages(changed(change, status="incomplete", missing={"prefill": 64}))
    for name, text in made.items():
        first = next(line for line in text.splitlines() if line.startswith(">"))
        assert "64 prefill" in first, name
    assert "does not fit" in made["final-report"]


def test_without_a_map_the_guide_says_so_and_with_that_of_another_version_too(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study", {"decode": RECORDED.by_workload["decode"]})
    assert "results/sources.json is missing" in pages(load(folder))["kernel-dev-guide"]
    sources = read(STUDY / "results/sources.json", SourceResults)
    json_file.write(folder / "results/sources.json", dataclasses.replace(sources, version="0.5.3"))
    guide = pages(load(folder))["kernel-dev-guide"]
    assert "These lines are those of flashinfer-python 0.5.3; measured was 0.6.13." in guide
    assert "is missing" not in guide


def test_a_users_own_workload_has_its_sections(tmp_path: Path) -> None:
    params = [{"size": size, "fast": fast} for size in (1, 2, 4, 8) for fast in (False, True)]
    cases = [make_case("mine", each, 10.0 * each["size"]) for each in params]
    made = pages(load(write_study(tmp_path / "study", {"mine": cases})))
    assert "### mine: parameters, and what each did" in made["kernel-dev-guide"]
    assert "### mine: growth along size" in made["analysis"] and "```vega-lite mine: time" in made["analysis"]


HOSTILE = "<script>alert(1)</script> [a](javascript:x) **b** `c` | _d_ ![e](f) &amp; \\\n# g"


@pytest.mark.fault("markup and controls in every text of a study's results", "escaped in its documents")
def test_documents_escape_what_results_say(tmp_path: Path) -> None:
    def planted(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: planted(each) if key not in ("study", "name") else each for key, each in value.items()}
        if isinstance(value, list):
            return [planted(each) for each in value]
        return f"{value}{HOSTILE}\x1b[31m\x07" if isinstance(value, str) else value

    cases = {
        name: [dataclasses.replace(case, kernels=[dataclasses.replace(k, kernel=HOSTILE) for k in case.kernels]) for case in of]
        for name, of in RECORDED.by_workload.items()
    }  # fmt: skip
    folder = write_study(tmp_path / "study", cases, title=HOSTILE)
    for name in ("results/jit_analysis.json", "results/sources.json"):
        (folder / name).write_text(json.dumps(planted(json.loads((STUDY / name).read_text()))))
    documents(folder)
    made = {path.name: path.read_text() for path in (folder / "reports").rglob("*.[hm][td]*")}
    for name, text in made.items():
        # What stands in code is shown as it is.
        bare = re.sub(r"(?ms)^(`{3,}).*?^\1|`[^`]*`", "", text) if name.endswith(".md") else text
        assert "<script>alert" not in bare and 'href="javascript' not in bare and "<h1># g" not in bare, name
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text), name
    assert "&lt;script&gt;alert" in made["final-report.html"] and "kernel-dev-guide.md" in made


@pytest.mark.parametrize("text", [HOSTILE, "# a", "fused_add_rmsnorm", "x\n\ny"])
def test_text_in_markdown_is_the_same_text_on_the_page(text: str) -> None:
    shown = document_html(f"# T\n\n{escape_markdown(text)}\n\n{grid('head', [(text,)])}", "T")
    kept = unescape(shown)
    expected = text.replace("\n", "\\n")
    assert f"<p>{expected}</p>" in kept and f"<td>{expected}</td>" in kept


def test_a_table_has_its_numbers_to_the_right_and_sorted_by_value() -> None:
    text = grid("name;time (µs)|,.1f", [("a", 1234.5), ("b", None), (Markdown("[c](x.md#y)"), 3.0)])
    assert text.splitlines()[1:3] == ["| ----------- | --------: |", "| a           |   1,234.5 |"]
    shown = document_html(f"# T\n\n## Part one\n\n{text}\n", "T")
    assert '<td class="n" data-o="1234.5">1,234.5</td>' in shown and 'href="x.html#y"' in shown
    assert '<section id="part-one">' in shown and '<a href="#part-one">Part one</a>' in shown


def rows(workload: str) -> list[dict[str, Any]]:
    """A file's cases, as JSON alone has them."""
    found: list[dict[str, Any]] = json.loads((STUDY / f"results/{workload}.json").read_text())["cases"]
    return found


def rounds(workload: str, name: str, one: object, other: object) -> list[tuple[list[float], list[float]]]:
    """Each round's medians of cases that differ in one parameter alone, by the JSON."""
    found: dict[str, dict[object, list[float]]] = {}
    for case in rows(workload):
        key = json.dumps({k: v for k, v in case["params"].items() if k != name})
        found.setdefault(key, {})[case["params"][name]] = case["plain"]["round_medians_us"]
    return [(pair[one], pair[other]) for pair in found.values() if one in pair and other in pair]


PAIRS: dict[str, list[tuple[str, str, object, object]]] = {
    "gqa-faster": [("decode", "kv_heads", 32, 8)],
    "fa3-beats-fa2": [("prefill", "backend", "fa2", "fa3")],
    "cos-sin-cache-faster": [("rope", "variant", "inplace", "cos_sin_cache")],
    "four-times-the-kv": [("decode", "kv_len", 2048, 512), ("decode", "kv_len", 8192, 2048)],
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_ratios_of_a_claim_and_their_intervals_are_those_of_scipys_t_test(name: str) -> None:
    pairs = [pair for what in PAIRS[name] for pair in rounds(*what)]
    theirs = []
    for one, other in pairs:
        test = stats.ttest_rel(np.log(one), np.log(other)).confidence_interval(1 - 0.05 / len(pairs))
        theirs.append((stats.gmean(np.array(one) / np.array(other)), np.exp(test.low), np.exp(test.high)))
    result = BY_NAME[name].result(RECORDED)
    ratios = [item.ratio for item in result.tested if item.ratio]
    found = sorted((ratio.value, ratio.low, ratio.high) for ratio in ratios)
    assert np.array(found) == pytest.approx(np.array(sorted(theirs)))
    assert result.effect is not None and result.effect[1] == pytest.approx(
        (np.median([low for _, low, _ in theirs]), np.median([high for *_, high in theirs]))
    )


def test_every_recorded_fit_is_the_best_possible_one() -> None:
    """By scipy's least squares within bounds, and np.polyfit's covariance; from the JSON."""
    lines = 0
    for workload in RECORDED.by_workload:
        for item in [item for axis in RECORDED.axes(workload) for item in RECORDED.fits(workload, axis)]:
            same = {k: v for k, v in item.cases[0].params.items() if k != item.axis}
            points = sorted(
                (case["params"][item.axis], case["plain"]["median_us"])
                for case in rows(workload)
                if {k: v for k, v in case["params"].items() if k != item.axis} == same
            )
            x, y = np.array(points, dtype=float).T
            if item.line is None:
                assert len(x) < 4
                continue
            lines += 1
            grown = x ** (2 if (workload, item.axis) == ("prefill", "seq_len") else 1)
            (_, intercept), covariance = np.polyfit(grown, y, 1, w=1 / y, cov=True)
            found, bounds = (item.line.intercept_us.value, item.line.slope_us.value), ([0, 0], [y.min(), np.inf])
            terms = np.stack([np.ones_like(x), grown], 1) / y[:, None]
            assert found == pytest.approx(lsq_linear(terms, np.ones_like(x), bounds, "bvls").x, rel=1e-6, abs=1e-9)
            half = stats.t.ppf(0.975, len(x) - 2) * np.sqrt(np.diag(covariance))
            ends = item.line.intercept_us.low, item.line.intercept_us.high
            assert ends == pytest.approx((max(intercept - half[1], 0), min(intercept + half[1], y.min())))
            line = found[0] + found[1] * grown
            assert item.line.worst == pytest.approx(max((y - line) / y, key=abs))
    assert lines == 59  # those of four sizes or more


def test_every_link_leads_somewhere() -> None:
    for name in DOCUMENTS:
        text = (STUDY / f"reports/{name}.md").read_text()
        found = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", re.sub(r"(?ms)^```.*?^```", "", text))
        assert len(found) > 3
        for path, anchor in found:
            target = STUDY / "reports" / (path or f"{name}.md")
            assert target.is_file(), (name, path)
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if anchor else []
            assert not anchor or anchor in map(slug, headings), (name, path, anchor)


def test_the_committed_documents_are_those_of_the_committed_results() -> None:
    """After a change of words: fiprof.reports.study.documents() over a copy, and the Markdown and cases.csv back."""
    for name, text in pages(RECORDED).items():
        assert plain_markdown(text, f"{name}.html") == (STUDY / f"reports/{name}.md").read_text(), name
    assert cases_csv(RECORDED) == (STUDY / "reports/cases.csv").read_text()


@pytest.mark.parametrize("installed", INSTALLED, ids=lambda root: root.parent.name)
def test_the_calls_of_the_guide_fit_the_installed_version(installed: Path) -> None:
    """Each function and method that a call names is there, with each of its keywords."""
    defined: dict[str, set[str]] = {}
    for path in installed.glob("**/*.py"):
        if path.parent == installed or path.parent.name == "norm":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef):
                    names = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
                    defined[node.name] = defined.get(node.name, set()) | names
    checked = 0
    calls = [page for (_, title), page in guide_pages().items() if title == "how it is called"]
    for code in calls:
        for node in ast.walk(ast.parse(code.removeprefix("```python").removesuffix("```"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner, name = ast.unparse(node.func.value), node.func.attr
                if owner in ("flashinfer", "wrapper", "graphed"):
                    known = defined["__init__" if name.endswith("Wrapper") else name]
                    assert {each.arg for each in node.keywords if each.arg} <= known, (name, known)
                    checked += 1
    assert checked >= 12


DOCUMENT = (REPOSITORY / "docs/packs.md").read_text()
METADATA, MODULE, EXPECTATIONS = re.findall(r"```(?:toml|python)\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture
def with_pack(tmp_path: Path) -> dict[str, str]:
    """Environment in which the pack is installed: its module and its metadata are on the path."""
    site = tmp_path / "site"
    info = site / "saxpy_pack-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "saxpy_pack.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: saxpy-pack\nVersion: 1.0\n")
    groups = tomllib.loads(METADATA)["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{python_path()}"}


def test_its_claim_and_its_knowledge_appear_in_its_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    exec(MODULE, vars(module := ModuleType("saxpy_pack")))
    monkeypatch.setattr(packs, "packs", partial(dict, packs.packs(), saxpy=module))
    monkeypatch.setattr(packs, "_merged", packs.merged)  # which a process does once
    params = [{"n": n, "wide": wide} for n in (1024, 4096, 16384) for wide in (False, True)]
    cases = [make_case("saxpy", each, 3.0 + each["n"] / (1000 << each["wide"])) for each in params]
    study = load(write_study(tmp_path / "study", {"saxpy": cases}, study="saxpy", title=""))
    found = {item.claim.name: (item.verdict, len(item.tested)) for item in claims.results(study)}
    assert found == {"wide-is-faster": ("confirmed", 3)}
    shown = pages(study)
    assert "wide loads are faster" in shown["final-report"]
    for words in ("Scaled vector addition", "A thread loads an element of each vector", "128-bit loads"):
        assert words in shown["kernel-dev-guide"]
    for name in ("final-report", "kernel-dev-guide"):
        foreign = ("decode", "prefill", "rope", "FA3", "not measured", "FlashInfer")
        # The version of FlashInfer stands in the environment that the fixture gives.
        assert [word for word in foreign if word in shown[name]] in ([], ["FlashInfer"]), name


def test_its_study_and_its_command_are_found(with_pack: Env) -> None:
    shown = ran(sys.executable, "-m", "fiprof", "--help", env=with_pack).stdout
    assert re.search(r"^  saxpy-info +What the saxpy pack knows", shown, re.MULTILINE)
    assert ran(sys.executable, "-m", "fiprof", "saxpy-info", env=with_pack).stdout == "one kernel\n"
    done = ran(sys.executable, "-m", "fiprof", "study", "nothing", env=with_pack)
    assert (done.returncode, "flashinfer, saxpy" in done.stderr) == (2, True)


def test_a_pack_that_cannot_be_imported_is_named(with_pack: Env, tmp_path: Path) -> None:
    (tmp_path / "site/saxpy_pack.py").write_text("import nowhere")
    asked = {"study saxpy": "the pack saxpy (saxpy_pack)", "saxpy-info": "the command saxpy-info (saxpy_pack:info)"}
    for words, what in asked.items():
        done = ran(sys.executable, "-m", "fiprof", *words.split(), env=with_pack)
        said = f"fiprof: {what} cannot be imported: No module named 'nowhere'"
        assert (done.returncode, done.stderr.startswith(said)) == (1, True)


def test_the_documented_expectations_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(EXPECTATIONS)
    (family,) = read_expectations(tmp_path / "ours.toml").family
    assert family.bandwidth and (family.name, family.bandwidth.least_tb_per_s) == ("norms", 1.8)


def test_every_function_of_flashinfers_pack_is_documented() -> None:
    functions = {name for name, item in vars(pack).items() if callable(item) and item.__module__ == pack.__name__}
    functions |= pack.ELSEWHERE.keys()
    assert all(callable(getattr(pack, name)) for name in functions)
    assert functions - {"__getattr__"} <= set(re.findall(r"`(\w+)\([\w, ]*\)`", DOCUMENT))
