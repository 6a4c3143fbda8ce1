// The kernels of tests/serving_kernels.py; common.cu says how.

//# int8_gemv_bytes: a warp a row of 16384 int8 weights, a byte a lane
KERNEL(int8_gemv_bytes)
{
    const signed char* row = (const signed char*)in + (size_t)(THREAD / 32) * 16384;
    float sum = 0.0f;
    #pragma unroll 4
    for (int k = LANE; k < 16384; k += 32) sum += (float)row[k] * in[k];
    sum = warp_sum(sum);
    if (LANE == 0) out[THREAD / 32] = sum;
}

//# nearest_code: a block a vector, against 131072 codes of 8 floats that lie in L2, each from another code on
KERNEL(nearest_code)
{
    const float4* codes = (const float4*)in;
    const unsigned first = scrambled(blockIdx.x) & 262112;
    const float4 mine = codes[first + LANE % 2];
    float best = 1e30f;
    #pragma unroll 4
    for (unsigned k = threadIdx.x; k < 262144; k += blockDim.x) {
        const float4 code = __ldcg(codes + (first + k & 262143));
        const float x = code.x - mine.x, y = code.y - mine.y, z = code.z - mine.z, w = code.w - mine.w;
        float distance = x * x + y * y + z * z + w * w;
        distance += __shfl_xor_sync(~0u, distance, 1);
        best = fminf(best, distance);
    }
    out[THREAD] = best;
}

//# rope_powers: rotary embedding that computes its frequencies and angles for each pair
KERNEL(rope_powers)
{
    float2 pair = ((const float2*)in)[THREAD];
    const int dimension = THREAD % 64, position = THREAD / 64 / 32;
    float sine, cosine;
    sincosf((float)(position % 4096) * powf(10000.0f, -(float)dimension / 64.0f), &sine, &cosine);
    ((float2*)out)[THREAD] = make_float2(pair.x * cosine - pair.y * sine, pair.x * sine + pair.y * cosine);
}

//# rmsnorm_few_rows: a block a row of 8192
KERNEL(rmsnorm_few_rows)
{
    __shared__ float sums[8];
    const float* row = in + (size_t)blockIdx.x * 8192;
    float sum = 0.0f;
    for (int k = threadIdx.x; k < 8192; k += 256) sum += row[k] * row[k];
    sum = warp_sum(sum);
    if (LANE == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < 8; ++w) sum += sums[w];
    const float scale = rsqrtf(sum / 8192.0f + 1e-6f);
    for (int k = threadIdx.x; k < 8192; k += 256) out[(size_t)blockIdx.x * 8192 + k] = row[k] * scale;
}

//# candidates: sampling's candidates above a threshold, each with a ticket from one of two counters
KERNEL(candidates)
{
    const float logit = in[THREAD];
    if (logit > 0.5f) {
        const unsigned ticket = atomicAdd((unsigned*)out + (__float_as_uint(logit) >> 30 & 1), 1u);
        out[64 + (ticket & (count / 2 - 1))] = logit;
    }
}

//# kv_append_strided: new keys into pages that keep a dimension's 16 tokens together: 2 bytes in 32
KERNEL(kv_append_strided)
{
    const unsigned token = THREAD / 1024, dimension = THREAD % 1024, page = scrambled(token) & (count / 8192 - 1);
    ((unsigned short*)out)[(size_t)page * 16384 + dimension * 16 + token % 16] = ((const unsigned short*)in)[THREAD];
}

//# paged_gather_halves: a page table, then a value of 2 bytes a lane
KERNEL(paged_gather_halves)
{
    const unsigned short* pages = (const unsigned short*)in;
    for (unsigned at = THREAD; at < (unsigned)count; at += gridDim.x * blockDim.x) {
        const unsigned page = scrambled(__float_as_uint(in[at / 1024])) & (count / 512 - 1);
        ((unsigned short*)out)[at] = pages[(size_t)page * 1024 + at % 1024];
    }
}

//# embedding_gather: a block a token, rows of 16 KB, 16 bytes a lane
KERNEL(embedding_gather)
{
    const size_t row = scrambled(blockIdx.x) & (count / 4096 - 1);
    const float4* from = (const float4*)in + row * 1024;
    float4* to = (float4*)out + (size_t)blockIdx.x * 1024;
    #pragma unroll
    for (int k = 0; k < 4; ++k) to[k * 256 + threadIdx.x] = from[k * 256 + threadIdx.x];
}

//# splitk_reduce: the sum of 16 partial results
KERNEL(splitk_reduce)
{
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 16; ++k) sum += in[(size_t)k * (count / 16) + THREAD];
    out[THREAD] = sum;
}

//# int4_gemv_alu: eight weights a word, each shifted, masked and converted
KERNEL(int4_gemv_alu)
{
    const unsigned* row = (const unsigned*)in + (size_t)(THREAD / 32) * 1024;
    float sum = 0.0f;
    #pragma unroll 4
    for (int k = LANE; k < 1024; k += 32) {
        const unsigned word = row[k];
        #pragma unroll
        for (int i = 0; i < 8; ++i) sum += (float)((int)(word >> 4 * i & 15) - 8) * (0.5f + i);
    }
    sum = warp_sum(sum);
    if (LANE == 0) out[THREAD / 32] = sum;
}

