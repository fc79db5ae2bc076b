#include "serve/layer_messages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "serve/layer_test_support.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::fixture;
using testing::HolderThread;
using testing::value_of;

// Reads what stands in front of the rows of a message, header aside.
Status read_from(const std::vector<std::byte>& body, int64_t bytes, SentSequences* sequences) {
  size_t at = 0;
  return read_sequences(
      bytes, /*rows_max=*/64, /*context_max=*/256, /*row_bytes=*/8, "peer",
      [&](std::span<std::byte> part) -> Status {
        if (part.size() > body.size() - at) return fail(Code::kUnavailable, "the end");
        std::memcpy(part.data(), body.data() + at, part.size());
        at += part.size();
        return {};
      },
      sequences);
}

std::vector<std::byte> body_of(const std::vector<std::byte>& message) {
  return {message.begin() + kLayerHeaderBytes, message.end()};
}

TEST(LayerMessages, SequencesComeAsTheyWereSent) {
  const std::vector<int32_t> first = {7, 2, 9}, second = {4};
  const std::vector<ops::SequenceSpan> sequences = {
      {.row_begin = 0, .row_count = 5, .context_count = 30, .blocks = first.data(), .state = 3},
      {.row_begin = 5, .row_count = 1, .context_count = 0, .blocks = second.data(), .state = 1}};
  const std::vector<std::byte> message = rows_head(sequences, 6, 8);
  const auto header =
      value_of(read_layer_header(std::span(message).first(kLayerHeaderBytes), "peer"));
  EXPECT_EQ(header.kind, LayerMessage::kRows);
  SentSequences read;
  ASSERT_TRUE(read_from(body_of(message), header.bytes, &read));
  EXPECT_EQ(read.row_count, 6);
  ASSERT_EQ(read.sequences.size(), 2u);
  EXPECT_EQ(read.sequences[1].row_begin, 5);
  EXPECT_EQ(read.sequences[0].context_count, 30);
  EXPECT_EQ(read.sequences[0].state, 3);
  EXPECT_EQ(std::vector(read.sequences[0].blocks, read.sequences[0].blocks + 3), first);
  EXPECT_EQ(read.sequences[1].blocks[0], 4);
}

