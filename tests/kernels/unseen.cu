// The kernels of tests/unseen_kernels.py; common.cu says how.

//# swiglu_gate: silu of one half, times the other, 16 bytes a lane
KERNEL(swiglu_gate)
{
    const float4 gate = ((const float4*)in)[THREAD], up = ((const float4*)in)[count / 8 + THREAD];
    float4 result;
    result.x = gate.x / (1.0f + __expf(-gate.x)) * up.x;
    result.y = gate.y / (1.0f + __expf(-gate.y)) * up.y;
    result.z = gate.z / (1.0f + __expf(-gate.z)) * up.z;
    result.w = gate.w / (1.0f + __expf(-gate.w)) * up.w;
    ((float4*)out)[THREAD] = result;
}

//# decode_few_splits: attention of one token: a block a head and quarter of the cache, 2048 keys and values of 128
KERNEL(decode_few_splits)
{
    __shared__ float4 sums[8][32];
    __shared__ float largest[8], totals[8];
    const int warp = threadIdx.x / 32;
    const float4* keys = (const float4*)in + (size_t)blockIdx.x * 2048 * 32;
    const float4* values = keys + count / 8;
    const float4 q = ((const float4*)in)[LANE];
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float most = -1e30f, total = 0.0f;
    #pragma unroll 2
    for (int k = warp; k < 2048; k += 8) {
        const float4 key = keys[k * 32 + LANE], value = values[k * 32 + LANE];
        const float score = 0.088f * warp_sum(q.x * key.x + q.y * key.y + q.z * key.z + q.w * key.w);
        const float next = fmaxf(most, score), old = __expf(most - next), weight = __expf(score - next);
        sum.x = sum.x * old + weight * value.x; sum.y = sum.y * old + weight * value.y;
        sum.z = sum.z * old + weight * value.z; sum.w = sum.w * old + weight * value.w;
        total = total * old + weight;
        most = next;
    }
    sums[warp][LANE] = sum;
    if (LANE == 0) { largest[warp] = most; totals[warp] = total; }
    __syncthreads();
    if (warp == 0) {
        for (int w = 1; w < 8; ++w) {
            const float next = fmaxf(most, largest[w]), old = __expf(most - next), other = __expf(largest[w] - next);
            const float4 part = sums[w][LANE];
            sum.x = sum.x * old + part.x * other; sum.y = sum.y * old + part.y * other;
            sum.z = sum.z * old + part.z * other; sum.w = sum.w * old + part.w * other;
            total = total * old + totals[w] * other;
            most = next;
        }
        ((float4*)out)[blockIdx.x * 32 + LANE] = make_float4(sum.x / total, sum.y / total, sum.z / total, sum.w / total);
        if (LANE == 0) out[8192 + blockIdx.x] = most + __logf(total);
    }
}

//# bias_gradient_atomics: the sum of 1024 columns, an atomic an element
KERNEL(bias_gradient_atomics)
{
    atomicAdd(out + THREAD % 1024, in[THREAD]);
}

//# dequantize_bytes: int8 to float with a scale for each 128, an element a thread
KERNEL(dequantize_bytes)
{
    out[THREAD] = (float)((const signed char*)in)[THREAD] * in[count / 2 + THREAD / 128];
}

//# topk_thread_a_row: the four largest of 512 by insertion, a thread a row
KERNEL(topk_thread_a_row)
{
    const float* row = in + (size_t)THREAD * 512;
    float best[4] = {-1e30f, -1e30f, -1e30f, -1e30f};
    for (int k = 0; k < 512; ++k) {
        float x = row[k];
        if (x > best[3]) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float low = fminf(x, best[i]);
                best[i] = fmaxf(x, best[i]);
                x = low;
            }
        }
    }
    ((float4*)out)[THREAD] = make_float4(best[0], best[1], best[2], best[3]);
}

//# sample_one_thread: a block a row of 32768 logits; their sum by all threads, the place of the drawn one by the first
KERNEL(sample_one_thread)
{
    __shared__ float parts[8];
    __shared__ int drawn;
    const float* row = in + (size_t)blockIdx.x * 32768;
    float sum = 0.0f;
    for (int k = threadIdx.x; k < 32768; k += 256) sum += __expf(row[k]);
    sum = warp_sum(sum);
    if (LANE == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0.0f, reached = 0.0f;
        for (int w = 0; w < 8; ++w) total += parts[w];
        int k = 0;
        while (k < 32767 && (reached += __expf(row[k])) < 0.6f * total) ++k;
        drawn = k;
    }
    __syncthreads();
    if (threadIdx.x < 32) out[blockIdx.x * 32 + threadIdx.x] = row[drawn] + threadIdx.x;
}

