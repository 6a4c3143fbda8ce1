// The kernels of tests/last_kernels.py; common.cu says how.

//# rgba_to_luma: four bytes a pixel to one, eight pixels a thread
KERNEL(rgba_to_luma)
{
    const unsigned at = blockIdx.x * 512 + threadIdx.x;
    const uint4 first = ((const uint4*)in)[at], second = ((const uint4*)in)[at + 256];
    auto luma = [](unsigned p) { return (p & 255) * 77 + (p >> 8 & 255) * 150 + (p >> 16 & 255) * 29 >> 8; };
    auto four = [&](uint4 p) { return luma(p.x) | luma(p.y) << 8 | luma(p.z) << 16 | luma(p.w) << 24; };
    ((unsigned*)out)[at] = four(first);
    ((unsigned*)out)[at + 256] = four(second);
}

//# merge_path_global: two sorted lists into one: a thread finds where its 16 results begin and merges them, all in global memory
KERNEL(merge_path_global)
{
    const int half = count / 2, diagonal = THREAD * 16;
    auto left = [&](int k) { return 2.0f * k + in[k]; };
    auto right = [&](int k) { return 2.0f * k + in[half + k]; };
    int low = max(0, diagonal - half), high = min(diagonal, half);
    while (low < high) {
        const int middle = (low + high) / 2;
        if (left(middle) <= right(diagonal - 1 - middle)) low = middle + 1; else high = middle;
    }
    int i = low, j = diagonal - low;
    #pragma unroll 1
    for (int k = 0; k < 16; ++k) {
        const float x = left(min(i, half - 1)), y = right(min(j, half - 1));
        const bool from_left = j >= half || (i < half && x <= y);
        out[diagonal + k] = from_left ? x : y;
        i += from_left;
        j += !from_left;
    }
}

//# radix_scatter: keys to the buckets of their first byte, each straight to its place
KERNEL(radix_scatter)
{
    const unsigned key = scrambled(__float_as_uint(in[THREAD]) ^ THREAD);
    ((unsigned*)out)[(key >> 24) * (count / 256) + blockIdx.x] = key;
}

//# aes_ttables: AES in counter mode by four tables of 1 KB in shared memory
KERNEL(aes_ttables)
{
    __shared__ unsigned tables[4][256], keys[44];
    #pragma unroll
    for (int t = 0; t < 4; ++t) tables[t][threadIdx.x] = scrambled(threadIdx.x + t * 256 + 1);
    if (threadIdx.x < 44) keys[threadIdx.x] = scrambled(threadIdx.x ^ 0xdeadbeefu);
    __syncthreads();
    unsigned fold = 0;
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        unsigned a = THREAD ^ keys[0], b = r ^ keys[1], c = fold ^ keys[2], d = keys[3];
        #pragma unroll 2
        for (int k = 4; k < 44; k += 4) {
            auto column = [&](unsigned w, unsigned x, unsigned y, unsigned z) {
                return tables[0][w & 255] ^ tables[1][x >> 8 & 255] ^ tables[2][y >> 16 & 255] ^ tables[3][z >> 24];
            };
            const unsigned e = column(a, b, c, d) ^ keys[k], f = column(b, c, d, a) ^ keys[k + 1];
            const unsigned g = column(c, d, a, b) ^ keys[k + 2], h = column(d, a, b, c) ^ keys[k + 3];
            a = e; b = f; c = g; d = h;
        }
        fold ^= a ^ b ^ c ^ d;
    }
    ((unsigned*)out)[THREAD & (count - 1)] = fold;
}

