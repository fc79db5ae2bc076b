// Ids that come one by one, as text that may be shown at once.
#include <string>

#include "base/rng.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

TEST(StreamDecoder, NeverEndsInsideACharacter) {
  for (const std::string name : {"gpt2", "llama2_legacy", "mistral"}) {
    const Tokenizer tokenizer = family(name);
    const std::string text =
        "caf\xC3\xA9 \xE7\x8C\xAB\xE4\xB8\x80\xF0\x9F\x98\x80 \xF0\x9F\x91\xA9 x";
    const auto ids = tokenizer.encode(text, {.add_special = false});
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (const int32_t id : *ids) {
      const auto piece = stream.push(id);
      ASSERT_TRUE(piece.has_value());
      EXPECT_TRUE(is_valid_utf8(*piece)) << name;
      joined += *piece;
    }
    joined += stream.flush();
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(StreamDecoder, EqualsDecodeForAnySequenceOfIds) {
  Rng rng(derive_key(5, "stream"));
  for (const auto& name : fixture_folders("tokenizers")) {
    const Tokenizer tokenizer = family(name);
    StreamDecoder stream(tokenizer);
    for (int round = 0; round < 100; ++round) {
      Ids ids(rng.below(20));
      const auto size = static_cast<uint64_t>(tokenizer.vocab_size());
      for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(size));
      std::string joined;
      for (const int32_t id : ids) {
        const auto piece = stream.push(id);
        ASSERT_TRUE(piece.has_value());
        ASSERT_TRUE(is_valid_utf8(*piece));
        joined += *piece;
      }
      joined += stream.flush();
      EXPECT_EQ(joined, *tokenizer.decode(ids, {})) << name;
    }
  }
}

TEST(StreamDecoder, KeepsGoodCharactersBesideBrokenByteTokens) {
  const Tokenizer tokenizer = family("llama2_metaspace");
  Ids ids;
  for (const char* token : {"<0xE7>", "<0x8C>", "<0xAB>", "<0xE7>", "<0x41>"}) {
    ids.push_back(*tokenizer.token_to_id(token));
  }
  EXPECT_EQ(*tokenizer.decode(ids, {}),
            "\xE7\x8C\xAB\xEF\xBF\xBD"
            "A");
}

}  // namespace
}  // namespace jige::text
