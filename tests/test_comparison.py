"""Two runs compared: pairs, what explains a change, what is refused; and comparisons measured on an H200."""

import json
import lzma
import re
import shutil
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
from fiprof.analysis.comparison.measured_result import ComparedCase, compared
from fiprof.analysis.comparison.runs import pair_cases
from fiprof.analysis.comparison.statistics import Outcome
from tests.conftest import Fiprof
from tests.nsys_exports import CUDA_GRAPHS, KERNEL, altered, executed, query
from tests.recorded_runs import RECORDED, RUNS, copied, invoke, parsed, profiled
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
    path = (parsed if name in RUNS else profiled)(name).path
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
