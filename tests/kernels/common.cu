// Before every kernel of the exams: exam.cu, serving.cu, unseen.cu, fresh.cu, last.cu. In these each stands after a line
// with its name, and is compiled alone behind what stands before the first. count, the floats of in and of out, is a power
// of two.

#define KERNEL(NAME) extern "C" __global__ void NAME(const float* in, float* out, int count, int repeats)
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define LANE (threadIdx.x % 32)

__device__ unsigned scrambled(unsigned x) { x *= 2654435761u; x ^= x >> 15; return x * 2246822519u; }

__device__ float warp_sum(float x)
{
    for (int offset = 16; offset; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
    return x;
}