//# montgomery_multiply: products modulo a prime of 256 bits, eight words a number
KERNEL(montgomery_multiply)
{
    const unsigned prime[8] = {0xfffffc2fu, 0xfffffffeu, ~0u, ~0u, ~0u - 6, ~0u - 8, ~0u - 12, 0x7fffffffu};
    unsigned a[8], b[8];
    #pragma unroll
    for (int j = 0; j < 8; ++j) { a[j] = scrambled(THREAD * 8 + j); b[j] = scrambled(~THREAD * 8 + j); }
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        unsigned t[10] = {};
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            unsigned long long sum = 0;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                sum = (unsigned long long)a[j] * b[i] + t[j] + (sum >> 32);
                t[j] = (unsigned)sum;
            }
            sum = (unsigned long long)t[8] + (sum >> 32);
            t[8] = (unsigned)sum; t[9] = sum >> 32;
            const unsigned m = t[0] * 0xd2253531u;
            sum = (unsigned long long)m * prime[0] + t[0];
            #pragma unroll
            for (int j = 1; j < 8; ++j) {
                sum = (unsigned long long)m * prime[j] + t[j] + (sum >> 32);
                t[j - 1] = (unsigned)sum;
            }
            sum = (unsigned long long)t[8] + (sum >> 32);
            t[7] = (unsigned)sum; t[8] = t[9] + (unsigned)(sum >> 32);
        }
        #pragma unroll
        for (int j = 0; j < 8; ++j) a[j] = t[j];
    }
    unsigned fold = 0;
    #pragma unroll
    for (int j = 0; j < 8; ++j) fold ^= a[j];
    ((unsigned*)out)[THREAD & (count - 1)] = fold;
}

//# warp_bitonic: rows of 32 keys sorted by the lanes of a warp
KERNEL(warp_bitonic)
{
    float sum = 0.0f;
    #pragma unroll 2
    for (int r = 0; r < repeats; ++r) {
        float key = in[r * 8192 + THREAD & (count - 1)];
        #pragma unroll
        for (int size = 2; size <= 32; size *= 2)
            #pragma unroll
            for (int stride = size / 2; stride; stride /= 2) {
                const float other = __shfl_xor_sync(~0u, key, stride);
                const bool larger = ((LANE & size) != 0) == ((LANE & stride) == 0);
                key = larger ? fmaxf(key, other) : fminf(key, other);
            }
        sum = sum * 0.5f + key;
    }
    out[THREAD & (count - 1)] = sum;
}

//# vocab_argmax_rows: the next token of 64 sequences: a block a row of 262144 logits
KERNEL(vocab_argmax_rows)
{
    __shared__ float values[256];
    __shared__ int places[256];
    const float* row = in + (size_t)blockIdx.x * 262144;
    float best = -1e30f;
    int place = 0;
    #pragma unroll 4
    for (int k = threadIdx.x; k < 262144; k += 256) {
        const float x = row[k];
        if (x > best) { best = x; place = k; }
    }
    values[threadIdx.x] = best;
    places[threadIdx.x] = place;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && values[threadIdx.x + half] > values[threadIdx.x]) {
            values[threadIdx.x] = values[threadIdx.x + half];
            places[threadIdx.x] = places[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) ((int*)out)[blockIdx.x] = places[0];
}

//# hdr_brackets: a pixel a thread: several exposures to linear light, to another gamut, to the PQ curve, their mean
KERNEL(hdr_brackets)
{
    const float4 pixel = ((const float4*)in)[THREAD];
    float gain = 0.0625f, red = 0.0f, green = 0.0f, blue = 0.0f;
    auto encoded = [](float x) {
        const float y = powf(fmaxf(x, 0.0f), 0.1593017578f);
        return powf((0.8359375f + 18.8515625f * y) / (1.0f + 18.6875f * y), 78.84375f);
    };
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r, gain *= 2.0f) {
        const float x = powf(fabsf(pixel.x) * gain, 2.4f), y = powf(fabsf(pixel.y) * gain, 2.4f);
        const float z = powf(fabsf(pixel.z) * gain, 2.4f);
        red += encoded(0.6274f * x + 0.3293f * y + 0.0433f * z);
        green += encoded(0.0691f * x + 0.9195f * y + 0.0114f * z);
        blue += encoded(0.0164f * x + 0.0880f * y + 0.8956f * z);
    }
    ((float4*)out)[THREAD] = make_float4(red, green, blue, pixel.w);
}

