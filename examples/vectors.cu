// Vector operations of a CUDA binary: an addition over 64 MB, a sum, and a loop that only computes; in three streams.
// nvcc -O3 -arch=native vectors.cu -o vectors; ./vectors [ITERATIONS [THREADS]]
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#define CHECK(call)                                                                    \
    do {                                                                               \
        cudaError_t status = (call);                                                   \
        if (status != cudaSuccess) {                                                   \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));            \
            exit(2);                                                                   \
        }                                                                              \
    } while (0)

template <typename T>
__global__ void add(const T* a, const T* b, T* sum, size_t n) {
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (at < n) sum[at] = a[at] + b[at];
}

__global__ void reduce(const float* values, float* total, size_t n) {
    float own = 0;
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < n; at += size_t(gridDim.x) * blockDim.x)
        own += values[at];
    for (int step = 16; step; step /= 2) own += __shfl_down_sync(0xffffffff, own, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, own);
}

__global__ void polynomial(float* values, size_t n, int degree) {
    size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (at >= n) return;
    float x = values[at], y = 1;
    for (int i = 0; i < degree; ++i) y = y * x + 0.5f;
    values[at] = y;
}

int main(int argc, char** argv) {
    const int iterations = argc > 1 ? atoi(argv[1]) : 50;
    const int threads = argc > 2 ? atoi(argv[2]) : 256;  // of a block of polynomial
    const size_t n = 16 << 20;
    float *a, *b, *c, *total, *host;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&b, n * sizeof(float)));
    CHECK(cudaMalloc(&c, n * sizeof(float)));
    CHECK(cudaMalloc(&total, sizeof(float)));
    CHECK(cudaMallocHost(&host, n * sizeof(float)));
    for (size_t at = 0; at < n; ++at) host[at] = float(at % 97) / 97;
    CHECK(cudaMemset(total, 0, sizeof(float)));
    CHECK(cudaMemcpy(b, host, n * sizeof(float), cudaMemcpyHostToDevice));
    cudaStream_t copying, side;
    CHECK(cudaStreamCreate(&copying));
    CHECK(cudaStreamCreate(&side));
    for (int i = 0; i < iterations; ++i) {
        CHECK(cudaMemcpyAsync(a, host, n * sizeof(float), cudaMemcpyHostToDevice, copying));
        polynomial<<<n / threads, threads, 0, side>>>(b, n, 400);
        CHECK(cudaStreamSynchronize(copying));
        add<<<n / 256, 256>>>(a, b, c, n);
        add<<<n / 1024, 1024>>>(a, c, b, n);
        reduce<<<132, 256>>>(c, total, n);
        CHECK(cudaDeviceSynchronize());
        usleep(500);
    }
    float sum;
    CHECK(cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost));
    printf("sum %g after %d iterations\n", sum, iterations);
    return 0;
}
