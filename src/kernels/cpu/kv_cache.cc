#include "kernels/cpu/kv_cache.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
void kv_block_write(const KvBlockWrite& args) noexcept;
}
namespace avx512 {
void kv_block_write(const KvBlockWrite& args) noexcept;
}

void kv_block_write(const KvBlockWrite& args) noexcept {
  active_isa() >= Isa::kAvx512 ? avx512::kv_block_write(args) : avx2::kv_block_write(args);
}

}  // namespace jige::cpu
