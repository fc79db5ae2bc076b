#include "kernels/cuda/matmul_lt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <compare>
#include <map>
#include <mutex>
#include <string>

#include "base/check.h"

namespace jige::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;  // as is advised for an H100

// The functions of the library.
struct LtFunctions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
};

void* open_library() {
  for (const char* name :
       {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
        "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.12",
        "/usr/local/cuda/lib64/libcublasLt.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

Result<LtFunctions> load_library() {
  void* const library = open_library();
  if (!library) {
    return fail(Code::kNotFound,
                "products in bf16 on a GPU need cuBLASLt: neither libcublasLt.so.13 nor .12 is on "
                "the library path or in /usr/local/cuda/lib64");
  }
  LtFunctions lt;
  std::string missing;
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) missing += std::string(" ") + name;
  };
  find(lt.create, "cublasLtCreate");
  find(lt.matmul, "cublasLtMatmul");
  find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(lt.desc_create, "cublasLtMatmulDescCreate");
  find(lt.desc_set, "cublasLtMatmulDescSetAttribute");
  find(lt.layout_create, "cublasLtMatrixLayoutCreate");
  find(lt.layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(lt.preference_create, "cublasLtMatmulPreferenceCreate");
  find(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  if (!missing.empty()) return fail(Code::kUnsupported, "cuBLASLt has no{}", missing);
  return lt;
}

const Result<LtFunctions>& lt_library() {
  static const Result<LtFunctions> loaded = load_library();
  return loaded;
}

void check_lt(cublasStatus_t status, const char* what) {
  JIGE_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {}: status {}", what,
             static_cast<int>(status));
}

// What a choice of algorithm depends on.
struct Problem {
  int64_t rows, columns, depth;
  int64_t left_stride, right_stride, out_stride, addend_stride;
  bool left_across, right_across, bf16_out, accumulate, bias, addend;
  int64_t batch, left_step, right_step, out_step;
  auto operator<=>(const Problem&) const = default;
};

Problem problem_of(const Product& product) {
  const bool addend = product.addend.data != nullptr;
  return {.rows = product.rows,
          .columns = product.columns,
          .depth = product.depth,
          .left_stride = product.left.stride,
          .right_stride = product.right.stride,
          .out_stride = product.out.stride,
          .addend_stride = addend ? product.addend.stride : product.out.stride,
          .left_across = product.left_across,
          .right_across = product.right_across,
          .bf16_out = product.out.type == cpu::ElementType::kBf16,
          .accumulate = product.accumulate,
          .bias = product.bias != nullptr,
          .addend = addend,
          .batch = product.batch.count,
          .left_step = product.batch.left_step,
          .right_step = product.batch.right_step,
          .out_step = product.batch.out_step};
}

// A problem as the library describes it, and the algorithm. The library counts columns first: it is
// told of the transposed product, out' = right' left', whose matrices are ours in memory.
struct Choice {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t right = nullptr, left = nullptr, out = nullptr;
  cublasLtMatrixLayout_t addend = nullptr;  // of what is added, be it out itself
  cublasLtMatmulAlgo_t algorithm = {};
};

class LtDevice {
 public:
  void multiply(const LaunchStream& stream, const Product& product, void* workspace) {
    const LtFunctions& lt = *lt_library();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!handle_) check_lt(lt.create(&handle_), "a handle");
    const Problem problem = problem_of(product);
    auto at = choices_.find(problem);
    if (at == choices_.end()) at = choices_.emplace(problem, choose(problem)).first;
    const Choice& choice = at->second;
    if (product.bias) set(choice.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
    const float alpha = 1.0f;
    const float beta = problem.accumulate || problem.addend ? 1.0f : 0.0f;
    const void* const addend = problem.addend ? product.addend.data : product.out.data;
    check_lt(lt.matmul(handle_, choice.desc, &alpha, product.right.data, choice.right,
                       product.left.data, choice.left, &beta, addend, choice.addend,
                       product.out.data, choice.out, &choice.algorithm, workspace, kWorkspaceBytes,
                       static_cast<cudaStream_t>(stream.handle)),
             "a product");
  }

 private:
  template <typename T>
  static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, T value) {
    check_lt(lt_library()->desc_set(desc, name, &value, sizeof value), "a product's attribute");
  }
  template <typename T>
  static void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
                  T value) {
    check_lt(lt_library()->preference_set(preference, name, &value, sizeof value), "a preference");
  }
  // A matrix of ours with these rows and columns.
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns,
                                       int64_t stride) {
    cublasLtMatrixLayout_t result = nullptr;
    check_lt(lt_library()->layout_create(&result, type, static_cast<uint64_t>(columns),
                                         static_cast<uint64_t>(rows), stride),
             "a matrix");
    return result;
  }

  static void repeat(cublasLtMatrixLayout_t matrix, int64_t count, int64_t step) {
    const auto set = [matrix](cublasLtMatrixLayoutAttribute_t name, auto value) {
      check_lt(lt_library()->layout_set(matrix, name, &value, sizeof value), "a batch");
    };
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }

  static Choice describe(const Problem& problem) {
    Choice choice;
    check_lt(lt_library()->desc_create(&choice.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             "a description");
    set(choice.desc, CUBLASLT_MATMUL_DESC_TRANSA, problem.right_across ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(choice.desc, CUBLASLT_MATMUL_DESC_TRANSB, problem.left_across ? CUBLAS_OP_T : CUBLAS_OP_N);
    const cudaDataType_t out_type = problem.bf16_out ? CUDA_R_16BF : CUDA_R_32F;
    if (problem.bias) {
      set(choice.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(choice.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(out_type));
      // For the choice the address counts as an alignment alone.
      set(choice.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
          reinterpret_cast<const void*>(kMatmulLtAlignment));
    }
    const auto operand = [](bool across, int64_t lines, int64_t depth, int64_t stride) {
      return across ? layout(CUDA_R_16BF, depth, lines, stride)
                    : layout(CUDA_R_16BF, lines, depth, stride);
    };
    choice.right =
        operand(problem.right_across, problem.columns, problem.depth, problem.right_stride);
    choice.left = operand(problem.left_across, problem.rows, problem.depth, problem.left_stride);
    choice.out = layout(out_type, problem.rows, problem.columns, problem.out_stride);
    choice.addend = layout(out_type, problem.rows, problem.columns, problem.addend_stride);
    if (problem.batch > 1) {
      repeat(choice.right, problem.batch, problem.right_step);
      repeat(choice.left, problem.batch, problem.left_step);
      repeat(choice.out, problem.batch, problem.out_step);
      repeat(choice.addend, problem.batch, problem.out_step);
    }
    return choice;
  }

  Choice choose(const Problem& problem) const {
    const LtFunctions& lt = *lt_library();
    Choice choice = describe(problem);
    cublasLtMatmulPreference_t preference = nullptr;
    check_lt(lt.preference_create(&preference), "preferences");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<uint64_t>(kWorkspaceBytes));
    // Sums of parts of the depth are added in f32, never in the type of the output.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    // What is more aligned than required must not change the choice, and so the bits.
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(preference, name, static_cast<uint32_t>(kMatmulLtAlignment));
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    const cublasStatus_t status =
        lt.heuristic(handle_, choice.desc, choice.right, choice.left, choice.addend, choice.out,
                     preference, 1, &result, &count);
    JIGE_CHECK(status == CUBLAS_STATUS_SUCCESS && count == 1,
               "cuBLASLt has no algorithm for [{}, {}] of depth {}: status {}", problem.rows,
               problem.columns, problem.depth, static_cast<int>(status));
    check_lt(lt.preference_destroy(preference), "preferences");
    choice.algorithm = result.algo;
    return choice;
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;  // kept until the process ends, as are the choices
  std::map<Problem, Choice> choices_;
};

// That of the calling thread's GPU.
LtDevice& current_device() {
  static std::mutex mutex;
  static std::map<int, LtDevice> devices;
  int index = 0;
  JIGE_CHECK(cudaGetDevice(&index) == cudaSuccess, "CUDA: no current device");
  const std::lock_guard<std::mutex> lock(mutex);
  return devices[index];
}

}  // namespace

Status matmul_lt_ready() {
  if (!lt_library()) return tl::unexpected<Error>(lt_library().error());
  return {};
}

int64_t matmul_lt_workspace_bytes() { return kWorkspaceBytes; }

void multiply_lt(const LaunchStream& stream, const Product& product, void* workspace) {
  if (stream.takes(product, workspace)) current_device().multiply(stream, product, workspace);
}

}  // namespace jige::cuda