//# sdf_march: rays in all directions, each marched through rows of spheres until it hits one
KERNEL(sdf_march)
{
    float sum = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        const unsigned word = scrambled(THREAD * 32 + r);
        float dx = (float)(word & 1023) - 511.5f, dy = (float)(word >> 10 & 1023) - 511.5f, dz = (float)(word >> 20 & 1023) - 511.5f;
        const float scale = rsqrtf(dx * dx + dy * dy + dz * dz);
        dx *= scale; dy *= scale; dz *= scale;
        float along = 0.0f;
        int steps = 0;
        for (; steps < 128 && along < 64.0f; ++steps) {
            const float px = 2.0f + along * dx, py = 2.0f + along * dy, pz = 2.0f + along * dz;
            auto folded = [](float x) { return x - 4.0f * (x * 0.25f + 12582912.0f - 12582912.0f); };
            const float x = folded(px), y = folded(py), z = folded(pz);
            const float square = x * x + y * y + z * z + 1e-6f, distance = square * rsqrtf(square) - 0.6f;
            if (distance < 1e-3f) break;
            along += distance;
        }
        sum += along + (float)steps;
    }
    out[THREAD & (count - 1)] = sum;
}

//# lbm_d2q9: a lattice Boltzmann step of 2048 x 2048 cells, nine planes
KERNEL(lbm_d2q9)
{
    const unsigned plane = count / 16, x = THREAD & 2047, y = THREAD / 2048;
    const int step_x[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, step_y[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    const float weight[9] = {4.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 9, 1.0f / 36, 1.0f / 36, 1.0f / 36, 1.0f / 36};
    float f[9], mass = 0.0f, ux = 0.0f, uy = 0.0f;
    #pragma unroll
    for (int i = 0; i < 9; ++i) {
        f[i] = in[i * plane + (y - step_y[i] & 2047) * 2048 + (x - step_x[i] & 2047)];
        mass += f[i]; ux += f[i] * step_x[i]; uy += f[i] * step_y[i];
    }
    const float inverse = __frcp_rn(mass + 8.0f);
    ux *= inverse; uy *= inverse;
    const float square = 1.5f * (ux * ux + uy * uy);
    #pragma unroll
    for (int i = 0; i < 9; ++i) {
        const float along = 3.0f * (ux * step_x[i] + uy * step_y[i]);
        out[i * plane + THREAD] = f[i] + 0.6f * (weight[i] * mass * (1.0f + along + 0.5f * along * along - square) - f[i]);
    }
}

//# thomas_tridiagonal: 32768 systems of 256 rows, a thread each, forward and back
KERNEL(thomas_tridiagonal)
{
    float *upper = out, *value = out + count / 2, c = 0.0f, d = 0.0f;
    #pragma unroll 1
    for (int row = 0; row < 256; ++row) {
        const int at = row * 32768 + THREAD;
        const float inverse = 1.0f / (16.0f + in[at] - c);
        d = (in[count / 2 + at] + d) * inverse;
        c = inverse;
        upper[at] = c;
        value[at] = d;
    }
    #pragma unroll 1
    for (int row = 254; row >= 0; --row) {
        const int at = row * 32768 + THREAD;
        d = value[at] + upper[at] * d;
        value[at] = d;
    }
}

//# selective_scan: a state space layer: a thread a channel with 16 states, a decay by exponential each, 64 steps at a time
extern "C" __global__ void __launch_bounds__(256, 3) selective_scan(const float* in, float* out, int count, int repeats)
{
    __shared__ float4 both[64][8];
    float decay[16], state[16] = {};
    #pragma unroll
    for (int n = 0; n < 16; ++n) decay[n] = -1.4427f * (n + 1) * (1.0f + (scrambled(THREAD * 16 + n) >> 8) * 1e-8f);
    const unsigned all = gridDim.x * blockDim.x;
    unsigned next = __float_as_uint(in[THREAD & (count - 1)]);
    for (int r = 0; r < repeats; ++r) {
        __syncthreads();
        for (int k = threadIdx.x; k < 512; k += 256) both[k / 8][k % 8] = ((const float4*)in)[r * 512 + k & (count / 4 - 1)];
        __syncthreads();
        #pragma unroll 1
        for (int k = 0; k < 64; ++k) {
            const unsigned word = next, at = (r * 64 + k) * all + THREAD;
            next = __float_as_uint(in[at + all & (count - 1)]);
            const float dt = __uint_as_float(word << 16), x = __uint_as_float(word & 0xffff0000u) * dt;
            float y = 0.0f;
            #pragma unroll
            for (int n = 0; n < 4; ++n) {
                const float4 b = both[k][n], c = both[k][4 + n];
                auto step = [&](int i, float from, float to) {
                    float kept;
                    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(kept) : "f"(dt * decay[i]));
                    state[i] = state[i] * kept + x * from;
                    y += state[i] * to;
                };
                step(n * 4, b.x, c.x); step(n * 4 + 1, b.y, c.y); step(n * 4 + 2, b.z, c.z); step(n * 4 + 3, b.w, c.w);
            }
            ((unsigned short*)out)[at & (count - 1)] = (unsigned short)(__float_as_uint(y) >> 16);
        }
    }
}

//# fused_mlp_warp: four layers of 64 for 16 samples a warp, weights in shared memory, activations in registers
extern "C" __global__ void __launch_bounds__(256, 3) fused_mlp_warp(const float* in, float* out, int count, int repeats)
{
    __shared__ unsigned weights[4][64][36];
    for (int k = threadIdx.x; k < 4 * 64 * 32; k += 256)
        weights[k / 2048][k / 32 % 64][k % 32] = ((const unsigned*)in)[k & (count - 1)] & 0xbbffbbffu;
    __syncthreads();
    const int group = LANE / 4, pair = LANE % 4, warps = gridDim.x * 8;
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        const unsigned tile = r * warps + THREAD / 32;
        const unsigned* rows = (const unsigned*)in + (tile * 512 & (count - 1));
        unsigned a[4][4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
            a[k][0] = rows[group * 32 + k * 8 + pair]; a[k][1] = rows[(group + 8) * 32 + k * 8 + pair];
            a[k][2] = rows[group * 32 + k * 8 + pair + 4]; a[k][3] = rows[(group + 8) * 32 + k * 8 + pair + 4];
        }
        float sums[8][4];
        #pragma unroll 1
        for (int layer = 0; layer < 4; ++layer) {
            #pragma unroll
            for (int i = 0; i < 32; ++i) sums[i / 4][i % 4] = 0.0f;
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                #pragma unroll
                for (int n = 0; n < 8; ++n) {
                    const unsigned b0 = weights[layer][n * 8 + group][k * 8 + pair];
                    const unsigned b1 = weights[layer][n * 8 + group][k * 8 + pair + 4];
                    asm volatile(
                        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                        : "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
                        : "r"(a[k][0]), "r"(a[k][1]), "r"(a[k][2]), "r"(a[k][3]), "r"(b0), "r"(b1));
                }
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                #pragma unroll
                for (int i = 0; i < 4; ++i)
                    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(a[k][i])
                        : "f"(sums[2 * k + i / 2][i % 2 * 2 + 1]), "f"(sums[2 * k + i / 2][i % 2 * 2]));
        }
        ((float4*)out)[(tile * 32 + LANE) & (count / 4 - 1)] = make_float4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
    }
}