TEST(LayerMessages, DamagedSequencesAreRefusedOrHarmless) {
  Rng rng(3);
  const std::vector<int32_t> blocks = {1, 2, 3, 4};
  const std::vector<ops::SequenceSpan> sequences = {
      {.row_begin = 0, .row_count = 9, .context_count = 50, .blocks = blocks.data()},
      {.row_begin = 9, .row_count = 3, .context_count = 2, .blocks = blocks.data()}};
  const std::vector<std::byte> message = rows_head(sequences, 12, 8);
  int refused = 0;
  for (uint64_t round = 0; round < fuzz_rounds(20'000); ++round) {
    std::vector<std::byte> body = body_of(message);
    for (uint64_t i = 0; i < 1 + rng.below(4); ++i) {
      body[rng.below(body.size())] = static_cast<std::byte>(rng.below(256));
    }
    if (rng.below(4) == 0) body.resize(rng.below(body.size()));
    SentSequences read;
    const int64_t bytes = std::ssize(message) - static_cast<int64_t>(kLayerHeaderBytes) + 12 * 8;
    if (!read_from(body, bytes, &read)) {
      ++refused;
      continue;
    }
    ASSERT_LE(read.row_count, 64);
    int64_t rows = 0;
    for (const ops::SequenceSpan& sequence : read.sequences) {
      ASSERT_EQ(sequence.row_begin, rows);
      ASSERT_GT(sequence.row_count, 0);
      rows += sequence.row_count;
      const ptrdiff_t offset = sequence.blocks - read.blocks.data();
      ASSERT_LE(offset + (sequence.context_count + sequence.row_count + 15) / 16,
                std::ssize(read.blocks));
    }
    ASSERT_EQ(rows, read.row_count);
  }
  EXPECT_GT(refused, 5000);
}

TEST(LayerMessages, TextsThatContradictThemselvesAreRefused) {
  EXPECT_FALSE(parse_greeting("{}", "p"));
  EXPECT_FALSE(parse_greeting("no json", "p"));
  EXPECT_EQ(parse_greeting(R"({"format":"jige.layers","version":1})", "p").error().code,
            Code::kUnsupported);
  LayerGreeting sent{
      .digest = "d",
      .memory_bytes = 5,
      .computer = {.kernels = "NVIDIA L4", .bytes_per_s = 300'000'000'000, .is_gpu = true}};
  const LayerGreeting read = value_of(parse_greeting(greeting_text(sent), "p"));
  EXPECT_EQ(read.memory_bytes, 5);
  EXPECT_EQ(read.computer.kernels, "NVIDIA L4");
  EXPECT_EQ(read.computer.bytes_per_s, 300'000'000'000);
  EXPECT_TRUE(read.computer.is_gpu);
  sent.computer.bytes_per_s = 0;
  EXPECT_FALSE(parse_greeting(greeting_text(sent), "p"));
  for (const char* text :
       {"{}", R"({"layers":[1]})", R"({"layers":[1,"2"]})", R"({"layers":[0,1],"compute":"i8"})"}) {
    EXPECT_FALSE(parse_hold(text, "p")) << text;
  }
  model::InferenceSizes sizes{.compute = DType::kF32,
                              .kv_dtype = DType::kI8,
                              .format = ops::WeightFormat::kQ4,
                              .context_max = 7,
                              .kv_block_count = 8,
                              .batch_tokens_max = 9};
  sizes.layers = {.begin = 2, .end = 5, .ends = false};
  const auto options = value_of(parse_hold(hold_text(sizes), "p"));
  EXPECT_EQ(options.layers.begin, 2);
  EXPECT_EQ(options.layers.end, 5);
  EXPECT_FALSE(options.layers.ends);
  EXPECT_EQ(options.compute, DType::kF32);
  EXPECT_EQ(options.kv_dtype, DType::kI8);
  EXPECT_EQ(options.format, ops::WeightFormat::kQ4);
  EXPECT_EQ(options.kv_block_count, 8);
  const Error error = parse_layer_error(error_text({Code::kExhausted, "full"}), "node-b");
  EXPECT_EQ(error.code, Code::kExhausted);
  EXPECT_EQ(error.message, "node-b: full");
  EXPECT_EQ(parse_layer_error(R"({"code":99,"message":"x"})", "p").code, Code::kCorrupt);
}

TEST(LayerMessages, AHolderTakesNoMoreMemoryThanItWasGiven) {
  HolderThread holder(fixture("llama3"), int64_t{1} << 20);
  const comm::Deadline soon = comm::Deadline::after(30);
  model::InferenceSizes sizes{.compute = DType::kF32,
                              .kv_dtype = DType::kF32,
                              .context_max = 64,
                              .kv_block_count = 1 << 20,
                              .batch_tokens_max = 32};
  sizes.layers = {.begin = 0, .end = 1, .ends = false};
  comm::Socket socket = value_of(comm::connect_to(holder.address(), {}, soon));
  value_of(receive_text(socket, LayerMessage::kGreeting, soon));
  ASSERT_TRUE(send_text(socket, LayerMessage::kHold, hold_text(sizes), soon));
  const auto held = receive_text(socket, LayerMessage::kHeld, soon);
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, Code::kExhausted) << held.error().message;
}

// A conversation with a holder, damaged somewhere: it answers, or ends.
void say_whatever(const comm::Address& holder, model::InferenceSizes sizes, int64_t columns,
                  uint64_t round) {
  Rng rng(derive_key(round, "strangers"));
  const comm::Deadline soon = comm::Deadline::after(30);
  comm::Socket socket = value_of(comm::connect_to(holder, {}, soon));
  value_of(receive_text(socket, LayerMessage::kGreeting, soon));
  std::string wanted = hold_text(sizes);
  if (round % 3 == 0) wanted[rng.below(wanted.size())] = static_cast<char>(rng.below(256));
  ASSERT_TRUE(send_text(socket, LayerMessage::kHold, wanted, soon));
  if (!receive_text(socket, LayerMessage::kHeld, soon)) return;
  const std::vector<int32_t> blocks = {1, 2};
  const ops::SequenceSpan sequence{.row_count = 3, .blocks = blocks.data(), .state = 1};
  std::vector<std::byte> messages;
  for (uint64_t count = 1 + rng.below(4); count > 0; --count) {
    std::vector<std::byte> message;
    if (rng.below(2) == 0) {
      message = copy_message({.is_state = rng.below(2) == 0, .src = 1, .dst = 0});
    } else {
      message = rows_head(std::span(&sequence, 1), 3, columns * 4);
      message.resize(message.size() + static_cast<size_t>(3 * columns * 4));
    }
    for (uint64_t i = rng.below(4); i > 0; --i) {
      const size_t at = rng.below(std::min<size_t>(message.size(), 60));
      message[at] = static_cast<std::byte>(rng.below(rng.below(2) == 0 ? 8 : 256));
    }
    messages.insert(messages.end(), message.begin(), message.end());
  }
  (void)socket.send_all(messages, soon);
  socket.end_sending();
  std::byte answer[1];
  while (socket.recv_all(answer, soon)) {
  }
  ASSERT_FALSE(soon.passed()) << "round " << round;
}

// What strangers may say to a holder, in every state of the conversation.
TEST(LayerMessages, AHolderOutlivesWhateverIsSaidToIt) {
  model::InferenceSizes sizes{.compute = DType::kF32,
                              .kv_dtype = DType::kF32,
                              .context_max = 64,
                              .kv_block_count = 8,
                              .state_count = 2,
                              .batch_tokens_max = 32};
  sizes.layers = {.begin = 0, .end = 2, .ends = false};
  for (const char* name : {"llama3", "granite_hybrid"}) {
    const auto config = value_of(formats::load_model_config(fixture(name)));
    HolderThread holder(fixture(name), int64_t{64} << 20);
    for (uint64_t round = 0; round < fuzz_rounds(40); ++round) {
      say_whatever(holder.address(), sizes, config.hidden_size, round);
      ASSERT_FALSE(HasFatalFailure());
    }
    const comm::Deadline soon = comm::Deadline::after(30);
    comm::Socket socket = value_of(comm::connect_to(holder.address(), {}, soon));
    value_of(receive_text(socket, LayerMessage::kGreeting, soon));
    ASSERT_TRUE(send_text(socket, LayerMessage::kHold, hold_text(sizes), soon));
    value_of(receive_text(socket, LayerMessage::kHeld, soon));
  }
}

TEST(LayerMessages, DamagedTextsAreRefusedOrWithinTheirRanges) {
  const std::string greeting =
      greeting_text({.digest = "d", .memory_bytes = 5, .computer = processor_as_computer(2)});
  model::InferenceSizes sizes{.compute = DType::kBF16, .kv_dtype = DType::kI8, .context_max = 64};
  sizes.layers = {.begin = 2, .end = 5, .ends = false};
  const std::string hold = hold_text(sizes), error = error_text({Code::kExhausted, "full"});
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(3000); ++seed) {
    Mutator mutator(seed);
    if (const auto greeted = parse_greeting(mutator.mutate(greeting), "p")) {
      ++read;
      ASSERT_GE(greeted->memory_bytes, 0) << seed;
      ASSERT_GE(greeted->computer.bytes_per_s, 1) << seed;
    }
    if (const auto held = parse_hold(mutator.mutate(hold), "p")) {
      ++read;
      for (const int64_t amount : {held->context_max, held->kv_block_count,
                                   int64_t{held->state_count}, held->batch_tokens_max}) {
        ASSERT_TRUE(amount >= 0 && amount <= INT32_MAX) << seed;
      }
    }
    const Error told = parse_layer_error(mutator.mutate(error), "p");
    ASSERT_NE(told.code, Code::kCancelled) << seed;
    ASSERT_TRUE(told.message.starts_with("p")) << told.message;
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace jige::serve
