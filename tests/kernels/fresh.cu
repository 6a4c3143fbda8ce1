// The kernels of tests/fresh_kernels.py; common.cu says how.

//# rope_table: rotary embedding in place, 32 heads of 128 a token; cosines and sines of 4096 positions from a table
KERNEL(rope_table)
{
    const float4 angle = ((const float4*)in)[(THREAD / 1024 & 4095) * 32 + LANE], x = ((float4*)out)[THREAD];
    ((float4*)out)[THREAD] = make_float4(x.x * angle.x - x.y * angle.y, x.x * angle.y + x.y * angle.x,
        x.z * angle.z - x.w * angle.w, x.z * angle.w + x.w * angle.z);
}

//# dgamma_columns: a normalization's weight and bias gradients, a thread each of 4096 columns
KERNEL(dgamma_columns)
{
    float gamma = 0.0f, beta = 0.0f;
    #pragma unroll 8
    for (int row = 0; row < count / 8192; ++row) {
        const float dy = in[row * 4096 + THREAD];
        gamma += dy * in[count / 2 + row * 4096 + THREAD];
        beta += dy;
    }
    out[THREAD] = gamma;
    out[4096 + THREAD] = beta;
}

//# quantize_fp8_rows: a block a token of 4096: its largest value, then bytes in e4m3
KERNEL(quantize_fp8_rows)
{
    __shared__ float parts[8];
    const float4* row = (const float4*)in + (size_t)blockIdx.x * 1024;
    float4 x[4];
    float most = 1e-12f;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        x[j] = row[j * 256 + threadIdx.x];
        most = fmaxf(most, fmaxf(fmaxf(fabsf(x[j].x), fabsf(x[j].y)), fmaxf(fabsf(x[j].z), fabsf(x[j].w))));
    }
    for (int offset = 16; offset; offset /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    if (LANE == 0) parts[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < 8; ++w) most = fmaxf(most, parts[w]);
    const float scale = 448.0f / most;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        unsigned short low, high;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x[j].y * scale), "f"(x[j].x * scale));
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x[j].w * scale), "f"(x[j].z * scale));
        ((unsigned*)out)[blockIdx.x * 1024 + j * 256 + threadIdx.x] = (unsigned)high << 16 | low;
    }
    if (threadIdx.x == 0) out[count / 4 + blockIdx.x] = most / 448.0f;
}

//# topk_bitonic: 1024 keys a block sorted in shared memory, a barrier a step; the 64 largest are kept
KERNEL(topk_bitonic)
{
    __shared__ float keys[1024];
    for (int k = threadIdx.x; k < 1024; k += 512) keys[k] = in[blockIdx.x * 1024 + k];
    for (int size = 2; size <= 1024; size *= 2)
        for (int stride = size / 2; stride; stride /= 2) {
            __syncthreads();
            const int low = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
            const float a = keys[low], b = keys[low + stride];
            const bool falls = low & size;
            keys[low] = falls ? fmaxf(a, b) : fminf(a, b);
            keys[low + stride] = falls ? fminf(a, b) : fmaxf(a, b);
        }
    __syncthreads();
    if (threadIdx.x < 64) out[blockIdx.x * 64 + threadIdx.x] = keys[1023 - threadIdx.x];
}

//# moe_hot_expert: a block an expert; four of them have 32 times the tokens of the others
KERNEL(moe_hot_expert)
{
    const unsigned tokens = blockIdx.x % 264 == 7 ? 1024 : 32;
    float sum = 0.0f;
    #pragma unroll 4
    for (unsigned k = 0; k < tokens; ++k)
        sum = sum * 0.5f + in[(scrambled(blockIdx.x * 4096 + k) & (count / 256 - 1)) * 256 + threadIdx.x];
    out[THREAD] = sum;
}

//# conv7_shared: 7 x 7 weights over 4096 x 4096, each tap read from a tile in shared memory
KERNEL(conv7_shared)
{
    __shared__ float tile[38][40];
    const int left = blockIdx.x % 128 * 32, top = blockIdx.x / 128 * 32;
    for (int k = threadIdx.x; k < 38 * 38; k += 256)
        tile[k / 38][k % 38] = in[(top + k / 38 & 4095) * 4096 + (left + k % 38 & 4095)];
    __syncthreads();
    #pragma unroll 1
    for (int y = threadIdx.x / 32; y < 32; y += 8) {
        float sum = 0.0f;
        #pragma unroll
        for (int i = 0; i < 7; ++i)
            #pragma unroll
            for (int j = 0; j < 7; ++j) sum += tile[y + i][LANE + j] * ((1 + i * 7 + j) / 1225.0f);
        out[(top + y) * 4096 + left + LANE] = sum;
    }
}