//# adamw_fused: an optimizer's step: gradients, weights and two moments, 16 bytes a lane each
KERNEL(adamw_fused)
{
    const unsigned n = count / 16;
    float4 *all = (float4*)out, p = all[THREAD], m = all[n + THREAD], v = all[2 * n + THREAD];
    const float4 g = ((const float4*)in)[THREAD];
    auto step = [](float& p, float& m, float& v, float g) {
        m = 0.9f * m + 0.1f * g;
        v = 0.99f * v + 0.01f * g * g;
        p = p * 0.9999f - 0.001f * m / (sqrtf(v) + 1e-8f);
    };
    step(p.x, m.x, v.x, g.x); step(p.y, m.y, v.y, g.y); step(p.z, m.z, v.z, g.z); step(p.w, m.w, v.w, g.w);
    all[THREAD] = p;
    all[n + THREAD] = m;
    all[2 * n + THREAD] = v;
}

//# chained_scan: prefix sums in one pass: each block of 4096 waits for the sum of the one before
KERNEL(chained_scan)
{
    __shared__ float warps[8], before;
    volatile unsigned long long* sums = (unsigned long long*)(out + count - 65536);
    const float4* from = (const float4*)in + blockIdx.x * 1024 + threadIdx.x * 4;
    float4 x[4];
    float total = 0.0f;
    #pragma unroll
    for (int j = 0; j < 4; ++j) { x[j] = from[j]; total += x[j].x + x[j].y + x[j].z + x[j].w; }
    float sum = total;
    for (int offset = 1; offset < 32; offset *= 2) {
        const float other = __shfl_up_sync(~0u, sum, offset);
        if (LANE >= offset) sum += other;
    }
    if (LANE == 31) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    float first = sum - total, whole = 0.0f;
    for (int w = 0; w < 8; ++w) {
        if (w < threadIdx.x / 32) first += warps[w];
        whole += warps[w];
    }
    if (threadIdx.x == 0) {
        const unsigned round = sums[blockIdx.x * 4] >> 32;
        unsigned long long word = (unsigned long long)(round + 1) << 32;
        if (blockIdx.x)
            while ((word = sums[blockIdx.x * 4 - 4]) >> 32 == round) {}
        before = __uint_as_float((unsigned)word);
        sums[blockIdx.x * 4] = (unsigned long long)(round + 1) << 32 | __float_as_uint(before + whole);
    }
    __syncthreads();
    first += before;
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
        x[j].x += first; x[j].y += x[j].x; x[j].z += x[j].y; x[j].w += x[j].z;
        first = x[j].w;
        ((float4*)out)[blockIdx.x * 1024 + threadIdx.x * 4 + j] = x[j];
    }
}

