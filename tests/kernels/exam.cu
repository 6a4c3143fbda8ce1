// The kernels of tests/exam_kernels.py; common.cu says how.

// Eight independent chains of a step a thread.
template <typename Step>
__device__ void chains(unsigned (&x)[8], float* out, int repeats, Step step)
{
    #pragma unroll 4
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) step(x[i]);
    }
    out[THREAD] = (float)(x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7]);
}

//# aos_update: particles of 16 floats; one of a position and its velocity are touched
KERNEL(aos_update)
{
    float* particle = out + (size_t)16 * THREAD;
    particle[0] += particle[3] * 0.01f;
}

//# transpose_naive: rows are read, columns written; 4096 x 4096
KERNEL(transpose_naive)
{
    const int x = (blockIdx.x % 128) * 32 + threadIdx.x % 32, y = (blockIdx.x / 128) * 32 + threadIdx.x / 32;
    for (int j = 0; j < 32; j += 8) out[x * 4096 + y + j] = in[(y + j) * 4096 + x];
}

//# transpose_conflicts: through a tile without padding
KERNEL(transpose_conflicts)
{
    __shared__ float tile[32][32];
    const int column = (blockIdx.x % 128) * 32, row = (blockIdx.x / 128) * 32, x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int j = 0; j < 32; j += 8) tile[y + j][x] = in[(row + y + j) * 4096 + column + x];
    __syncthreads();
    for (int j = 0; j < 32; j += 8) out[(column + y + j) * 4096 + row + x] = tile[x][y + j];
}

//# histogram_hot_bin: weights added to bins in shared memory, nearly all to one
KERNEL(histogram_hot_bin)
{
    __shared__ int bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = THREAD; i < count; i += gridDim.x * blockDim.x) {
        const unsigned bits = __float_as_uint(in[i]);
        atomicAdd(bins + (fabsf(in[i]) < 2.5f ? 7 : bits >> 13 & 255), (int)(bits >> 20 & 15));
    }
    __syncthreads();
    atomicAdd((int*)out + threadIdx.x, bins[threadIdx.x]);
}

