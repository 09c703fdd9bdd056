// Three launches of two small kernels on two streams, one of which waits for the other, for Nsight Compute:
// nvcc -arch=sm_90 -o small small.cu, then
// ncu --clock-control none --cache-control all --metrics gpu__time_duration.sum,... -o small ./small
#include <cstdio>

__global__ void multiply_add(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i] + y[i];
}

__global__ void add_double(const double* x, double* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + y[i];
}

int main() {
  int n = 1 << 20;
  float *x, *y;
  double *a, *b;
  cudaMalloc(&x, 4 * n);
  cudaMalloc(&y, 4 * n);
  cudaMalloc(&a, 8 * n);
  cudaMalloc(&b, 8 * n);
  cudaMemset(x, 0, 4 * n);
  cudaStream_t first, second;
  cudaStreamCreate(&first);
  cudaStreamCreate(&second);
  cudaEvent_t done;
  cudaEventCreate(&done);
  multiply_add<<<n / 256, 256, 0, first>>>(x, y, n);
  cudaEventRecord(done, first);
  cudaStreamWaitEvent(second, done, 0);
  add_double<<<n / 256, 256, 0, second>>>(a, b, n);
  multiply_add<<<n / 256, 256, 0, first>>>(y, x, n);
  cudaDeviceSynchronize();
  printf("done\n");
  return 0;
}