//# kmeans_assign: the nearest of centres of 16 dimensions, which come through shared memory, for two points a thread
extern "C" __global__ void __launch_bounds__(256, 3) kmeans_assign(const float* in, float* out, int count, int repeats)
{
    __shared__ float4 centres[256][4];
    float p[16], q[16], nearest_p = 1e30f, nearest_q = 1e30f;
    int of_p = 0, of_q = 0;
    #pragma unroll
    for (int j = 0; j < 16; ++j) { p[j] = in[j * 65536 + THREAD & (count - 1)]; q[j] = in[j * 65536 + THREAD + 32768 & (count - 1)]; }
    for (int r = 0; r < repeats; ++r) {
        __syncthreads();
        for (int k = threadIdx.x; k < 1024; k += 256) centres[k / 4][k % 4] = ((const float4*)in)[r * 1024 + k & (count / 4 - 1)];
        __syncthreads();
        #pragma unroll 2
        for (int k = 0; k < 256; ++k) {
            float a = 0.0f, b = 0.0f;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float4 c = centres[k][j];
                auto add = [&](float x, int i) {
                    a += (p[i] - x) * (p[i] - x);
                    b += (q[i] - x) * (q[i] - x);
                };
                add(c.x, j * 4); add(c.y, j * 4 + 1); add(c.z, j * 4 + 2); add(c.w, j * 4 + 3);
            }
            if (a < nearest_p) { nearest_p = a; of_p = r * 256 + k; }
            if (b < nearest_q) { nearest_q = b; of_q = r * 256 + k; }
        }
    }
    ((int*)out)[THREAD & (count - 1)] = of_p;
    ((int*)out)[THREAD + 262144 & (count - 1)] = of_q;
}

