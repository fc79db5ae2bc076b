// Products of many rows with a packed right: blocking for a cache that holds a group of panels, of
// tiles the first level, else the second, and a second-level one that holds a block of the left.
//
// A task packs its rows of the left once, for as much of the depth as the second level takes, or
// reads them where they lie, if they are of the engine's type and run along the depth: tiles where
// few panels do, the others always. It runs them against its panels: group of panels, stretch of
// the depth, block of rows. So the sums between two stretches are those of one group of panels, at
// most 144 KiB, and results leave from the first-level cache. Tasks of the same rows follow each
// other, and a thread that runs several packs those rows once. Sums are those of gemm.h, bit for
// bit. Threads: as gemm.h.
#pragma once

#include "kernels/cpu/gemm.h"

namespace jige::cpu {

// Whether a product is of the kind that gemm_many_rows is for.
bool gemm_many_rows_suit(const GemmEngine& engine, const GemmProduct& product);

// Computes a product and returns when it is done. REQUIRES: gemm_many_rows_suit.
void gemm_many_rows(CpuDevice& device, const GemmEngine& engine, const GemmProduct& product);

// Bytes of scratch that it takes of each thread of a team. REQUIRES: gemm_many_rows_suit.
int64_t gemm_many_rows_scratch_bytes(const GemmEngine& engine, const GemmProduct& product,
                                     int threads);

}  // namespace jige::cpu
