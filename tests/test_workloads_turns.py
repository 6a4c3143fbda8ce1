"""The runner's turns from end to end, with a workload on the CPU and a CUDA that only counts; the float32 references, against
formulas of their own."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fiprof.errors import FiprofError
from fiprof.workloads import runner, timing
from fiprof.workloads.__main__ import main
from fiprof.workloads.case import Case, parse_case
from fiprof.workloads.runner import RunnerRequest, run_cases
from fiprof.workloads.timing import SmClock

torch = pytest.importorskip("torch", reason="torch is not installed")

WORKLOAD = """
import torch
from dataclasses import dataclass
from fiprof.workloads.base import Cost, Workload, param

@dataclass(frozen=True)
class Params:
    us: int = param(100, "time of a launch")
    fails_in_turn: int = param(0, "turn whose launch fails; 0 for none")

class Fake(Workload[Params]):
    name, summary, Params, turns = "fake", "takes a time", Params, {}

    def setup(self):
        turn = Fake.turns[self.params] = Fake.turns.get(self.params, 0) + 1

        def launch():
            if turn == self.params.fails_in_turn:
                raise RuntimeError("CUDA error: out of luck")
            torch.cuda.clock_us += self.params.us
            return (torch.ones(2),)
        return launch

    def cost(self):
        return Cost(flops=1, bytes_read=2, bytes_written=3, tokens=4)

    def reference(self):
        return (torch.ones(2),)
"""


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.us = 0.0

    def record(self) -> None:
        self.us = torch.cuda.clock_us

    def elapsed_time(self, end: Event) -> float:
        return (end.us - self.us) / 1e3


def reads(*mhz: float) -> Callable[[SmClock], float]:
    """The clock, read so often."""
    left = iter(mhz)
    return lambda _clock: next(left)


def spin(cycles: int) -> None:
    torch.cuda.clock_us += cycles / 1980


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A clock instead of a GPU. Returns the workload's name."""
    nothing = dict.fromkeys(("synchronize", "reset_peak_memory_stats", "empty_cache"), lambda: None)
    answers = {"is_available": lambda: True, "max_memory_allocated": lambda: 1000, "memory_stats": dict}
    for name, fake in {"clock_us": 0.0, "Event": Event, "_sleep": spin, **nothing, **answers}.items():
        monkeypatch.setattr(torch.cuda, name, fake, raising=False)
    monkeypatch.setattr(runner, "gpu_facts", dict)
    monkeypatch.setattr(torch.cuda.profiler, "profile", contextlib.nullcontext)
    monkeypatch.delenv(runner.GATE_VARIABLE, raising=False)
    (tmp_path / "fake.py").write_text(WORKLOAD)
    return f"{tmp_path / 'fake.py'}:fake"


def run(*cases: Case, **changes: Any) -> tuple[dict[str, dict[str, Any]], dict[str, str], list[str]]:
    """Case id -> its record; case id -> its error; what was said."""
    records: list[dict[str, Any]] = []
    said: list[str] = []
    settings = {"iterations": 20, "warmup": 1, "seed": 0, "check": True, "timing": True, **changes}
    request = RunnerRequest(cases, **settings)
    run_cases(request, records.append, said.append)
    assert records[0]["kind"] == "environment"
    done = {record["case"]: record for record in records if record["kind"] == "case"}
    return done, {record["case"]: record["error"] for record in records if record["kind"] == "error"}, said


def test_turns_and_their_time(cuda: str) -> None:
    short, long, longest = (parse_case(f"{cuda}[us={us}]") for us in (100, 1000, 100_000))
    done, _, said = run(short, long, longest, rounds=3, budget_ms=8.0)
    assert {us: len(done[case.id]["gpu_us"]) for us, case in ((100, short), (1000, long), (100_000, longest))} == {
        100: 3 * 20,  # no more than asked for
        1000: 3 * 8,  # as many as fit
        100_000: 3 * 3,  # no fewer than three
    }
    assert {record["rounds"] for record in done.values()} == {3}
    # Compared once, before the first round.
    checks = [index for index, step in enumerate(said) if step.startswith("check")]
    assert len(checks) == 3
    assert max(checks) < min(index for index, step in enumerate(said) if step.startswith("measure"))
    order = [step.partition(" ")[2] for step in said if step.startswith("measure")]
    assert len(order) == 9 and all(f"round {turn}" in " ".join(order[3 * turn - 3 : 3 * turn]) for turn in (2, 3))


