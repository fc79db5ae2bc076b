#include "topology/xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_processor_watch.h"

namespace jige::topology {
namespace {

using ::testing::HasSubstr;

// Each element knows its line; a large file must not be counted from its beginning for each.
TEST(Xml, ReadsManyElementsInTimeThatGrowsWithTheFile) {
  constexpr size_t kElements = 60'000;
  std::string text = "<topology>\n";
  for (size_t i = 0; i < kElements; ++i)
    text += "<info value=\"" + std::string(100, 'y') + "\"/>\n";
  text += "</topology>";
  const ProcessorWatch watch;
  const auto root = parse_xml(text, "t.xml");
  EXPECT_LT(watch.seconds(), 5);
  ASSERT_TRUE(root) << root.error().message;
  ASSERT_EQ(root->children.size(), kElements);
  EXPECT_EQ(root->children.back().line, kElements + 1);
}

TEST(Xml, RefusesAnElementOfVeryManyAttributes) {
  std::string text = "<a";
  for (int i = 0; i < 300; ++i) text += fmt::format(" a{}=\"1\"", i);
  const auto root = parse_xml(text + "/>", "t.xml");
  ASSERT_FALSE(root);
  EXPECT_THAT(root.error().message, HasSubstr("t.xml:1: not valid XML: element a has more than"));
}

}  // namespace
}  // namespace jige::topology
