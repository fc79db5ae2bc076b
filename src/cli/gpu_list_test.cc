#include "cli/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::cli {
namespace {

using ::testing::HasSubstr;

std::vector<int> indices_of(std::string_view device) {
  const auto list = parse_gpu_list(device);
  EXPECT_TRUE(list) << device;
  return list && !list->all ? list->indices : std::vector<int>{-1};
}

std::string gpu_list_refusal(std::string_view device) {
  const auto list = parse_gpu_list(device);
  return list ? "none" : list.error().message;
}

TEST(GpuList, ReadsWhatNamesGpusInTheirOrder) {
  EXPECT_EQ(indices_of("cpu"), std::vector<int>());
  EXPECT_EQ(indices_of("cuda"), std::vector<int>{0});
  EXPECT_EQ(indices_of("cuda:3"), std::vector<int>{3});
  EXPECT_EQ(indices_of("cuda:0,cuda:1"), (std::vector<int>{0, 1}));
  EXPECT_EQ(indices_of("cuda:2,0,cuda:11"), (std::vector<int>{2, 0, 11}));
  const auto all = parse_gpu_list("cuda:all");
  ASSERT_TRUE(all);
  EXPECT_EQ(*all, (GpuList{.indices = {}, .all = true}));
}

TEST(GpuList, RefusesWhatNamesNoGpuOrOneTwice) {
  for (const char* device :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:0,", "0,1", "cuda:all,1",
        "cuda:0,all", "cpu,cuda:0", "cuda,cuda:1", "cuda:0;1", "cuda: 0", "cuda:99999999999"}) {
    EXPECT_THAT(gpu_list_refusal(device), HasSubstr("it must be cpu, cuda or cuda:N")) << device;
  }
  EXPECT_EQ(gpu_list_refusal("cuda:1,0,cuda:1"), "--device cuda:1,0,cuda:1 names GPU 1 twice");
}

TEST(GpuList, IsWrittenAsItIsRead) {
  EXPECT_EQ(gpus_text({2, 0}), "cuda:2,0");
  EXPECT_EQ(indices_of(gpus_text({2, 0})), (std::vector<int>{2, 0}));
}

}  // namespace
}  // namespace jige::cli