//# tree_reduction: one element a thread, a barrier and a modulo a step
KERNEL(tree_reduction)
{
    __shared__ float sums[256];
    sums[threadIdx.x] = in[THREAD];
    __syncthreads();
    #pragma unroll 1
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (threadIdx.x % (2 * s) == 0) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

//# spmv_rows: a sparse matrix of 16 values a row, one thread a row
KERNEL(spmv_rows)
{
    float sum = 0.0f;
    for (int k = 0; k < 16; ++k) {
        const unsigned at = THREAD * 16 + k;
        const float value = in[at];
        sum += value * in[scrambled(__float_as_uint(value) ^ at) & (count - 1)];
    }
    out[THREAD] = sum;
}

//# sgemm_tile: 1024 x 1024, tiles of 16 x 16 in shared memory, one result a thread
KERNEL(sgemm_tile)
{
    __shared__ float left[16][16], right[16][16];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int column = (blockIdx.x % 64) * 16 + x, row = (blockIdx.x / 64) * 16 + y;
    float sum = 0.0f;
    for (int k = 0; k < 1024; k += 16) {
        left[y][x] = in[row * 1024 + k + x];
        right[y][x] = in[(k + y) * 1024 + column];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 16; ++i) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    out[row * 1024 + column] = sum;
}

//# mma_conflicts: mma.sync fed from rows of 128 bytes: eight rows of a fragment meet in the same banks
KERNEL(mma_conflicts)
{
    __shared__ unsigned left[128][32], right[128][32];  // two halves a word
    for (int i = threadIdx.x; i < 128 * 32; i += blockDim.x) {
        left[i / 32][i % 32] = 0x3c003c00u ^ (__float_as_uint(in[i]) >> 13 & 0x00ff00ffu);
        right[i / 32][i % 32] = 0x2c002c00u ^ (__float_as_uint(in[i]) >> 11 & 0x00ff00ffu);
    }
    __syncthreads();
    const int row = threadIdx.x % 32 / 4, word = threadIdx.x % 4, warp = threadIdx.x / 32;
    float sums[4][4] = {};
    for (int r = 0; r < repeats; ++r) {
        const int top = (r + warp) * 16 & 127;
        #pragma unroll
        for (int k = 0; k < 32; k += 8) {
            const unsigned a0 = left[top + row][k + word], a1 = left[top + row + 8][k + word];
            const unsigned a2 = left[top + row][k + word + 4], a3 = left[top + row + 8][k + word + 4];
            #pragma unroll
            for (int n = 0; n < 4; ++n) {
                const int line = (top + 8 * n + row) & 127;
                const unsigned b0 = right[line][k + word], b1 = right[line][k + word + 4];
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
                             : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
            }
        }
    }
    float sum = 0.0f;
    for (int n = 0; n < 4; ++n) sum += sums[n][0] + sums[n][1] + sums[n][2] + sums[n][3];
    out[THREAD] = sum;
}

//# polynomial_hash: hash = hash * factor + word
KERNEL(polynomial_hash)
{
    unsigned hash[8];
    const unsigned factor = __float_as_uint(in[0]) | 1, word = __float_as_uint(in[1]);
    for (int i = 0; i < 8; ++i) hash[i] = THREAD + i;
    chains(hash, out, repeats, [&](unsigned& h) { h = h * factor + word; });
}

//# black_scholes: option prices
__device__ float normal_below(float d)
{
    const float k = __fdividef(1.0f, 1.0f + 0.2316419f * fabsf(d));
    const float tail = 0.39894228f * __expf(-0.5f * d * d)
        * (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
    return d > 0.0f ? 1.0f - tail : tail;
}
KERNEL(black_scholes)
{
    float price = 20.0f + 5.0f * fabsf(in[THREAD & (count - 1)]), sum = 0.0f;
    #pragma unroll 2
    for (int r = 0; r < repeats; ++r) {
        const float strike = 18.0f + 0.01f * r, years = 0.25f + 0.002f * r, root = sqrtf(years);
        const float d1 = __fdividef(__logf(__fdividef(price, strike)) + (0.02f + 0.045f) * years, 0.3f * root);
        const float d2 = d1 - 0.3f * root;
        sum += price * normal_below(d1) - strike * __expf(-0.02f * years) * normal_below(d2);
        price += 0.001f;
    }
    out[THREAD] = sum;
}

//# half2_poly: packed half-precision multiply-adds
KERNEL(half2_poly)
{
    unsigned x[8];
    for (int i = 0; i < 8; ++i) x[i] = __float_as_uint(in[threadIdx.x + i]) >> 13 & 0x3bff3bffu;
    chains(x, out, repeats, [](unsigned& h) { asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(h) : "r"(0x38003800u), "r"(0x34003400u)); });
}

//# dp4a_rows: products of four bytes added up in 32 bits
KERNEL(dp4a_rows)
{
    unsigned sums[8] = {};
    const unsigned values = __float_as_uint(in[threadIdx.x + 32]), weight = __float_as_uint(in[threadIdx.x]);
    chains(sums, out, repeats, [&](unsigned& sum) { asm volatile("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(values), "r"(weight)); });
}

//# mandelbrot: points in no order: the lanes of a warp leave the loop at different times
KERNEL(mandelbrot)
{
    const float cx = 0.7f * in[THREAD & (count - 1)] - 0.3f, cy = 0.5f * in[(THREAD + 4099) & (count - 1)];
    float x = cx, y = cy;
    int n = 0;
    while (n < repeats && x * x + y * y < 4.0f) {
        const float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        ++n;
    }
    out[THREAD & (count - 1)] = (float)n;
}

//# invert_matrices: Gauss-Jordan with pivots, one 12 x 12 matrix a thread
KERNEL(invert_matrices)
{
    float m[12][12];
    for (int i = 0; i < 144; ++i) m[i / 12][i % 12] = in[(THREAD * 37 + i * 64) & (count - 1)];
    for (int column = 0; column < 12; ++column) {
        int pivot = column;
        for (int row = column + 1; row < 12; ++row)
            if (fabsf(m[row][column]) > fabsf(m[pivot][column])) pivot = row;
        for (int i = 0; i < 12; ++i) { const float held = m[pivot][i]; m[pivot][i] = m[column][i]; m[column][i] = held; }
        const float scale = __fdividef(1.0f, m[column][column]);
        m[column][column] = 1.0f;
        for (int i = 0; i < 12; ++i) m[column][i] *= scale;
        for (int row = 0; row < 12; ++row) {
            if (row == column) continue;
            const float factor = m[row][column];
            m[row][column] = 0.0f;
            for (int i = 0; i < 12; ++i) m[row][i] -= factor * m[column][i];
        }
    }
    float trace = 0.0f;
    for (int i = 0; i < 12; ++i) trace += m[i][i];
    out[THREAD] = trace;
}

//# nbody_tail: forces of all bodies in tiles; the grid is a wave and a tenth
extern "C" __global__ void __launch_bounds__(1024, 2) nbody_tail(const float* in, float* out, int count, int repeats)
{
    __shared__ float4 bodies[1024];
    const float4* all = (const float4*)in;
    const float4 mine = all[THREAD & (count / 4 - 1)];
    float fx = 0.0f, fy = 0.0f, fz = 0.0f;
    for (int tile = 0; tile < repeats; ++tile) {
        bodies[threadIdx.x] = all[(tile * 1024 + threadIdx.x) & (count / 4 - 1)];
        __syncthreads();
        #pragma unroll 8
        for (int i = 0; i < 1024; ++i) {
            const float dx = bodies[i].x - mine.x, dy = bodies[i].y - mine.y, dz = bodies[i].z - mine.z;
            const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            const float force = bodies[i].w * inverse * inverse * inverse;
            fx += dx * force; fy += dy * force; fz += dz * force;
        }
        __syncthreads();
    }
    out[THREAD] = fx + fy + fz;
}

//# uneven_rows: a block a row, and lengths as of words in a text: half as many, half as long
KERNEL(uneven_rows)
{
    const int length = count / (blockIdx.x + 1);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < length; i += blockDim.x) sum += in[i] * 0.5f;
    out[THREAD] = sum;
}

//# uber_kernel: warps take turns through 16 long straight pieces of code
template <int PIECE>
__device__ __noinline__ float piece(float x, float y)
{
    #pragma unroll
    for (int i = 0; i < 512; ++i) {
        x = fmaf(x, 0.5f + (PIECE * 512 + i) * 0x1p-15f, y);
        y = fmaf(y, 0.25f + (PIECE * 512 + i) * 0x1p-16f, x);
    }
    return x + y;
}
#define PIECE(N) case N: x = piece<N>(x, y); break;
KERNEL(uber_kernel)
{
    float x = in[threadIdx.x], y = in[threadIdx.x + 32];
    for (int r = 0; r < repeats; ++r)
        switch ((THREAD / 32 * 7 + r * 5) & 15) {
            PIECE(0) PIECE(1) PIECE(2) PIECE(3) PIECE(4) PIECE(5) PIECE(6) PIECE(7)
            PIECE(8) PIECE(9) PIECE(10) PIECE(11) PIECE(12) PIECE(13) PIECE(14) PIECE(15)
        }
    out[THREAD] = x;
}

//# texture_blur: 25 bilinear fetches a pixel
extern "C" __global__ void texture_blur(cudaTextureObject_t image, float* out, int width)
{
    const int x = THREAD % width, y = THREAD / width;
    float sum = 0.0f;
    #pragma unroll
    for (int dy = -2; dy <= 2; ++dy)
        #pragma unroll
        for (int dx = -2; dx <= 2; ++dx) sum += tex2D<float>(image, x + dx + 0.25f, y + dy + 0.25f);
    out[THREAD] = sum / 25;
}

//# warp_sums: every value is added up over the warp at once, by shuffles
KERNEL(warp_sums)
{
    float sum = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        float x[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = in[(threadIdx.x + 4 * r + i) & 1023];
        #pragma unroll
        for (int step = 16; step; step /= 2) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) x[i] += __shfl_xor_sync(~0u, x[i], step);
        }
        sum += x[0] + x[1] + x[2] + x[3];
    }
    out[THREAD] = sum;
}

//# block_scan: Hillis and Steele's sum of prefixes, two barriers a step
KERNEL(block_scan)
{
    __shared__ float sums[1024];
    sums[threadIdx.x] = in[THREAD];
    __syncthreads();
    #pragma unroll 1
    for (int s = 1; s < 1024; s *= 2) {
        const float before = threadIdx.x >= s ? sums[threadIdx.x - s] : 0.0f;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    out[THREAD] = sums[threadIdx.x];
}

//# voxel_lookup: 4-byte reads anywhere in 16 MiB
KERNEL(voxel_lookup)
{
    float sum = 0.0f;
    #pragma unroll 8
    for (int r = 0; r < repeats; ++r) sum += in[scrambled(THREAD * 64 + r) >> 3 & ((1 << 22) - 1)];
    out[THREAD] = sum;
}

//# conv_l1: 64 taps over a line, every one read anew
KERNEL(conv_l1)
{
    float sum = 0.0f;
    #pragma unroll 16
    for (int k = 0; k < 64; ++k) sum += in[(THREAD + k) & (count - 1)] * in[k];
    out[THREAD] = sum;
}

//# scaled_sum: y = a x + y with few warps
KERNEL(scaled_sum)
{
    const float4* x = (const float4*)in;
    float4* y = (float4*)out;
    #pragma unroll 1
    for (int i = THREAD; i < count / 4; i += gridDim.x * blockDim.x) {
        const float4 a = x[i];
        float4 b = y[i];
        b.x += 0.5f * a.x; b.y += 0.5f * a.y; b.z += 0.5f * a.z; b.w += 0.5f * a.w;
        y[i] = b;
    }
}

//# horner_few_warps: one chain of multiply-adds in ten warps a multiprocessor
KERNEL(horner_few_warps)
{
    const float x = in[threadIdx.x];
    float sum = 1.0f;
    #pragma unroll 32
    for (int r = 0; r < repeats; ++r) sum = fmaf(sum, x, 0.25f);
    out[THREAD] = sum;
}

//# gelu_big: exact GELU and its derivative of a large array
KERNEL(gelu_big)
{
    const float4 x = ((const float4*)in)[THREAD];
    const float* from = (const float*)&x;
    float4 y;
    float* to = (float*)&y;
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        to[i] = 0.5f * from[i] * (1.0f + erff(0.70710678f * from[i])) + 0.3989f * __expf(-0.5f * from[i] * from[i]) * tanhf(from[i]);
    ((float4*)out)[THREAD] = y;
}
