// Where documents end in a token file: the sidecar PATH.documents of tokenised text.
//
// Layout (little-endian): u64 magic "JIGEDOCS", u64 token count, u64 document count,
// count x u64 ends, ascending, the last one the token count. Token files from elsewhere have no
// such sidecar; their documents end behind every separator (end-of-text) token. Chat templates may
// write that token several times in one document, which is why ours do not rely on it. Threads:
// pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/token_bin.h"

namespace jige::train {

// PATH.documents.
std::string document_index_path(const std::string& token_path);

// REQUIRES: ends ascend strictly.
Status write_document_index(const std::string& token_path, std::span<const int64_t> ends);

// The ends of all documents of a token file: from its sidecar, or where there is none by
// `separator` (below 0: the whole file is one document). Fails with kCorrupt when the sidecar
// contradicts itself or the file.
Result<std::vector<int64_t>> read_document_ends(const formats::TokenFile& file, int32_t separator);

}  // namespace jige::train
