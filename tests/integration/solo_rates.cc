#include "integration/solo_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::integration {

JsonLines expect_solo_rates(const LinkRun& run, size_t links) {
  const Outcome solo = run({"profile", "links", "solo"});
  EXPECT_EQ(solo.exit_code, 0) << solo.err;
  if (solo.exit_code != 0) return {};
  const JsonLines rates = solo.json_lines();
  EXPECT_EQ(rates.size(), links);
  for (const Json& line : rates) {
    EXPECT_EQ(line["rates"], "measured");
    EXPECT_GT(line["rate"].get<double>(), 0.001);
    EXPECT_GE(line["repeats"].get<int>(), 4);
  }
  const Outcome again = run({"profile", "links", "solo"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const JsonLines kept = again.json_lines();
  EXPECT_EQ(kept.size(), rates.size());
  for (size_t i = 0; i < std::min(kept.size(), rates.size()); ++i) {
    EXPECT_EQ(kept[i]["kept"], true) << "from the store";
    EXPECT_EQ(rates[i]["kept"], false);
    for (const char* field : {"set", "rate", "gb_per_s", "repeats"}) {
      EXPECT_EQ(kept[i][field], rates[i][field]) << field;
    }
  }
  return rates;
}

}  // namespace jige::integration
