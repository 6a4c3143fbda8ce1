// The kernels of tests/single_purpose.py.

extern "C" __global__ void __launch_bounds__(256) device_copy(const uint4* source, uint4* target, int count)
{
    const int first = blockIdx.x * 1024 + threadIdx.x;
    uint4 held[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + 256 * i < count) held[i] = source[first + 256 * i];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + 256 * i < count) target[first + 256 * i] = held[i];
}

__device__ uint4 past_l1(const uint4* from)
{
    uint4 value;  // .cg loads are kept in L2 only
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(from));
    return value;
}

// count is a power of two. Every repeat shifts a thread to other addresses.
extern "C" __global__ void __launch_bounds__(1024) l2_copy(const uint4* source, uint4* target, int count, int repeats)
{
    const int threads = gridDim.x * blockDim.x;
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        #pragma unroll 4
        for (int i = first; i < count; i += threads) {
            const int at = (i + repeat * threads) & (count - 1);
            target[at] = past_l1(source + at);
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024) l2_read(const uint4* source, unsigned* sums, int count, int repeats)
{
    const int threads = gridDim.x * blockDim.x;
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        #pragma unroll 4
        for (int i = first; i < count; i += threads) {
            const uint4 value = past_l1(source + ((i + repeat * threads) & (count - 1)));
            sum += value.x ^ value.y ^ value.z ^ value.w;
        }
    }
    sums[first] = sum;
}

// All lanes of a warp follow one chain, so that a step is one sector.
extern "C" __global__ void pointer_chase(const int* next, int* ends, int count, int steps)
{
    int at = (int)((long long)blockIdx.x * count / gridDim.x);
    for (int step = 0; step < steps; ++step) at = next[at];
    if (threadIdx.x == 0) ends[blockIdx.x] = at;
}

// x = x * scale + shift, eight independent chains a thread. Block 0 does `rounds` of them, the others `rounds_of_rest`.
__device__ void multiply_add(const float* coefficients, float* out, int rounds, int rounds_of_rest)
{
    const float scale = coefficients[0], shift = coefficients[1];
    const int mine = blockIdx.x == 0 ? rounds : rounds_of_rest;
    float x[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = (float)(threadIdx.x + i);
    #pragma unroll 16
    for (int round = 0; round < mine; ++round) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = fmaf(x[i], scale, shift);
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void fma_chain(const float* coefficients, float* out, int rounds, int rounds_of_rest)
{
    multiply_add(coefficients, out, rounds, rounds_of_rest);
}

extern "C" __global__ void one_block(const float* coefficients, float* out, int rounds, int rounds_of_rest)
{
    multiply_add(coefficients, out, rounds, rounds_of_rest);
}

extern "C" __global__ void uneven_blocks(const float* coefficients, float* out, int rounds, int rounds_of_rest)
{
    multiply_add(coefficients, out, rounds, rounds_of_rest);
}

// A warp's tile is 32 rows of 32 words; lane l reads row l, so all lanes are in the bank of the column.
extern "C" __global__ void __launch_bounds__(256) bank_conflicts(const float* values, float* out, int repeats)
{
    __shared__ float tiles[8 * 1024];
    for (int i = threadIdx.x; i < 8 * 1024; i += 256) tiles[i] = values[i];
    __syncthreads();
    const volatile float* row = tiles + threadIdx.x * 32;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int repeat = 0; repeat < repeats; ++repeat) {
        #pragma unroll
        for (int column = 0; column < 32; ++column) sum[column & 3] += row[column];
    }
    out[blockIdx.x * 256 + threadIdx.x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