def test_short_kernels_are_timed_in_groups(cuda: str) -> None:
    short, long = parse_case(f"{cuda}[us=8]"), parse_case(f"{cuda}[us=40]")
    done, _, _ = run(short, long)
    assert done[short.id]["gpu_us"] == [pytest.approx(8.0)] * 20
    assert done[short.id]["launches_per_time"] == 25  # 200 µs between two events
    assert "launches_per_time" not in done[long.id]


@pytest.mark.usefixtures("cuda")
def test_a_pause_of_the_host_is_in_one_of_several_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[float] = []

    def launch() -> None:
        launched.append(6_100.0 if len(launched) == 30 else 100.0)  # µs: one in the first loop takes long
        torch.cuda.clock_us += 100.0

    monkeypatch.setattr("time.perf_counter", lambda: sum(launched) / 1e6)
    assert timing.measure(launch, 20, 1e-4)["wall_us"] == pytest.approx(100.0)
    assert len(launched) == 20 * (1 + 5) and max(launched[20:40]) > 6_000


FIRST_LOOK = 2 * SmClock.FIRST_READINGS


def test_a_turn_without_the_clock_is_repeated_at_the_end(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = parse_case(f"{cuda}[us=100]")
    # The second turn is without its clock.
    monkeypatch.setattr(SmClock, "LONGEST_S", 0.0)
    monkeypatch.setattr(SmClock, "read", reads(*[1980.0] * FIRST_LOOK, 1980.0, 1400.0, 1975.0, 1980.0))
    done, _, said = run(case, rounds=3, check=False)
    assert done[case.id]["sm_clock_mhz"] == [1980.0, 1975.0, 1980.0]
    assert done[case.id]["clock_recovered"] == [True, True, True]
    assert len(done[case.id]["gpu_us"]) == 3 * 20
    assert sum(step.startswith("measure") for step in said) == 4


def test_a_case_that_fails_has_no_further_turn(cuda: str) -> None:
    good, bad = parse_case(f"{cuda}[us=100]"), parse_case(f"{cuda}[us=100,fails_in_turn=2]")
    done, errors, said = run(good, bad, rounds=3, keep_going=True)
    assert list(done) == [good.id]
    assert errors == {bad.id: "RuntimeError: CUDA error: out of luck"}
    assert len([step for step in said if step.startswith("setup") and bad.id in step]) == 2
    with pytest.raises(FiprofError, match="1 of 2 cases failed, the first fake"):
        run(good, parse_case(f"{cuda}[us=101,fails_in_turn=1]"))
    with pytest.raises(FiprofError, match="1 of 1 cases failed"):
        run(parse_case(f"{cuda}[us=102,fails_in_turn=1]"), keep_going=True)


def test_iterations_under_a_profiler_are_numbered_over_all_rounds(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def ranges(*names: str) -> Iterator[None]:
        seen.append(names)
        yield

    monkeypatch.setattr(runner, "visible", lambda: True)
    monkeypatch.setattr(runner, "ranges", ranges)
    case = parse_case(f"{cuda}[us=100]")
    run(case, iterations=4, rounds=3, timing=False, check=False)
    assert [names[0] for names in seen if names[0].startswith("iter")] == [f"iter {i}" for i in range(12)]
    assert seen.count(("measure", case.id)) == 3


def test_a_process_of_a_comparison_follows_its_orders(cuda: str, tmp_path: Path) -> None:
    """Set up once, then measured when told, as the command line has it; a case that fails leaves the others."""
    measure = {"do": "measure", "round": 0, "cases": [[1, 4, 1], [0, 3, 2]]}
    orders = [{"do": "clock"}, {"do": "plan", "cases": [0, 1, 2]}, measure, {"do": "check", "cases": [0]}]
    (tmp_path / "orders").write_text("".join(json.dumps(order) + "\n" for order in orders))
    words = [word for us in (100, 30_000) for word in ("--case", f"{cuda}[us={us}]")]
    words += ["--case", f"{cuda}[fails_in_turn=1]", f"--orders={tmp_path / 'orders'}", f"--out={tmp_path / 'out'}"]
    assert main(["rounds", *words, "--budget-ms=10", f"--imports-from={tmp_path}"]) == 0
    answers = re.split('.*"done".*\n', (tmp_path / "out").read_text())
    set_up, clock, plan, measured, checked, rest = ([*map(json.loads, each.splitlines())] for each in answers)
    kinds = [("environment", None), ("memory", 0), ("memory", 1), ("error", 2)]
    assert [(each["kind"], each.get("place")) for each in set_up] == kinds
    assert clock == [{"kind": "clock", "idle_mhz": pytest.approx(1980)}]
    # The third cannot: it was never set up.
    planned = [(each["kind"], each.get("iterations"), each.get("launches_per_time")) for each in plan]
    assert planned == [("plan", 20, 1), ("plan", 3, 1), ("error", None, None)]
    assert {each["place"]: each["gpu_us"] for each in measured} == {
        1: pytest.approx([30_000] * 4), 0: pytest.approx([100] * 3)
    }  # fmt: skip
    assert [(each["place"], each["clock_recovered"]) for each in measured] == [(1, True), (0, True)]
    assert [(each["place"], each["relative_error"]) for each in checked] == [(0, 0)]
    assert not rest
    assert main(["rounds", *words, f"--imports-from={tmp_path / 'elsewhere'}"]) == 1


def test_a_single_high_reading_moves_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on an H100 of 1,980 MHz: 2,067 MHz after kernels that load the DRAM."""
    monkeypatch.setattr(SmClock, "read", reads(*[1980.0] * 30, 2034.0, *[1980.0] * 31, 2067.0, 1975.0))
    clock = SmClock()
    assert [clock.recover() for _ in range(2)] == [(2067.0, True), (1975.0, True)]


def test_it_waits_for_a_clock_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmClock, "read", reads(*[1980.0] * FIRST_LOOK, 1410.0, 1695.0, 1905.0, 1965.0))
    monkeypatch.setattr(SmClock, "PAUSE_S", 0.0)
    assert SmClock().recover() == (1965.0, True)


def test_a_gpu_that_stays_slower_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmClock, "LONGEST_S", 0.0)
    monkeypatch.setattr(SmClock, "read", reads(*[1980.0] * FIRST_LOOK, *[1900.0] * 40))
    clock = SmClock()
    recovered = [clock.recover()[1] for _ in range(40)]
    assert recovered == [False] * SmClock.REMEMBERED + [True] * (40 - SmClock.REMEMBERED)


def build(text: str, seed: int = 0) -> Any:
    return parse_case(text).build(device="cpu", seed=seed)


def relative_error(got, want) -> float:  # type: ignore[no-untyped-def]
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", ["true", "false"])
def test_prefill(kv_heads: int, causal: str) -> None:
    text = f"prefill[batch=2,seq_len=37,q_heads=4,kv_heads={kv_heads},head_dim=16,page_size=8,causal={causal}]"
    workload = build(text)
    query, kv = workload.inputs
    (got,) = workload.reference()
    for request in range(2):
        pages = kv.cache[kv.indices.long().view(2, 5)[request]]
        keys, values = pages[:, 0].reshape(40, kv_heads, 16)[:37], pages[:, 1].reshape(40, kv_heads, 16)[:37]
        rows = slice(request * 37, (request + 1) * 37)
        both = (each.double().transpose(0, 1).repeat_interleave(4 // kv_heads, 0) for each in (keys, values))
        attention = torch.nn.functional.scaled_dot_product_attention
        want = attention(query[rows].double().transpose(0, 1), *both, is_causal=causal == "true").transpose(0, 1)
        assert relative_error(got[rows], want) < 1e-5


def test_decode_ignores_the_rest_of_the_last_page() -> None:
    workload = build("decode[batch=3,kv_len=21,q_heads=4,kv_heads=2,head_dim=16,page_size=8]")
    query, kv = workload.inputs
    (before,) = workload.reference()
    last_pages = kv.indices.long().view(3, 3)[:, -1]
    kv.cache[last_pages, :, 21 - 16 :] = 1000.0
    (after,) = workload.reference()
    assert torch.equal(before, after)
    keys, values = kv.dense(1)
    scores = torch.stack([keys[:, head // 2].double() @ query[1, head].double() for head in range(4)]) / 4
    weights = scores.softmax(-1)
    want = torch.stack([weights[head] @ values[:, head // 2].double() for head in range(4)])
    assert relative_error(after[1], want) < 1e-5


def test_pages_are_shuffled() -> None:
    _, kv = build("decode[batch=8,kv_len=128]").inputs
    assert not torch.equal(kv.indices, torch.arange(64, dtype=torch.int32))
    assert torch.equal(kv.indices.sort().values, torch.arange(64, dtype=torch.int32))


@pytest.mark.parametrize("name", ["rmsnorm", "fused_add_rmsnorm", "add_then_rmsnorm"])
def test_norms(name: str) -> None:
    workload = build(f"{name}[rows=5,hidden=64]")
    *summands, weight = workload.inputs
    normalized, *sums = workload.reference()
    total = sum(each.float() for each in summands)
    assert len(sums) == len(summands) - 1 and all(torch.equal(each, total) for each in sums)
    want = torch.nn.functional.rms_norm(total.double(), (64,), weight.double(), eps=1e-6)
    assert relative_error(normalized, want) < 1e-6


@pytest.mark.parametrize("variant", ["inplace", "cos_sin_cache"])
def test_rope_is_a_rotation_of_complex_pairs(variant: str) -> None:
    workload = build(f"rope[tokens=50,seq_len=20,q_heads=2,kv_heads=1,head_dim=8,variant={variant}]")
    query, _, positions = workload.inputs
    got, _ = workload.reference()
    assert positions.tolist() == [*range(20), *range(20), *range(10)]
    pairs = torch.complex(query[..., :4].double(), query[..., 4:].double())
    angles = positions.double()[:, None, None] * 10_000.0 ** (-torch.arange(0, 8, 2).double() / 8)
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    assert relative_error(got, torch.cat([turned.real, turned.imag], -1)) < 1e-6


def test_llama31_slows_the_low_frequencies_alone() -> None:
    plain = 5e5 ** (-torch.arange(0, 128, 2).double() / 128)
    scaled = build("rope[variant=llama31,tokens=2,q_heads=1,kv_heads=1]").frequencies()
    wavelength = 2 * torch.pi / plain
    short, long = wavelength < 8192 / 4, wavelength > 8192 / 1
    assert relative_error(scaled[short], plain[short]) < 1e-6
    assert relative_error(scaled[long], plain[long] / 8) < 1e-6
    between = ~short & ~long
    assert bool(((scaled[between] < plain[between]) & (scaled[between] > plain[between] / 8)).all())


@pytest.mark.parametrize("name", ["decode[batch=2,kv_len=8]", "rmsnorm[rows=2]", "rope[tokens=4]"])
def test_inputs_are_seeded_and_never_zero(name: str) -> None:
    first, again, other = (build(name, seed).inputs[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert float((first == 0).double().mean()) < 0.01


def test_a_wrong_result_is_refused() -> None:
    want = torch.ones(4)
    assert runner.compare((want.half(),), (want,), 1e-3)["relative_error"] == 0.0
    for wrong in (want * 1.1, want * float("nan"), torch.zeros(4)):
        with pytest.raises(FiprofError, match="wrong result"):
            runner.compare((wrong,), (want,), 1e-3)