//# jacobi_3d: seven points of 512 x 512 x 256
KERNEL(jacobi_3d)
{
    const int x = THREAD % 512, y = THREAD / 512 % 512, z = THREAD / 262144;
    if (x == 0 || x == 511 || y == 0 || y == 511 || z == 0 || z == 255) return;
    const float* at = in + THREAD;
    out[THREAD] = 0.4f * at[0] + 0.1f * (at[-1] + at[1] + at[-512] + at[512] + at[-262144] + at[262144]);
}

//# mma_from_global: 2048 x 2048 halves; each warp reads its fragments from global memory, without a tile in shared memory
KERNEL(mma_from_global)
{
    const unsigned* left = (const unsigned*)in;
    const unsigned* right = left + 2048 * 1024;
    const int warp = threadIdx.x / 32, group = LANE / 4, pair = LANE % 4;
    const int row = (blockIdx.x / 64) * 128 + warp * 16 + group, column = (blockIdx.x % 64) * 32 + group;
    float sums[4][4] = {};
    for (int k = 0; k < 1024; k += 8) {
        unsigned a[4];
        a[0] = left[row * 1024 + k + pair];
        a[1] = left[(row + 8) * 1024 + k + pair];
        a[2] = left[row * 1024 + k + 4 + pair];
        a[3] = left[(row + 8) * 1024 + k + 4 + pair];
        #pragma unroll
        for (int n = 0; n < 4; ++n) {
            const unsigned b0 = right[(column + n * 8) * 1024 + k + pair];
            const unsigned b1 = right[(column + n * 8) * 1024 + k + 4 + pair];
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
        }
    }
    #pragma unroll
    for (int n = 0; n < 4; ++n) {
        const int to = (blockIdx.x % 64) * 32 + n * 8 + pair * 2;
        *(float2*)(out + row * 2048 + to) = make_float2(sums[n][0], sums[n][1]);
        *(float2*)(out + (row + 8) * 2048 + to) = make_float2(sums[n][2], sums[n][3]);
    }
}

//# sum_one_load: a grid-stride sum, a load of 4 bytes in flight a thread
KERNEL(sum_one_load)
{
    float sum = 0.0f;
    #pragma unroll 1
    for (int k = THREAD; k < count; k += gridDim.x * blockDim.x) sum += in[k];
    sum = warp_sum(sum);
    if (LANE == 0) atomicAdd(out, sum);
}

//# histogram_bytes: 256 bins of a block in shared memory, four bytes a word
KERNEL(histogram_bytes)
{
    __shared__ unsigned bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    for (int k = THREAD; k < count; k += gridDim.x * blockDim.x) {
        const unsigned word = scrambled(__float_as_uint(in[k]) ^ k);
        atomicAdd(bins + (word & 255), 1u);
        atomicAdd(bins + (word >> 8 & 255), 1u);
        atomicAdd(bins + (word >> 16 & 255), 1u);
        atomicAdd(bins + (word >> 24), 1u);
    }
    __syncthreads();
    atomicAdd((unsigned*)out + threadIdx.x, bins[threadIdx.x]);
}

//# hash_insert: different keys into a half-full table with open addressing
KERNEL(hash_insert)
{
    unsigned* table = (unsigned*)out;
    const unsigned key = scrambled(THREAD) | 1u;
    unsigned slot = scrambled(key ^ 0x5bd1e995u) & (count - 1);
    while (true) {
        const unsigned old = atomicCAS(table + slot, 0u, key);
        if (old == 0u || old == key) break;
        slot = (slot + 1) & (count - 1);
    }
}

//# binary_search: down a tree of 4 million nodes that lies in L2, a level a load
KERNEL(binary_search)
{
    unsigned places = 0;
    for (int r = 0; r < repeats; ++r) {
        const float wanted = (float)(scrambled(THREAD * 64 + r) >> 8) * (4.0f / 16777216.0f) - 2.0f;
        unsigned node = 1;
        while (node < (unsigned)count) node = 2 * node + (wanted > in[node]);
        places += node;
    }
    out[THREAD & (count - 1)] = (float)places;
}

//# csr_warp_short_rows: a sparse matrix with 5 to 8 values a row, a warp a row
KERNEL(csr_warp_short_rows)
{
    const unsigned row = THREAD / 32, length = 5 + (scrambled(row) >> 30);
    float sum = 0.0f;
    for (unsigned k = LANE; k < length; k += 32) {
        const unsigned column = scrambled(__float_as_uint(in[count / 2 + row * 8 + k]) + k) & 65535;
        sum += in[row * 8 + k] * in[column];
    }
    sum = warp_sum(sum);
    if (LANE == 0) out[row] = sum;
}

