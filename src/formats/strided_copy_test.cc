#include "formats/strided_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"

namespace jige::formats {
namespace {

// Element by element, by the definition.
std::vector<std::byte> copied(const std::vector<std::byte>& data, const std::vector<int64_t>& dims,
                              const std::vector<int64_t>& strides, size_t element_bytes) {
  const int64_t count = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  std::vector<std::byte> out;
  for (int64_t i = 0; i < count; ++i) {
    int64_t element = 0;
    int64_t rest = i;
    for (size_t axis = dims.size(); axis-- > 0; rest /= dims[axis]) {
      element += rest % dims[axis] * strides[axis];
    }
    const auto* begin = data.data() + static_cast<size_t>(element) * element_bytes;
    out.insert(out.end(), begin, begin + element_bytes);
  }
  return out;
}

TEST(StridedCopy, IsThatOfTheDefinition) {
  struct Case {
    std::vector<int64_t> dims, strides;
  };
  const Case kCases[] = {
      {{}, {}},
      {{5}, {3}},
      {{40, 70}, {1, 40}},  // transposed, of several tiles
      {{33, 32}, {64, 2}},
      {{1, 65}, {0, 7}},
      {{65, 1}, {2, 0}},
      {{3, 34, 5}, {5, 15, 1}},
      {{2, 3, 4, 5, 6}, {1, 2, 6, 24, 120}},
      {{2, 2}, {0, 3}},  // the first row twice
      {{7, 0, 3}, {1, 1, 1}},
  };
  Rng rng(5);
  for (const Case& c : kCases) {
    for (const size_t element_bytes : {1, 2, 4, 8}) {
      SCOPED_TRACE(testing::PrintToString(c.dims) + " of " + std::to_string(element_bytes));
      size_t elements = 1;
      for (size_t axis = 0; axis < c.dims.size(); ++axis) {
        if (c.dims[axis] > 0) elements += static_cast<size_t>((c.dims[axis] - 1) * c.strides[axis]);
      }
      std::vector<std::byte> data(elements * element_bytes);
      for (std::byte& byte : data) byte = static_cast<std::byte>(rng.below(256));
      const auto wanted = copied(data, c.dims, c.strides, element_bytes);
      std::vector<std::byte> out(wanted.size());
      copy_strided(data.data(), c.dims, c.strides, element_bytes, out.data());
      EXPECT_EQ(out, wanted);
    }
  }
}

}  // namespace
}  // namespace jige::formats
