// The kernels of tests/trouble_kernels.py. count, the floats of in and of out, is a power of two.

#define KERNEL(NAME) extern "C" __global__ void NAME(const float* in, float* out, int count, int repeats)

// Eight independent chains of a step a thread.
template <typename Number, typename Step>
__device__ void eight_chains(const float* in, float* out, int repeats, Step step)
{
    Number x[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = in[threadIdx.x + i];
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = step(x[i]);
    }
    Number sum = 0;
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)sum;
}

// A value that differs by lane keeps the compiler from adding up a warp's.
KERNEL(global_atomics)
{
    for (int i = 0; i < repeats; ++i) atomicAdd(out, (float)(threadIdx.x + i));
}

KERNEL(shared_atomics)
{
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int mine = 0;
    for (int i = 0; i < repeats; ++i) mine += atomicAdd(&sum, (int)threadIdx.x + i);
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)mine;
}

KERNEL(block_barrier)
{
    float x = in[threadIdx.x];
    for (int i = 0; i < repeats; ++i) { x = x * 0.5f + 0.25f; __syncthreads(); }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

extern "C" __global__ void __launch_bounds__(1024, 2)
spilled_registers(const float* in, float* out, int count, int repeats)
{
    float x[72];
    #pragma unroll
    for (int i = 0; i < 72; ++i) x[i] = in[(threadIdx.x + 1024 * i) & (count - 1)];
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int i = 0; i < 72; ++i) x[i] = x[i] * x[(i + 29) % 72] + x[(i + 47) % 72];
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 72; ++i) sum += x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

KERNEL(indexed_array)
{
    float x[256];
    for (int i = 0; i < 256; ++i) x[i] = in[(threadIdx.x + i) & (count - 1)];
    unsigned at = threadIdx.x + blockIdx.x;
    float sum = 0.0f;
    for (int r = 0; r < repeats; ++r) {
        at = (at * 1664525u + 1013904223u);
        x[(at >> 8) & 255] += sum;
        sum += x[(at >> 20) & 255];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

KERNEL(scattered_stores)
{
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < repeats; ++i)
        out[(unsigned)((thread + i * gridDim.x * blockDim.x) * 40503u * 64u) & (unsigned)(count - 1)] = (float)i;
}

KERNEL(random_gathers)
{
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    #pragma unroll 8
    for (int i = 0; i < repeats; ++i)
        sum += in[((unsigned)(thread + i * 7919) * 2654435761u) >> 4 & (unsigned)(count - 1)];
    out[thread] = sum;
}

#define WAY(N) case N: for (int k = 0; k < 32; ++k) x = x * (1 + N / 64.0f) + (N + 0.5f); break;

KERNEL(divergent_branches)
{
    float x = in[threadIdx.x];
    for (int i = 0; i < repeats; ++i)
        switch ((threadIdx.x + i) & 31) {
            WAY(0) WAY(1) WAY(2) WAY(3) WAY(4) WAY(5) WAY(6) WAY(7)
            WAY(8) WAY(9) WAY(10) WAY(11) WAY(12) WAY(13) WAY(14) WAY(15)
            WAY(16) WAY(17) WAY(18) WAY(19) WAY(20) WAY(21) WAY(22) WAY(23)
            WAY(24) WAY(25) WAY(26) WAY(27) WAY(28) WAY(29) WAY(30) WAY(31)
        }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

KERNEL(wave_and_a_bit)
{
    float x = in[threadIdx.x], y = x + 1.0f;
    for (int i = 0; i < repeats; ++i) { x = x * 0.5f + 0.25f; y = y * 0.5f + 0.75f; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x + y;
}

// LONG_CODE: 16,384 statements that tests/trouble_kernels.py writes.
KERNEL(long_code)
{
    float x0 = in[threadIdx.x], x1 = in[threadIdx.x + 1], x2 = x0 + 2, x3 = x1 + 3;
    #pragma unroll 1
    for (int r = 0; r < repeats; ++r) { LONG_CODE }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x0 + x1 + x2 + x3;
}

KERNEL(two_streams_left)
{
    eight_chains<float>(in, out, repeats, [](float x) { return x * 0.5f + 0.25f; });
}

KERNEL(two_streams_right)
{
    eight_chains<float>(in, out, repeats, [](float x) { return x * 0.5f + 0.25f; });
}

KERNEL(partial_warps)
{
    eight_chains<float>(in, out, repeats, [](float x) { return x * 0.5f + 0.25f; });
}

KERNEL(fp64_chain)
{
    eight_chains<double>(in, out, repeats, [](double x) { return x * 0.5 + 0.25; });
}

KERNEL(special_functions)
{
    eight_chains<float>(in, out, repeats, [](float x) { return __sinf(x); });
}

KERNEL(integer_logic)
{
    unsigned x[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __float_as_uint(in[threadIdx.x + i]);
    for (int r = 0; r < repeats; ++r) {
        #pragma unroll
        for (int i = 0; i < 8; ++i) { x[i] ^= x[i] << 13; x[i] ^= x[i] >> 17; x[i] ^= x[i] << 5; }
    }
    unsigned sum = 0;
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum ^= x[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)sum;
}

__constant__ float table[1024];

KERNEL(constant_indices)
{
    float sum = 0.0f;
    unsigned at = threadIdx.x * 33;
    for (int i = 0; i < repeats; ++i) { sum += table[at & 1023]; at += 97; }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

KERNEL(memory_fences)
{
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < repeats; ++i) {
        out[(thread + i * 4096) & (count - 1)] = (float)i;
        __threadfence();
    }
}

KERNEL(sleeping)
{
    __shared__ volatile int done;
    if (threadIdx.x == 0) done = 0;
    __syncthreads();
    float x = in[threadIdx.x];
    if (threadIdx.x < 32) {
        for (int i = 0; i < repeats; ++i) x = x * 0.5f + 0.25f;
        if (threadIdx.x == 0) done = 1;
    } else
        while (!done) __nanosleep(2000);
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

KERNEL(host_memory)
{
    const int threads = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) sum += in[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

KERNEL(dependent_math)
{
    float x = in[threadIdx.x];
    for (int i = 0; i < repeats; ++i) x = x * 0.5f + 0.25f;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

KERNEL(few_warps)
{
    extern __shared__ float held[];
    const int threads = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x, r = 0; r < repeats; ++r, i += threads)
        sum += in[i & (count - 1)];
    held[threadIdx.x] = sum;
    out[blockIdx.x * blockDim.x + threadIdx.x] = held[threadIdx.x];
}

KERNEL(l1_reads)
{
    const float4* rows = (const float4*)in;
    float sum = 0.0f;
    #pragma unroll 4
    for (int i = 0; i < repeats; ++i) {
        float4 x;
        asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(rows + ((threadIdx.x + 32 * i) & 511)));
        sum += x.x + x.y + x.z + x.w;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
