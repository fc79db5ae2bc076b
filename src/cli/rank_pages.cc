#include "cli/rank_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace jige::cli {
namespace {

constexpr size_t kMessageMax = 2000;
constexpr int kSignalBase = 128;

}  // namespace

struct RankPages::Page {
  std::atomic<bool> writing;
  int code;
  char message[kMessageMax];
};

Result<RankPages> RankPages::make(int count) {
  void* memory = mmap(nullptr, sizeof(Page) * static_cast<size_t>(count), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(Code::kExhausted, "no memory for {} ranks", count);
  return RankPages(static_cast<Page*>(memory), count);
}

RankPages::RankPages(RankPages&& other) noexcept : pages_(other.pages_), count_(other.count_) {
  other.pages_ = nullptr;
}

RankPages::~RankPages() {
  if (pages_ != nullptr) munmap(pages_, sizeof(Page) * static_cast<size_t>(count_));
}

std::atomic<bool>& RankPages::writing(int rank) const { return pages_[rank].writing; }

void RankPages::put(int rank, const Error& error) {
  Page& page = pages_[rank];
  page.code = static_cast<int>(error.code);
  std::memcpy(page.message, error.message.data(), std::min(error.message.size(), kMessageMax - 1));
}

bool RankPages::has(int rank) const { return pages_[rank].message[0] != '\0'; }

Error RankPages::get(int rank, int exit_code) const {
  const Page& page = pages_[rank];
  if (has(rank)) return {static_cast<Code>(page.code), page.message};
  if (exit_code > kSignalBase) {
    const int signal = exit_code - kSignalBase;
    return {Code::kUnavailable,
            fmt::format("rank {} was ended by signal {} ({})", rank, signal, strsignal(signal))};
  }
  return {Code::kInternal, fmt::format("rank {} ended with exit code {}", rank, exit_code)};
}

Status first_cause(const std::vector<Error>& errors) {
  for (const Error& error : errors) {
    if (error.message.find(" reports: ") == std::string::npos) return tl::unexpected<Error>(error);
  }
  return errors.empty() ? Status() : Status(tl::unexpected<Error>(errors.front()));
}

}  // namespace jige::cli
