// Half-precision instructions of known number, for Nsight Compute: does one that works on two numbers count once or twice?
// nvcc -arch=sm_90 -o half half.cu, then ncu --clock-control none --metrics smsp__sass_thread_inst_executed_op_hfma_pred_on.sum,... ./half
#include <cuda_fp16.h>
#include <cstdio>

constexpr int TIMES = 64;

__global__ void pair_multiply_add(__half2* x) {
  __half2 v = x[threadIdx.x + blockIdx.x * blockDim.x], w = v;
#pragma unroll
  for (int i = 0; i < TIMES; ++i) v = __hfma2(v, w, w);
  x[threadIdx.x + blockIdx.x * blockDim.x] = v;
}

__global__ void single_multiply_add(__half* x) {
  __half v = x[threadIdx.x + blockIdx.x * blockDim.x], w = v;
#pragma unroll
  for (int i = 0; i < TIMES; ++i) v = __hfma(v, w, w);
  x[threadIdx.x + blockIdx.x * blockDim.x] = v;
}

__global__ void pair_add(__half2* x) {
  __half2 v = x[threadIdx.x + blockIdx.x * blockDim.x], w = v;
#pragma unroll
  for (int i = 0; i < TIMES; ++i) v = __hadd2(v, w);
  x[threadIdx.x + blockIdx.x * blockDim.x] = v;
}

__global__ void pair_multiply(__half2* x) {
  __half2 v = x[threadIdx.x + blockIdx.x * blockDim.x], w = v;
#pragma unroll
  for (int i = 0; i < TIMES; ++i) v = __hmul2(v, w);
  x[threadIdx.x + blockIdx.x * blockDim.x] = v;
}

int main() {
  void* x;
  cudaMalloc(&x, 1 << 20);
  cudaMemset(x, 0, 1 << 20);
  pair_multiply_add<<<16, 256>>>((__half2*)x);
  single_multiply_add<<<16, 256>>>((__half*)x);
  pair_add<<<16, 256>>>((__half2*)x);
  pair_multiply<<<16, 256>>>((__half2*)x);
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