//# compact_warp_ticket: the positive values, packed; a ticket a warp from one counter
KERNEL(compact_warp_ticket)
{
    const float x = in[THREAD];
    const unsigned kept = __ballot_sync(~0u, x > 0.0f);
    unsigned first = 0;
    if (LANE == 0) first = atomicAdd((unsigned*)out, __popc(kept));
    first = __shfl_sync(~0u, first, 0);
    if (x > 0.0f) out[64 + ((first + __popc(kept & (1u << LANE) - 1)) & (count / 2 - 1))] = x;
}

//# monte_carlo_philox: points in a circle, by Philox with ten rounds
KERNEL(monte_carlo_philox)
{
    unsigned inside = 0;
    for (int r = 0; r < repeats; ++r) {
        unsigned a = THREAD, b = r, c = 0, d = 0, first = 0x12345678u, second = 0x9abcdef0u;
        #pragma unroll
        for (int round = 0; round < 10; ++round) {
            const unsigned high0 = __umulhi(0xD2511F53u, a), low0 = 0xD2511F53u * a;
            const unsigned high1 = __umulhi(0xCD9E8D57u, c), low1 = 0xCD9E8D57u * c;
            a = high1 ^ b ^ first; b = low1; c = high0 ^ d ^ second; d = low0;
            first += 0x9E3779B9u; second += 0xBB67AE85u;
        }
        const float scale = 2.3283064e-10f, x = a * scale, y = b * scale, z = c * scale, w = d * scale;
        inside += (x * x + y * y < 1.0f) + (z * z + w * w < 1.0f);
    }
    out[THREAD & (count - 1)] = (float)inside;
}

//# big_tiles_tail: tiles of 128 KB, so that a block fills a multiprocessor; a wave and a quarter of them
KERNEL(big_tiles_tail)
{
    extern __shared__ float tile[];
    for (int k = threadIdx.x; k < 32768; k += 1024) tile[k] = in[(blockIdx.x * 32768 + k) & (count - 1)];
    __syncthreads();
    float x = 0.0f, y = 1.0f, z = 2.0f, w = 3.0f;
    for (int r = 0; r < repeats; ++r) {
        const float value = tile[(threadIdx.x + r * 32) & 32767];
        x = x * 0.5f + value; y = y * value + 0.5f; z = z * 0.25f + value; w = w * value + 0.125f;
        x = x * y + 0.25f; z = z * w + 0.75f;
    }
    out[THREAD & (count - 1)] = x + y + z + w;
}

//# causal_rows: row i looks at i + 1 tiles of 64 keys
KERNEL(causal_rows)
{
    float sum = 0.0f;
    #pragma unroll 4
    for (int k = 0; k < (blockIdx.x + 1) * 64; ++k) sum = sum * 0.99f + in[(k * 256 + threadIdx.x) & (count - 1)];
    out[THREAD] = sum;
}

//# jacobian_spills: 12 x 12 in a thread's registers, of which there are 64
extern "C" __global__ void __launch_bounds__(512, 2) jacobian_spills(const float* in, float* out, int count, int repeats)
{
    float a[12][12];
    #pragma unroll
    for (int i = 0; i < 144; ++i) a[i / 12][i % 12] = in[(i * 65536 + THREAD) & (count - 1)];
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int pivot = 0; pivot < 12; ++pivot) {
            const float scale = __frcp_rn(a[pivot][pivot] + 2.0f);
            #pragma unroll
            for (int i = 0; i < 12; ++i) {
                if (i == pivot) continue;
                const float factor = a[i][pivot] * scale;
                #pragma unroll
                for (int j = 0; j < 12; ++j) a[i][j] -= factor * a[pivot][j];
            }
        }
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 144; ++i) sum += a[i / 12][i % 12] * (float)i;
    out[THREAD & (count - 1)] = sum;
}

//# collatz_lengths: the steps to 1 of successive numbers
KERNEL(collatz_lengths)
{
    unsigned steps = 0;
    for (int r = 0; r < repeats; ++r) {
        unsigned long long n = THREAD + r * 1048576ull + 1;
        while (n != 1) {
            n = n & 1 ? 3 * n + 1 : n >> 1;
            ++steps;
        }
    }
    out[THREAD & (count - 1)] = (float)steps;
}