//# bfs_thread_a_vertex: a thread walks a vertex's 2 to 256 edges and marks neighbours not seen yet
KERNEL(bfs_thread_a_vertex)
{
    unsigned* seen = (unsigned*)out;
    const unsigned degree = 2u << (scrambled(THREAD) >> 29), first = scrambled(THREAD ^ 0x5bd1e995u) & (count - 1);
    for (unsigned k = 0; k < degree; ++k) {
        const unsigned edge = first + k & (count - 1);
        const unsigned neighbour = scrambled(__float_as_uint(in[edge]) + edge) & (count - 1);
        if (seen[neighbour] == 0u) seen[neighbour] = THREAD + 1;
    }
}

//# ray_spheres_tail: rays against 256 spheres in shared memory; the grid is a little more than a wave
extern "C" __global__ void __launch_bounds__(1024, 2) ray_spheres_tail(const float* in, float* out, int count, int repeats)
{
    __shared__ float4 spheres[256];
    if (threadIdx.x < 256) spheres[threadIdx.x] = ((const float4*)in)[threadIdx.x];
    __syncthreads();
    float nearest = 1e30f;
    for (int r = 0; r < repeats; ++r) {
        const unsigned word = scrambled(THREAD * 16 + r);
        const float x = (float)(word & 65535) / 65536.0f - 0.5f, y = (float)(word >> 16) / 65536.0f - 0.5f;
        const float length = rsqrtf(x * x + y * y + 1.0f), dx = x * length, dy = y * length, dz = length;
        #pragma unroll 4
        for (int k = 0; k < 256; ++k) {
            const float4 sphere = spheres[k];
            const float z = sphere.z + 8.0f;
            const float along = sphere.x * dx + sphere.y * dy + z * dz;
            const float inside = along * along - (sphere.x * sphere.x + sphere.y * sphere.y + z * z - 0.01f * sphere.w * sphere.w);
            if (inside > 0.0f) nearest = fminf(nearest, along - inside * rsqrtf(inside));
        }
    }
    out[THREAD & (count - 1)] = nearest;
}

//# queens_subtrees: 13 queens; a thread a choice of the first five rows, most of which are not allowed
KERNEL(queens_subtrees)
{
    __shared__ unsigned long long stack[8][256];
    const unsigned all = (1u << 13) - 1;
    unsigned code = THREAD, columns = 0, left = 0, right = 0, solutions = 0;
    if (code >= 371293) return;
    for (int row = 0; row < 5; ++row) {
        const unsigned bit = 1u << code % 13;
        code /= 13;
        if ((columns | left | right) & bit) return;
        columns |= bit;
        left = (left | bit) << 1 & all;
        right = (right | bit) >> 1;
    }
    unsigned open = all & ~(columns | left | right);
    int depth = 0;
    while (true) {
        if (open == 0) {
            if (--depth < 0) break;
            const unsigned long long packed = stack[depth][threadIdx.x];
            columns = packed & all; left = packed >> 16 & all; right = packed >> 32 & all; open = packed >> 48;
            continue;
        }
        const unsigned bit = open & -open;
        open ^= bit;
        if (depth == 7) { ++solutions; continue; }
        stack[depth++][threadIdx.x] = columns | (unsigned long long)left << 16 | (unsigned long long)right << 32
            | (unsigned long long)open << 48;
        columns |= bit;
        left = (left | bit) << 1 & all;
        right = (right | bit) >> 1;
        open = all & ~(columns | left | right);
    }
    out[THREAD & (count - 1)] = (float)solutions;
}

//# lennard_jones_double: forces between particles in double precision, tiles of 256 in shared memory
KERNEL(lennard_jones_double)
{
    __shared__ double xs[256], ys[256], zs[256];
    const int own = THREAD * 3;
    const double x = in[own & (count - 1)], y = in[own + 1 & (count - 1)], z = in[own + 2 & (count - 1)];
    double fx = 0.0, fy = 0.0, fz = 0.0;
    for (int r = 0; r < repeats; ++r) {
        const int other = (r * 256 + threadIdx.x) * 3;
        __syncthreads();
        xs[threadIdx.x] = in[other & (count - 1)];
        ys[threadIdx.x] = in[other + 1 & (count - 1)];
        zs[threadIdx.x] = in[other + 2 & (count - 1)];
        __syncthreads();
        #pragma unroll 4
        for (int k = 0; k < 256; ++k) {
            const double dx = x - xs[k], dy = y - ys[k], dz = z - zs[k];
            const double inverse = 1.0 / (dx * dx + dy * dy + dz * dz + 0.5), sixth = inverse * inverse * inverse;
            const double force = sixth * (2.0 * sixth - 1.0) * inverse;
            fx += force * dx; fy += force * dy; fz += force * dz;
        }
    }
    out[THREAD & (count - 1)] = (float)(fx + fy + fz);
}