//# viterbi_trellis: a block a message: 256 states, the better of two ways into each, a barrier a step
KERNEL(viterbi_trellis)
{
    __shared__ float costs[2][256], received[1024];
    for (int k = threadIdx.x; k < 1024; k += 256) received[k] = in[blockIdx.x * 1024 + k & (count - 1)];
    const int parity = __popc(threadIdx.x & 0x6d) & 1, from = threadIdx.x / 2;
    costs[0][threadIdx.x] = threadIdx.x ? 1e6f : 0.0f;
    #pragma unroll 1
    for (int step = 0; step < repeats; ++step) {
        __syncthreads();
        const float x = received[step & 1023], branch = parity ? x : -x;
        const float low = costs[step & 1][from] + branch, high = costs[step & 1][from + 128] - branch;
        costs[step + 1 & 1][threadIdx.x] = fminf(low, high);
        const unsigned ways = __ballot_sync(~0u, high < low);
        if (LANE == 0) ((unsigned*)out)[(blockIdx.x * 4096 + step) * 8 + threadIdx.x / 32 & (count - 1)] = ways;
    }
    __syncthreads();
    out[THREAD & (count - 1)] = costs[repeats & 1][threadIdx.x];
}

//# log_lines_bytes: the commas and the length of lines of 128 bytes, a thread a line, a byte a load
KERNEL(log_lines_bytes)
{
    const unsigned char* line = (const unsigned char*)in + (size_t)THREAD * 128;
    unsigned commas = 0, length = 0;
    #pragma unroll 4
    for (int k = 0; k < 128; ++k) {
        const unsigned char letter = line[k];
        commas += letter == ',';
        if (letter == '\n') length = k;
    }
    ((unsigned*)out)[THREAD] = commas << 16 | length;
}

//# rsa_local: squares of numbers of 512 bits by loops over words that are not unrolled
KERNEL(rsa_local)
{
    unsigned a[16], product[32];
    #pragma unroll 1
    for (int i = 0; i < 16; ++i) a[i] = scrambled(THREAD * 16 + i);
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll 1
        for (int i = 0; i < 32; ++i) product[i] = 0;
        #pragma unroll 1
        for (int i = 0; i < 16; ++i) {
            unsigned carry = 0;
            #pragma unroll 1
            for (int j = 0; j < 16; ++j) {
                const unsigned long long sum = (unsigned long long)a[i] * a[j] + product[i + j] + carry;
                product[i + j] = (unsigned)sum;
                carry = sum >> 32;
            }
            product[i + 16] = carry;
        }
        #pragma unroll 1
        for (int i = 0; i < 16; ++i) a[i] = product[i] ^ product[i + 16];
    }
    unsigned fold = 0;
    #pragma unroll 1
    for (int i = 0; i < 16; ++i) fold = fold * 3 ^ a[i];
    ((unsigned*)out)[THREAD & (count - 1)] = fold;
}

//# mesh_cells_refined: a block a part of a mesh; where it is refined, one part in 16, there are 16 times the cells
KERNEL(mesh_cells_refined)
{
    const int cells = blockIdx.x / 8 % 16 == 3 ? 2048 : 128;
    float u = 1.0f;
    #pragma unroll 4
    for (int k = 0; k < cells; ++k) {
        const float flux = in[(blockIdx.x * 2048 + k) * 256 + threadIdx.x & (count - 1)];
        u = u * 0.75f + 0.25f * flux * fabsf(flux);
    }
    out[THREAD] = u;
}