//# smith_waterman: 256 columns and 1024 rows, an antidiagonal a step, a barrier between
KERNEL(smith_waterman)
{
    __shared__ float edge[2][257];
    __shared__ unsigned char letters[1024];
    for (int k = threadIdx.x; k < 1024; k += 256)
        letters[k] = scrambled(__float_as_uint(in[(blockIdx.x * 1024 + k) & (count - 1)])) >> 30;
    const unsigned char mine = scrambled(__float_as_uint(in[THREAD & (count - 1)])) >> 30;
    if (threadIdx.x < 2) edge[threadIdx.x][0] = 0.0f;
    float above = 0.0f, diagonal = 0.0f, best = 0.0f;
    __syncthreads();
    for (int step = 0; step < 1279; ++step) {
        const int row = step - (int)threadIdx.x;
        if (row >= 0 && row < 1024) {
            const float left = threadIdx.x ? edge[step + 1 & 1][threadIdx.x] : 0.0f;
            const float match = diagonal + (letters[row] == mine ? 3.0f : -2.0f);
            above = fmaxf(fmaxf(match, 0.0f), fmaxf(above, left) - 1.0f);
            diagonal = left;
            best = fmaxf(best, above);
            edge[step & 1][threadIdx.x + 1] = above;
        }
        __syncthreads();
    }
    out[THREAD & (count - 1)] = best;
}

//# fft_pass: 16 complex values a thread, which lie side by side in shared memory
KERNEL(fft_pass)
{
    __shared__ float2 values[4096];
    for (int k = threadIdx.x; k < 4096; k += 256) values[k] = ((const float2*)in)[(blockIdx.x * 4096 + k) & (count / 2 - 1)];
    __syncthreads();
    for (int r = 0; r < repeats; ++r) {
        float2 x[16];
        #pragma unroll
        for (int j = 0; j < 16; ++j) x[j] = values[threadIdx.x * 16 + j];
        #pragma unroll
        for (int half = 8; half; half /= 2)
            #pragma unroll
            for (int j = 0; j < 16; ++j)
                if (!(j & half)) {
                    const float2 p = x[j], q = x[j + half];
                    x[j] = make_float2(0.7f * (p.x + q.x), 0.7f * (p.y + q.y));
                    x[j + half] = make_float2(0.7f * (p.x - q.y), 0.7f * (p.y + q.x));
                }
        #pragma unroll
        for (int j = 0; j < 16; ++j) values[threadIdx.x * 16 + j] = x[j];
        __syncthreads();
    }
    for (int k = threadIdx.x; k < 4096; k += 256) ((float2*)out)[(blockIdx.x * 4096 + k) & (count / 2 - 1)] = values[k];
}

//# embedding_bag: the sum of 64 random rows of 512 bytes, from a table of 16 MiB; a warp a bag
KERNEL(embedding_bag)
{
    const unsigned bag = THREAD / 32;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    #pragma unroll 8
    for (unsigned k = 0; k < 64; ++k) {
        const unsigned row = scrambled(bag * 64 + k) & (count / 128 - 1);
        const float4 value = ((const float4*)in)[row * 32 + LANE];
        sum.x += value.x; sum.y += value.y; sum.z += value.z; sum.w += value.w;
    }
    ((float4*)out)[THREAD & (count / 4 - 1)] = sum;
}

//# gamma_lut: four bytes a word, each looked up in a table in constant memory
__constant__ float gamma_values[256];
KERNEL(gamma_lut)
{
    const unsigned word = scrambled(__float_as_uint(in[THREAD]) ^ THREAD);
    out[THREAD] = gamma_values[word & 255] + gamma_values[word >> 8 & 255] + gamma_values[word >> 16 & 255]
        + gamma_values[word >> 24];
}

//# cluster_neighbours: each block reads the next block's shared memory, a word a lane, over and over
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_neighbours(const float* in, float* out, int count, int repeats)
{
    __shared__ float tile[4096];
    for (int k = threadIdx.x; k < 4096; k += 256) tile[k] = in[(blockIdx.x * 4096 + k) & (count - 1)];
    unsigned own = (unsigned)__cvta_generic_to_shared(tile), other;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"((blockIdx.x + 1) % 4));
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    float sum = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int k = 0; k < 16; ++k) {
            float value;
            asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(other + (k * 256 + threadIdx.x) * 4));
            sum = sum * 0.5f + value;
        }
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    out[THREAD & (count - 1)] = sum;
}

//# argmax_short_rows: a warp a row of 32 values
KERNEL(argmax_short_rows)
{
    float value = in[THREAD];
    int place = LANE;
    for (int offset = 16; offset; offset /= 2) {
        const float other = __shfl_xor_sync(~0u, value, offset);
        const int at = __shfl_xor_sync(~0u, place, offset);
        if (other > value || (other == value && at < place)) { value = other; place = at; }
    }
    if (LANE == 0) ((int*)out)[THREAD / 32] = place;
}
