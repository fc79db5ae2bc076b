// The kernel by which transfers of `jige profile links --gpus` go that are not a copy engine's: 16
// bytes at a time, four of them under way a thread, as far as the grid goes. Either end may be
// another GPU's memory or pinned memory of the host.
//
// It is compiled to an image of its own (cmake/cuda.cmake), which the driver loads at run time.

extern "C" __global__ void __launch_bounds__(512)
    jige_copy(uint4* __restrict__ to, const uint4* __restrict__ from, unsigned long long count) {
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride],
                d = from[i + 3 * stride];
    to[i] = a;
    to[i + stride] = b;
    to[i + 2 * stride] = c;
    to[i + 3 * stride] = d;
  }
  for (; i < count; i += stride) to[i] = from[i];
}