//# softmax_rows: a block a row of 1024 in registers, expf, two block-wide reductions
KERNEL(softmax_rows)
{
    __shared__ float parts[2][8];
    float4 x = ((const float4*)in)[THREAD];
    float most = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
    for (int offset = 16; offset; offset /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    if (LANE == 0) parts[0][threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < 8; ++w) most = fmaxf(most, parts[0][w]);
    x = make_float4(expf(x.x - most), expf(x.y - most), expf(x.z - most), expf(x.w - most));
    float sum = warp_sum(x.x + x.y + x.z + x.w);
    if (LANE == 0) parts[1][threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < 8; ++w) sum += parts[1][w];
    ((float4*)out)[THREAD] = make_float4(x.x / sum, x.y / sum, x.z / sum, x.w / sum);
}

//# histogram_one_bank: a warp's own 64 counters, 32 words apart
KERNEL(histogram_one_bank)
{
    extern __shared__ int bins[];
    for (int k = threadIdx.x; k < 64 * 32; k += blockDim.x) bins[k] = 0;
    __syncthreads();
    for (int i = THREAD; i < count; i += gridDim.x * blockDim.x)
        atomicAdd(bins + (scrambled(__float_as_uint(in[i]) ^ i) >> 26) * 32, 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd((int*)out + threadIdx.x, bins[threadIdx.x * 32]);
}

//# transpose_padded: through a padded tile
KERNEL(transpose_padded)
{
    __shared__ float tile[32][33];
    const int column = (blockIdx.x % 128) * 32, row = (blockIdx.x / 128) * 32, x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int j = 0; j < 32; j += 8) tile[y + j][x] = in[(row + y + j) * 4096 + column + x];
    __syncthreads();
    for (int j = 0; j < 32; j += 8) out[(column + y + j) * 4096 + row + x] = tile[x][y + j];
}

//# matmul_naive: one result a thread, both operands from L1; 2048 x 2048
KERNEL(matmul_naive)
{
    const int row = THREAD / 2048, column = THREAD % 2048;
    float sum = 0.0f;
    for (int k = 0; k < 2048; ++k) sum += in[row * 2048 + k] * in[k * 2048 + column];
    out[THREAD] = sum;
}

//# tail_of_a_wave: blocks that take an SM's half each, a twentieth of a wave too many
KERNEL(tail_of_a_wave)
{
    float x = in[THREAD & (count - 1)], y = x + 1.0f, z = x + 2.0f, w = x + 3.0f;
    for (int r = 0; r < repeats; ++r) {
        x = x * 0.999f + 0.1f; y = y * 0.999f + 0.1f; z = z * 0.999f + 0.1f; w = w * 0.999f + 0.1f;
    }
    out[THREAD & (count - 1)] = x + y + z + w;
}

//# grid_barriers: the whole grid spins on a counter after each small step
KERNEL(grid_barriers)
{
    unsigned* counter = (unsigned*)out + count - 1;
    float x = in[THREAD];
    for (int r = 0; r < repeats; ++r) {
        x = x * 0.5f + in[(THREAD + r * 256) & (count - 1)];
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            const unsigned ticket = atomicAdd(counter, 1u), target = (ticket / gridDim.x + 1) * gridDim.x;
            while (*(volatile unsigned*)counter < target) { }
            __threadfence();
        }
        __syncthreads();
    }
    out[THREAD] = x;
}

//# spilled_tile: 96 sums a thread where 64 registers are to be had
extern "C" __global__ void __launch_bounds__(1024) spilled_tile(const float* in, float* out, int count, int repeats)
{
    float sums[96];
    #pragma unroll
    for (int i = 0; i < 96; ++i) sums[i] = in[(THREAD + i * 1024) & (count - 1)];
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        const float x = in[(THREAD + r * 32) & (count - 1)];
        #pragma unroll
        for (int i = 0; i < 96; ++i) sums[i] = sums[i] * x + sums[(i + 7) % 96];
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 96; ++i) sum += sums[i] * (float)i;
    out[THREAD & (count - 1)] = sum;
}

//# divergent_formats: eight kinds of work by lane
KERNEL(divergent_formats)
{
    float x = in[THREAD & (count - 1)];
    const unsigned kind = scrambled(THREAD) >> 29;
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        switch (kind) {
        case 0: for (int i = 0; i < 16; ++i) x = x * 0.5f + 1.0f; break;
        case 1: for (int i = 0; i < 16; ++i) x = (x - 1.0f) * x; break;
        case 2: for (int i = 0; i < 16; ++i) x = fminf(x * 0.25f, 3.0f) + 2.0f; break;
        case 3: for (int i = 0; i < 16; ++i) x = x * x - 0.75f; break;
        case 4: for (int i = 0; i < 16; ++i) x = fmaxf(x, -2.0f) * 0.125f + 0.3f; break;
        case 5: for (int i = 0; i < 16; ++i) x = x * 0.9f - 0.1f; break;
        case 6: for (int i = 0; i < 16; ++i) x = fabsf(x) * 0.7f + 0.2f; break;
        default: for (int i = 0; i < 16; ++i) x = (x + 3.0f) * 0.2f; break;
        }
    }
    out[THREAD & (count - 1)] = x;
}

//# runtime_indices: a copy whose index is taken apart by sizes known at run time alone
KERNEL(runtime_indices)
{
    const unsigned sizes = repeats, index = THREAD, a = index % sizes, b = index / sizes % (sizes + 1);
    const unsigned c = index / sizes / (sizes + 1) % (sizes + 2), d = index / sizes / (sizes + 1) / (sizes + 2);
    out[index] = in[((d * (sizes + 2) + c) * (sizes + 1) + b) * sizes + a];
}

//# residual_tiny: 8 rows of 4096
KERNEL(residual_tiny)
{
    out[THREAD] = in[THREAD] + in[THREAD + 32768];
}
