"""Every key of the JSON output, with its unit and meaning: one key a quantity, the same in every command.

Those of launches and cases that are numbers come from ``quantities.py`` and ``case_quantities.py``; docs/keys.md is
made from all of them, and a test holds page and output together.
"""

from __future__ import annotations

from fiprof.model import case_quantities, floors, quantities
from fiprof.model.quantities import Key

_SPECS: tuple[tuple[str, str, str], ...] = (
    # A launch and its case
    ("launch", "", "ncu's ID of the launch; null for a kernel that only nsys saw."),
    ("case", "", "Case id; null outside the cases' ranges."),
    ("label", "", "The case in short: the parameters that tell the run's cases apart."),
    ("iteration", "", "Iteration of the case, from 0."),
    ("kernel", "", "Function name without namespaces, parameters and template arguments."),
    ("kernel_full", "", "Demangled name."),
    ("grid", "", "Blocks, e.g. 132x1x1."),
    ("block", "", "Threads of a block, e.g. 384x1x1."),
    ("device", "", "GPU."),
    ("phase", "", "setup, warmup or measure; null outside the fiprof ranges."),
    # Times
    ("nsys_duration_us", "µs", "Median duration of the kernel's executions in the case under nsys."),
    ("nsys_spread", "", "(p90 - p10) / median of them."),
    ("case_kernels", "", "Kernels that an iteration of the case runs."),
    ("iteration_share", "", "The launch's part of its iteration's kernel time under ncu, 0 to 1."),
    ("program_count", "", "Of a program: executions under nsys that the launch stands for (kernel, grid and block)."),
    ("program_us", "µs", "Their time in all."),
    ("program_share", "", "Their part of the time of all kernels, 0 to 1."),
    # Roofline
    (
        "basis",
        "",
        "What the place rests on: counted operations, model (those of the cost model), traffic (bytes: no work), none.",
    ),
    ("work", "", "The main kind of operations, e.g. tensor fp16: that whose roof is used most."),
    ("ops", "", "Operations of that kind, a multiply-add being two."),
    ("tflops", "TFLOP/s", "The same a second."),
    ("compute_roof_tflops", "TFLOP/s", "Most of them in a second at the clock measured during the launch."),
    ("compute_roof_share", "", "Operations a second over the roof for their kind, 0 to 1."),
    ("roof", "", "The roof that binds at the launch's intensity: the lowest; without work that of its busiest memory."),
    ("attainable_tflops", "TFLOP/s", "What that roof allows."),
    ("roof_share", "", "Achieved over attainable, 0 to 1; without work bytes a second over the memory's roof."),
    ("remark", "", "Why there is no point, or what is particular about it: id and its numbers; null for nothing."),
    *(
        spec
        for level, words in (("dram", "DRAM"), ("l2", "L2"), ("l1", "L1"))
        for spec in (
            (f"{level}_flop_per_byte", "FLOP/byte", f"Operations over the traffic of {words}."),
            (f"{level}_ridge_flop_per_byte", "FLOP/byte", f"Intensity where {words}'s roof meets the compute roof."),
        )
    ),
    *(
        spec
        for kind in ("tensor", "fp32", "fp16", "fp64")
        for spec in (
            (f"{kind}_tflops", "TFLOP/s", f"{kind} operations a second."),
            (f"{kind}_roof_tflops", "TFLOP/s", f"Most {kind} operations in a second."),
        )
    ),
    ("case_model_roof", "", "The roof that binds the case by its cost model."),
    ("case_model_attainable_tflops", "TFLOP/s", "What that roof allows."),
    ("case_model_roof_share", "", "Achieved over attainable; above 1 where L2 kept what the model takes from DRAM."),
    # Occupancy
    ("occupancy_limiters", "", "What allows the fewest blocks on a multiprocessor; several where they tie."),
    *(
        spec
        for resource in ("registers", "shared_memory", "warps", "blocks", "barriers", "clusters")
        for spec in (
            (f"limit_{resource}_blocks", "blocks", f"Blocks on a multiprocessor that {resource} allow."),
            (f"limit_{resource}_occupancy_pct", "%", "The occupancy of so many blocks."),
        )
    ),
    ("limit_shared_memory_most_blocks", "blocks", "With as much shared memory as a multiprocessor can be set up with."),
    ("lifted_resources", "", "The resources without which no further block fits."),
    ("lifted_blocks", "blocks", "Blocks on a multiprocessor if they did not limit."),
    ("lifted_occupancy_pct", "%", "Theoretical occupancy then."),
    ("lifted_then", "", "What limits then."),
    (
        "occupancy_steps",
        "",
        "What makes room for one more block: id, resource, blocks (that fit then), needed and now of it, in unit.",
    ),
    ("wave_blocks", "blocks", "Blocks that fit on the GPU at once."),
    ("full_waves", "", "Full waves of the grid."),
    ("last_wave_blocks", "blocks", "Blocks of the partial wave after them."),
    ("last_wave_idle_share", "", "Places for blocks that stay empty in it, 0 to 1."),
    ("last_wave_share", "", "The most that it takes of the run time, 1 / ceil(waves)."),
    ("tail_loss_share", "", "The most that the tail costs, 1 - waves / ceil(waves)."),
    ("idle_multiprocessors", "", "Multiprocessors without any block, where the grid has fewer blocks."),
    # Memory accesses
    *(
        spec
        for name in ("global_loads", "global_stores")
        for spec in (
            (
                f"{name}_ideal_low",
                "",
                "Sectors a request that the narrowest instruction needs where threads neighbour.",
            ),
            (f"{name}_ideal_high", "", "The same of the widest instruction."),
        )
    ),
    # Stalls
    ("reason", "", "Why warps did not issue, e.g. long_scoreboard; of a run, why its status is not complete."),
    ("stall_share", "", "Of the warps' time by ncu's counters, 0 to 1."),
    ("warps_per_issue", "", "Warps in this state per issued instruction: its cycles in a warp's latency."),
    ("samples", "", "Warp samples of the row."),
    ("samples_not_issued", "", "Those in cycles in which the scheduler issued nothing."),
    ("sample_share", "", "Of all warp samples of the launch, 0 to 1."),
    # Hotspots
    ("offset", "", "Bytes from the kernel's first instruction, hexadecimal."),
    ("sass", "", "The instruction."),
    ("top_reason", "", "The stall reason with most samples at it."),
    ("source_file", "", "Null where the build has no line information."),
    ("source_line", "", "Null likewise."),
    ("waits_for_offset", "", "Of the instruction that it probably waits for."),
    ("waits_for_sass", "", "That instruction."),
    # Verdict
    (
        "kind",
        "",
        "compute, memory, latency, launch, concurrent, imbalance, no_single_limit or unknown.",
    ),
    (
        "causes",
        "",
        "Why, the most specific first: id (atomics, barrier, local_memory, …), share_pct (percent of time or of the "
        "traffic that it accounts for, where that is known), evidence.",
    ),
    ("part", "", "Which resource or imbalance binds, e.g. dram; null where the kind says all."),
    (
        "evidence",
        "",
        "Comparisons, the deciding one first: quantity (a key), of (the resource whose use it is, or the stall "
        "reason), value, unit, test (at_least, below), threshold, origin (who chose it), provenance.",
    ),
    ("runner_up", "", "What the verdict would be otherwise: kind, part, value (percent of time)."),
    ("margin_points", "points", "Until the runner-up would be the verdict; negative where it feeds what binds."),
    ("confidence", "", "high, medium or low."),
    ("doubts", "", "What makes it less sure: id and its numbers."),
    (
        "steps",
        "",
        "What to do next: id and its numbers, bound_pct (the most that it saves, null without a bound), measured_pct "
        "(what it saved where that was measured), of (launch, iteration), basis (id and numbers), rules (of ncu, that "
        "say the same).",
    ),
    (
        "rules",
        "",
        "ncu's rules: section, rule, kind, message (ncu's words), speedup_kind (global, local), speedup_pct, rejected "
        "(why fiprof does not take it as a step; null where it does).",
    ),
    ("notes", "", "Findings about the counters: id and its numbers; of a run when, who and text of what people noted."),
    # Expected
    ("family", "", "Kernel family that the figures are of."),
    ("quantity", "", "What is compared: a stall reason, or the key of a quantity."),
    ("unit", "", "Of the numbers of the row."),
    ("expected_low", "", "In the row's unit."),
    ("expected_high", "", "Null for none."),
    ("expected_stated", "", "The one number that the source states, where it states no range."),
    ("measured", "", "Null where it was not collected."),
    (
        "outcome",
        "",
        "Of an expectation: as expected, below, above, not measured, or not compared (another GPU, shape or size). Of "
        "side B against A: slower, faster, same or cannot_tell.",
    ),
    ("deviation", "", "Measured minus the nearest end of what is expected."),
    ("remarks", "", "What limits the comparison: id and its numbers. Not compared: the figures, what for, and why."),
    ("source", "", "Who states the figures."),
    ("source_gpu", "", "The GPU that they are of."),
    # Compare
    (
        "about",
        "",
        "What the row is about: side, outcome (same or cannot_tell), case, outside_kernels, kernel, verdict, factor, "
        "counter, stall or hot_code; of "
        "programs also work (executions of B over those of A), window, part, idle and range.",
    ),
    (
        "match",
        "",
        "How the kernel was found on the other side: same, renamed (other template arguments), replaced, new or gone.",
    ),
    (
        "item",
        "",
        "What a and b are: key of a quantity, kind of a factor, a stall reason, or a place in the code.",
    ),
    ("a", "", "On side A, in the row's unit; null where it was not measured."),
    ("b", "", "On side B."),
    ("change", "", "b - a."),
    (
        "accounts_us",
        "µs",
        "How much longer side B takes for it, of programs at equal work; negative where it takes less.",
    ),
    ("call", "", "CUDA call that the GPU waited for; null elsewhere."),
    ("by", "", "Whose time that is a part of: plain, nsys or ncu."),
    # Comparisons that were measured, and gates
    ("a_case", "", "Case id on side A; a range's name, or wall, of a program."),
    ("b_case", "", "The same on side B."),
    ("a_us", "µs", "Geometric mean of the processes of side A: of each the median of its rounds' medians."),
    ("b_us", "µs", "The same of side B."),
    ("difference_pct", "%", "Side B against side A."),
    ("low_pct", "%", "Lower end of its interval; those of all cases hold at once in 98 of 100 comparisons."),
    ("high_pct", "%", "Upper end."),
    ("p", "", "Share of the processes' relabellings in which some case differs as much."),
    ("tells_pct", "%", "Least difference that so many processes and this noise tell from none."),
    ("processes_needed", "", "A side, to decide what cannot be told; null elsewhere."),
    ("slow_clock_rounds", "", "Rounds of its processes that count although the SM clock was not back."),
    ("decision", "", "failed, slower, gone, cannot_tell, new, within (the limit), faster or passed."),
    ("max_slowdown_pct", "%", "The gate's limit."),
    ("against", "", "The baseline's name, or the side in its place."),
    # Baselines
    ("baseline", "", "Its name."),
    ("baselines", "", "Names of the baselines that a run is."),
    ("run", "", "The run that it names."),
    ("commit", "", "What is measured beside the present tree; null where the run's tree is in no commit."),
    ("set_at", "", "When, ISO 8601 with offset."),
    ("set_by", "", "user@host."),
    # Timeline
    ("executions", "", "Executions under nsys."),
    ("start_us", "µs", "The first one's start, since the trace began."),
    ("end_us", "µs", "The last one's end."),
    ("gap_us", "µs", "Median time to the GPU's next kernel of the case; negative where that starts before."),
    ("launch_call_us", "µs", "Median duration of the CUDA call that launched it."),
    ("memory_bytes", "bytes", "Device memory of its process when the first one started."),
    ("metric_samples", "", "Samples of nsys's GPU metrics while it ran."),
    ("sms_active_pct", "%", "Multiprocessors with a warp, by nsys's samples."),
    ("sm_issue_pct", "%", "Cycles in which a scheduler issued, by nsys's samples."),
    ("sampled_tensor_active_pct", "%", "Tensor cores at work, by nsys's samples."),
    ("dram_read_pct", "%", "DRAM read bandwidth, by nsys's samples."),
    ("dram_write_pct", "%", "DRAM write bandwidth, by nsys's samples."),
    ("compute_warps_pct", "%", "Warps in flight, by nsys's samples."),
    # Ranks and their collectives
    ("rank", "", "Process on a GPU: its number in the job; without NCCL's or the environment's word counted from 0."),
    ("file", "", "Number of the trace that it is from, where a run has several."),
    ("pid", "", "Process."),
    ("process", "", "Name of its program."),
    ("host", "", "Name of the machine."),
    ("uuid", "", "Of the GPU."),
    ("collectives", "", "Of the rank; of a cause, those in which it delayed the others."),
    ("late_collectives", "", "Those that the rank was last to start."),
    ("delay_us", "µs", "From the first rank's start to its own in these, summed."),
    ("wait_us", "µs", "From the start of the rank's kernel to the last rank's; of a collective the longest."),
    ("waiting_us", "µs", "The same of all ranks together."),
    ("communication_us", "µs", "In which a communication kernel ran, waiting included."),
    ("overlap_share", "", "Share of that in which another kernel ran too, 0 to 1."),
    ("compute_us", "µs", "In which a kernel ran that does not communicate."),
    (
        "lost_share",
        "",
        "Waiting over the step, 0 to 1: of NVTX ranges that repeat the outermost, else since the collective before.",
    ),
    ("doing", "", "What the late rank did: kernel, communication, copy, call (CUDA, the GPU idle) or host."),
    ("doing_name", "", "Name of the kernel or call."),
    ("range", "", "NVTX range that the thread was in; of a collective the outermost around its launch."),
    ("doing_us", "µs", "For how long, while others waited."),
    ("delay_share", "", "Of the delays that the rank caused, 0 to 1."),
    ("op", "", "What is communicated: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, …"),
    ("communicator", "", "NCCL's number modulo 2^62; null where the trace does not tell."),
    ("number", "", "Which collective of its communicator, from 0."),
    ("message_bytes", "bytes", "Of a rank's message, as NCCL is called with it."),
    ("channels", "", "Blocks of the kernel."),
    ("skew_us", "µs", "From the first rank's start to the last one's."),
    ("transfer_us", "µs", "From the last rank's start to the last one's end."),
    ("waiting_rank", "", "The rank that waited longest."),
    ("late_rank", "", "The rank that started last."),
    (
        "algorithm_gbps",
        "GB/s",
        "Size over transfer_us; of all_gather, reduce_scatter and all_to_all the size of all ranks together.",
    ),
    (
        "bus_gbps",
        "GB/s",
        "algorithm_gbps x 2 (n - 1) / n for an all_reduce of n ranks, x (n - 1) / n for those (nccl-tests).",
    ),
    ("step_us", "µs", "Length of the step on the rank that waited longest."),
    ("arrivals", "", "rank, start_us, wait_us and duration_us of each."),
    ("missing_ranks", "", "Ranks of the communicator without a kernel of it in the trace."),
    (
        "meanwhile",
        "",
        "doing, doing_name, range and us of what the late rank did, of 1 % of skew_us or more.",
    ),
    # Runs
    ("name", "", "The run's folder."),
    ("status", "", "complete, failed, interrupted, or damaged where its manifest cannot be read."),
    ("started", "", "ISO 8601 with offset."),
    ("duration_s", "s", "From the first command to the last table."),
    ("gpu", "", "Name of the GPU."),
    ("fiprof", "", "Version that wrote the run."),
    ("cases", "", "Case ids."),
    ("case_labels", "", "The same in short."),
    ("tools", "", "What was asked for."),
    ("replayed_from", "", "The run whose raw files were read instead of starting the tools."),
    ("path", "", "The run folder."),
    ("intact", "", "Whether the run is as it was made, or as fiprof changed it since."),
    ("files", "", "Files that its run.json names."),
    ("bytes", "bytes", "Of the run folder on disk."),
    ("tables", "", "whole, rebuildable (missing or damaged, raw files intact), lost, or none."),
    (
        "kept",
        "",
        "Why its raw files stay: young, baseline, tagged, recorded, no_tables, nothing or damaged; null: they go.",
    ),
    ("raw_files", "", "Raw files that go."),
    ("freed_bytes", "bytes", "What they take."),
    ("files_found", "", "Files not as made: missing, changed, damaged, planted, extra, withheld, pruned, leftover."),
    ("driver", "", "Version of the GPU's driver."),
    ("command", "", "As it was typed; of older runs the first that was started."),
    ("git", "", "Commit that the program was at, with -dirty after changes."),
    ("user", "", "Who ran it."),
    ("tags", "", "That people gave the run."),
    ("conditions", "", "Clock and cache control under which ncu measured."),
    ("level", "", "Median of the metric between the changes before and after the run; in the metric's unit."),
    ("change_ratio", "", "Where a level begins: it over the one before, less 1."),
    ("change_p", "", "Part of random orders of the same runs that shows a change as large, 0 to 1."),
    # Environment and workloads
    ("what", "", "What a collect needs."),
    ("state", "", "ok, warning or missing."),
    ("found", "", "What is there."),
    ("remedy", "", "What to do about it."),
    ("workload", "", "Name as --kernel takes it."),
    ("summary", "", "What the workload does."),
    ("option", "", "The parameter as an option of fiprof collect."),
    ("default", "", "Its default."),
    ("valid", "", "Its valid range or choices."),
    ("help", "", "What it is."),
)

KEYS: dict[str, Key] = {
    key.key: key
    for key in (
        *(Key(*spec) for spec in _SPECS),
        quantities.STALL_SHARE,
        quantities.BESIDE,
        *quantities.QUANTITIES.values(),
        *(found for found in vars(case_quantities).values() if isinstance(found, case_quantities.CaseQuantity)),
        floors.DRAM_FLOOR,
        floors.LARGEST_SAVING,
    )
}
"""Key -> what it is."""