//# ntt_shared_tail: number theoretic transforms of 32768 words modulo 2^31 - 2^27 + 1, a block and 128 KB each; a wave and a fifth
KERNEL(ntt_shared_tail)
{
    extern __shared__ unsigned words[];
    const unsigned prime = 0x78000001u;
    auto times = [&](unsigned a, unsigned b) {
        const unsigned long long product = (unsigned long long)a * b;
        const unsigned m = (unsigned)product * 0x77ffffffu;
        const unsigned reduced = (product + (unsigned long long)m * prime) >> 32;
        return reduced >= prime ? reduced - prime : reduced;
    };
    for (int k = threadIdx.x; k < 32768; k += 1024) words[k] = __float_as_uint(in[blockIdx.x * 32768 + k & (count - 1)]) % prime;
    #pragma unroll 1
    for (int stride = 16384; stride; stride /= 2) {
        __syncthreads();
        #pragma unroll 4
        for (int k = threadIdx.x; k < 16384; k += 1024) {
            const int low = 2 * k - (k & (stride - 1));
            const unsigned a = words[low], b = words[low + stride], sum = a + b, difference = a + prime - b;
            words[low] = sum >= prime ? sum - prime : sum;
            words[low + stride] = times(difference, scrambled(k & (stride - 1)) >> 2);
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < 32768; k += 1024) ((unsigned*)out)[blockIdx.x * 32768 + k & (count - 1)] = words[k];
}

//# pic_deposit: the charge of particles in no order to the eight nodes around each, 128 x 128 x 128 nodes
KERNEL(pic_deposit)
{
    const unsigned word = scrambled(THREAD), other = scrambled(word ^ 0x5bd1e995u);
    const float charge = in[THREAD & (count - 1)];
    const float x = (float)(word & 1023) / 1024, y = (float)(word >> 10 & 1023) / 1024, z = (float)(word >> 20 & 1023) / 1024;
    #pragma unroll
    for (int corner = 0; corner < 8; ++corner) {
        const int i = corner & 1, j = corner >> 1 & 1, k = corner >> 2;
        const float part = charge * (i ? x : 1 - x) * (j ? y : 1 - y) * (k ? z : 1 - z);
        atomicAdd(out + (other + (k * 128 + j) * 128 + i & 2097151), part);
    }
}

//# lut3d_trilinear: colours of a noisy picture through a table of 64 x 64 x 64, eight corners of 16 bytes each
KERNEL(lut3d_trilinear)
{
    const unsigned word = scrambled(__float_as_uint(in[THREAD]) ^ THREAD);
    const float r = (word & 1023) * (62.9f / 1023), g = (word >> 10 & 1023) * (62.9f / 1023), b = (word >> 20 & 1023) * (62.9f / 1023);
    const int i = (int)r, j = (int)g, k = (int)b;
    const float4* table = (const float4*)in + (k * 64 + j) * 64 + i;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    #pragma unroll
    for (int corner = 0; corner < 8; ++corner) {
        const int x = corner & 1, y = corner >> 1 & 1, z = corner >> 2;
        const float4 c = table[(z * 64 + y) * 64 + x];
        const float weight = (x ? r - i : 1 - r + i) * (y ? g - j : 1 - g + j) * (z ? b - k : 1 - b + k);
        sum.x += weight * c.x; sum.y += weight * c.y; sum.z += weight * c.z; sum.w += weight * c.w;
    }
    ((float4*)out)[THREAD] = sum;
}

//# group_by_shared: sums of values by key in a table of 128 KB a block, so that a multiprocessor has one block
KERNEL(group_by_shared)
{
    extern __shared__ unsigned table[];
    for (int k = threadIdx.x; k < 32768; k += 256) table[k] = 0;
    __syncthreads();
    #pragma unroll 1
    for (int k = THREAD; k < count / 2; k += gridDim.x * 256) {
        const unsigned key = scrambled(__float_as_uint(in[k]) ^ k) >> 17;
        atomicAdd(table + key, (unsigned)(int)(in[count / 2 + k] * 256.0f));
    }
    __syncthreads();
    for (int k = threadIdx.x; k < 32768; k += 256) ((unsigned*)out)[blockIdx.x * 32768 + k] = table[k];
}