//# mma_one_stage: 2048 x 2048 x 4096 halves; tiles of 128 x 128 through one buffer: load, barrier, multiply, barrier
extern "C" __global__ void __launch_bounds__(256, 2) mma_one_stage(const float* in, float* out, int count, int repeats)
{
    __shared__ __align__(16) unsigned left[128][20], right[128][20];
    const int top = blockIdx.x / 16 * 128, side = blockIdx.x % 16 * 128;
    const unsigned *a_rows = (const unsigned*)in + top * 2048, *b_rows = (const unsigned*)in + count / 2 + side * 2048;
    const int warp = threadIdx.x / 32, group = LANE / 4, pair = LANE % 4, row = warp / 4 * 64, column = warp % 4 * 32;
    float sums[4][4][4] = {};
    #pragma unroll 1
    for (int k = 0; k < 2048; k += 16) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int line = (j * 256 + threadIdx.x) / 4, word = threadIdx.x % 4 * 4;
            *(uint4*)&left[line][word] = *(const uint4*)(a_rows + line * 2048 + k + word);
            *(uint4*)&right[line][word] = *(const uint4*)(b_rows + line * 2048 + k + word);
        }
        __syncthreads();
        #pragma unroll
        for (int half = 0; half < 16; half += 8) {
            unsigned b[4][2];
            #pragma unroll
            for (int n = 0; n < 4; ++n) {
                b[n][0] = right[column + n * 8 + group][half + pair];
                b[n][1] = right[column + n * 8 + group][half + pair + 4];
            }
            #pragma unroll
            for (int m = 0; m < 4; ++m) {
                const unsigned a0 = left[row + m * 16 + group][half + pair], a1 = left[row + m * 16 + group + 8][half + pair];
                const unsigned a2 = left[row + m * 16 + group][half + pair + 4];
                const unsigned a3 = left[row + m * 16 + group + 8][half + pair + 4];
                #pragma unroll
                for (int n = 0; n < 4; ++n)
                    asm volatile(
                        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                        : "+f"(sums[m][n][0]), "+f"(sums[m][n][1]), "+f"(sums[m][n][2]), "+f"(sums[m][n][3])
                        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b[n][0]), "r"(b[n][1]));
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int m = 0; m < 4; ++m)
        #pragma unroll
        for (int n = 0; n < 4; ++n) {
            float* to = out + (top + row + m * 16 + group) * 2048 + side + column + n * 8 + pair * 2;
            *(float2*)to = make_float2(sums[m][n][0], sums[m][n][1]);
            *(float2*)(to + 8 * 2048) = make_float2(sums[m][n][2], sums[m][n][3]);
        }
}

//# beam_heap: each thread keeps the 32 largest of its candidates in a heap of its own
KERNEL(beam_heap)
{
    float heap[32];
    for (int i = 0; i < 32; ++i) heap[i] = -1e30f;
    for (int r = 0; r < repeats; ++r) {
        const float x = in[scrambled(r * 4096 + THREAD / 32) * 32 + LANE & (count - 1)];
        if (x <= heap[0]) continue;
        int at = 0;
        while (2 * at + 1 < 32) {
            int child = 2 * at + 1;
            if (child < 31 && heap[child + 1] < heap[child]) ++child;
            if (heap[child] >= x) break;
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = x;
    }
    float sum = 0.0f;
    for (int i = 0; i < 32; ++i) sum = sum * 0.5f + heap[i];
    out[THREAD & (count - 1)] = sum;
}

//# embedding_backward_padding: gradients added to the rows of their tokens; three of four tokens are padding
KERNEL(embedding_backward_padding)
{
    const unsigned token = THREAD / 32, word = scrambled(token);
    const unsigned row = word >> 30 ? 0 : scrambled(word ^ 77u) & (count / 128 - 1);
    #pragma unroll
    for (int j = 0; j < 128; j += 32) atomicAdd(out + row * 128 + j + LANE, in[token * 128 + j + LANE]);
}

//# column_norms_warp: a warp a column of a matrix with 4096 of them, its lanes on 32 rows
KERNEL(column_norms_warp)
{
    const unsigned column = THREAD / 32;
    float sum = 0.0f;
    #pragma unroll 4
    for (int row = LANE; row < count / 4096; row += 32) {
        const float x = in[row * 4096 + column];
        sum += x * x;
    }
    sum = warp_sum(sum);
    if (LANE == 0) out[column] = sqrtf(sum);
}

//# scan_blelloch: the prefix sums of 1024 values up and down a tree in shared memory, without padding
KERNEL(scan_blelloch)
{
    __shared__ float values[1024];
    const int t = threadIdx.x;
    values[t] = in[blockIdx.x * 1024 + t];
    values[t + 512] = in[blockIdx.x * 1024 + t + 512];
    int offset = 1;
    for (int d = 512; d; d /= 2, offset *= 2) {
        __syncthreads();
        if (t < d) values[offset * (2 * t + 2) - 1] += values[offset * (2 * t + 1) - 1];
    }
    if (t == 0) values[1023] = 0.0f;
    for (int d = 1; d < 1024; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            const float low = values[offset * (2 * t + 1) - 1], high = values[offset * (2 * t + 2) - 1];
            values[offset * (2 * t + 1) - 1] = high;
            values[offset * (2 * t + 2) - 1] = low + high;
        }
    }
    __syncthreads();
    out[blockIdx.x * 1024 + t] = values[t];
    out[blockIdx.x * 1024 + t + 512] = values[t + 512];
}

//# box_muller_xorwow: normal numbers: two of XORWOW's, a logarithm, a square root, a sine and a cosine for two
KERNEL(box_muller_xorwow)
{
    unsigned x = scrambled(THREAD), y = x ^ 123456789u, z = x + 362436069u, w = x * 5u + 1u, v = ~x, d = 6615241u;
    float first = 0.0f, second = 0.0f;
    auto draw = [&] {
        const unsigned t = x ^ x >> 2;
        x = y; y = z; z = w; w = v;
        v = v ^ v << 4 ^ t ^ t << 1;
        d += 362437u;
        return (float)(v + d) * 2.3283064e-10f;
    };
    #pragma unroll 5
    for (int r = 0; r < repeats; ++r) {
        float radius, sine, cosine;
        asm("sqrt.approx.f32 %0, %1;" : "=f"(radius) : "f"(-2.0f * __logf(draw() + 1e-10f)));
        __sincosf(draw() * 6.2831853f, &sine, &cosine);
        first += radius * sine;
        second += radius * cosine;
    }
    out[THREAD & (count - 1)] = first + second;
}

//# producers_two_stages: four warps bring tiles of 4 KB into two buffers, the other four add them up
KERNEL(producers_two_stages)
{
    __shared__ float stage[2][1024];
    const int t = threadIdx.x % 128, tiles = count / 1024;
    float sum = 0.0f;
    for (int k = 0, tile = blockIdx.x; tile < tiles; ++k, tile += gridDim.x) {
        const int filled = 1 + k % 2, emptied = 3 + k % 2;
        float* buffer = stage[k % 2];
        if (threadIdx.x < 128) {
            float x[8];
            if (k >= 2) asm volatile("bar.sync %0, 256;" :: "r"(emptied) : "memory");
            #pragma unroll
            for (int j = 0; j < 8; ++j) x[j] = in[tile * 1024 + j * 128 + t];
            #pragma unroll
            for (int j = 0; j < 8; ++j) buffer[j * 128 + t] = x[j];
            asm volatile("bar.arrive %0, 256;" :: "r"(filled) : "memory");
        } else {
            asm volatile("bar.sync %0, 256;" :: "r"(filled) : "memory");
            #pragma unroll
            for (int j = 0; j < 8; ++j) sum = sum * 0.5f + buffer[j * 128 + t];
            if (tile + 2 * gridDim.x < tiles) asm volatile("bar.arrive %0, 256;" :: "r"(emptied) : "memory");
        }
    }
    if (threadIdx.x >= 128) out[blockIdx.x * 128 + t] = sum;
}

//# one_warp_blocks: scale and add with 32 threads a block, an element a thread
KERNEL(one_warp_blocks)
{
    out[THREAD] = in[THREAD] * 1.5f + 0.25f;
}

//# chacha_blocks: blocks of ChaCha20's key stream, folded
KERNEL(chacha_blocks)
{
    unsigned fold = 0;
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        unsigned x[16];
        #pragma unroll
        for (int j = 0; j < 16; ++j) x[j] = scrambled(j) ^ (j == 12 ? THREAD : 0u) ^ (j == 13 ? r : 0u) ^ (j == 4 ? fold : 0u);
        #pragma unroll 1
        for (int round = 0; round < 10; ++round) {
            auto quarter = [&](int a, int b, int c, int d) {
                x[a] += x[b]; x[d] ^= x[a]; x[d] = x[d] << 16 | x[d] >> 16;
                x[c] += x[d]; x[b] ^= x[c]; x[b] = x[b] << 12 | x[b] >> 20;
                x[a] += x[b]; x[d] ^= x[a]; x[d] = x[d] << 8 | x[d] >> 24;
                x[c] += x[d]; x[b] ^= x[c]; x[b] = x[b] << 7 | x[b] >> 25;
            };
            quarter(0, 4, 8, 12); quarter(1, 5, 9, 13); quarter(2, 6, 10, 14); quarter(3, 7, 11, 15);
            quarter(0, 5, 10, 15); quarter(1, 6, 11, 12); quarter(2, 7, 8, 13); quarter(3, 4, 9, 14);
        }
        #pragma unroll
        for (int j = 0; j < 16; ++j) fold = fold * 3 ^ x[j];
    }
    ((unsigned*)out)[THREAD & (count - 1)] = fold;
}

//# hamming_codes: the nearest of codes of 256 bits to each thread's own
KERNEL(hamming_codes)
{
    __shared__ uint4 codes[512];
    unsigned own[8], best = ~0u;
    #pragma unroll
    for (int j = 0; j < 8; ++j) own[j] = scrambled(THREAD * 8 + j);
    for (int r = 0; r < repeats; ++r) {
        __syncthreads();
        for (int k = threadIdx.x; k < 2048; k += 256)
            ((unsigned*)codes)[k] = scrambled(__float_as_uint(in[(r * 2048 + k) & (count - 1)]) + k);
        __syncthreads();
        #pragma unroll 4
        for (int k = 0; k < 256; ++k) {
            const uint4 a = codes[2 * k], b = codes[2 * k + 1];
            const unsigned distance = __popc(own[0] ^ a.x) + __popc(own[1] ^ a.y) + __popc(own[2] ^ a.z) + __popc(own[3] ^ a.w)
                + __popc(own[4] ^ b.x) + __popc(own[5] ^ b.y) + __popc(own[6] ^ b.z) + __popc(own[7] ^ b.w);
            best = min(best, distance << 20 | (r * 256 + k));
        }
    }
    ((unsigned*)out)[THREAD & (count - 1)] = best;
}

//# recurrent_step_l2: a block a sequence: each step reads all of 4 MiB of weights, 16 bytes a lane
KERNEL(recurrent_step_l2)
{
    __shared__ float state[1024];
    __shared__ float4 parts[4][256];
    const int group = threadIdx.x % 256, slice = threadIdx.x / 256;
    state[threadIdx.x] = in[blockIdx.x * 1024 + threadIdx.x & (count - 1)];
    for (int r = 0; r < repeats; ++r) {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        __syncthreads();
        #pragma unroll 4
        for (int k = 0; k < 256; ++k) {
            const int row = slice * 256 + (k + blockIdx.x * 37 & 255);
            const float4 weight = ((const float4*)in)[row * 256 + group];
            const float x = state[row];
            sum.x += weight.x * x; sum.y += weight.y * x; sum.z += weight.z * x; sum.w += weight.w * x;
        }
        parts[slice][group] = sum;
        __syncthreads();
        const float* all = (const float*)parts;
        state[threadIdx.x] = tanhf(all[threadIdx.x] + all[threadIdx.x + 1024] + all[threadIdx.x + 2048] + all[threadIdx.x + 3072]);
    }
    out[THREAD & (count - 1)] = state[threadIdx.x];
}

//# splitk_in_turn: 32 blocks add their parts to a tile of 16 KB one after the other, each waits for its turn
KERNEL(splitk_in_turn)
{
    const unsigned tile = blockIdx.x / 32, part = blockIdx.x % 32;
    volatile unsigned* turn = (unsigned*)out + count - 4096 + tile * 32;
    float4* to = (float4*)out + tile * 1024 + threadIdx.x;
    float4 sum[4];
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float4 a = ((const float4*)in)[blockIdx.x * 2048 + j * 256 + threadIdx.x & (count / 4 - 1)];
        const float4 b = ((const float4*)in)[blockIdx.x * 2048 + 1024 + j * 256 + threadIdx.x & (count / 4 - 1)];
        sum[j] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
    if (threadIdx.x == 0)
        while (*turn % 32 != part) {}
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float4 old = __ldcg(to + j * 256);
        __stcg(to + j * 256, make_float4(old.x + sum[j].x, old.y + sum[j].y, old.z + sum[j].z, old.w + sum[j].w));
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *turn = *turn + 1;
}
