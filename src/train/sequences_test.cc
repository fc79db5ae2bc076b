#include "train/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

constexpr int64_t kVocab = 1000;

// A corpus of one file with documents of these lengths; token i has id i % kVocab.
Corpus make_corpus(const TestFolder& folder, const std::vector<int64_t>& lengths,
                   const std::vector<uint8_t>& mask = {}) {
  std::vector<int64_t> ends;
  int64_t total = 0;
  for (const int64_t length : lengths) ends.push_back(total += length);
  std::vector<int32_t> ids(static_cast<size_t>(total));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % kVocab);
  const std::string path = folder.file("corpus.bin");
  auto writer =
      formats::TokenFileWriter::create(path, {.vocab_size = kVocab, .with_mask = !mask.empty()});
  EXPECT_TRUE(writer->append(ids, mask));
  EXPECT_TRUE(writer->commit());
  Corpus corpus;
  corpus.add(*formats::TokenFile::open(path, {.vocab_size = kVocab}), std::move(ends));
  return corpus;
}

TEST(Sequences, PredictEveryTokenButADocumentsFirstOnce) {
  const TestFolder folder;
  const Corpus corpus = make_corpus(folder, {5, 1, 2, 11});
  const auto cut = cut_sequences(corpus, {.context = 4});
  ASSERT_TRUE(cut);
  const std::vector<Sequence> expected = {{0, 4, 4}, {6, 1, 1}, {8, 4, 4}, {12, 4, 4}, {16, 2, 2}};
  EXPECT_EQ(cut->training, expected);
  EXPECT_TRUE(cut->held_out.empty());
}

TEST(Sequences, OfAStreamCrossDocuments) {
  const TestFolder folder;
  const Corpus corpus = make_corpus(folder, {5, 1, 2, 11});
  const auto cut = cut_sequences(corpus, {.context = 8, .packing = Packing::kStream});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->training, (std::vector<Sequence>{{0, 8, 8}, {8, 8, 8}, {16, 2, 2}}));
}

TEST(Sequences, CountWhatIsLearnedAndLeaveOutWhatTeachesNothing) {
  const TestFolder folder;
  //                                 doc 1: learned as targets 2 and 4   doc 2: only its first
  const Corpus corpus = make_corpus(folder, {5, 4}, {1, 0, 1, 0, 1, 1, 0, 0, 0});
  const auto cut = cut_sequences(corpus, {.context = 2});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->training, (std::vector<Sequence>{{0, 2, 1}, {2, 2, 1}}));
  EXPECT_EQ(cut->empty_count, 2);
}

TEST(Sequences, HoldOutTheSameDocumentsWhateverElseThereIs) {
  const TestFolder folder;
  const std::vector<int64_t> lengths(400, 5);
  const SequenceOptions options{.context = 8, .held_out_fraction = 0.1, .seed = 3};
  const auto whole = cut_sequences(make_corpus(folder, lengths), options);
  ASSERT_TRUE(whole);
  EXPECT_NEAR(static_cast<double>(whole->held_out.size()), 40, 20);
  EXPECT_EQ(whole->held_out.size() + whole->training.size(), 400u);
  const auto half =
      cut_sequences(make_corpus(folder, {lengths.begin(), lengths.begin() + 200}), options);
  for (const Sequence& sequence : half->held_out) {
    EXPECT_NE(std::find(whole->held_out.begin(), whole->held_out.end(), sequence),
              whole->held_out.end());
  }
  const auto other = cut_sequences(make_corpus(folder, lengths),
                                   {.context = 8, .held_out_fraction = 0.1, .seed = 4});
  EXPECT_NE(other->held_out, whole->held_out);
}

TEST(Sequences, HoldOutPartsOfOneLongDocument) {
  const TestFolder folder;
  const Corpus corpus = make_corpus(folder, {4 * kGroupSequences * 50 + 1});
  const auto cut = cut_sequences(corpus, {.context = 4, .held_out_fraction = 0.1, .seed = 1});
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->held_out.size() % kGroupSequences, 0u);
  EXPECT_GT(cut->held_out.size(), 0u);
  EXPECT_EQ(cut->held_out.size() + cut->training.size(), 50u * kGroupSequences);
}

TEST(Sequences, HoldOutSomethingAndKeepSomethingInSmallCorpora) {
  const TestFolder folder;
  for (const double fraction : {1e-9, 0.5}) {
    const auto two =
        cut_sequences(make_corpus(folder, {3, 3}), {.context = 4, .held_out_fraction = fraction});
    ASSERT_TRUE(two);
    EXPECT_EQ(two->held_out.size(), 1u);
    EXPECT_EQ(two->training.size(), 1u);
  }
  const auto one =
      cut_sequences(make_corpus(folder, {3}), {.context = 4, .held_out_fraction = 0.5});
  ASSERT_TRUE(one);
  EXPECT_TRUE(one->held_out.empty());
}

TEST(Sequences, RefuseACorpusWithNothingToLearn) {
  const TestFolder folder;
  const auto refused = [&](const Corpus& corpus, const SequenceOptions& options, const char* word) {
    const auto cut = cut_sequences(corpus, options);
    return !cut && cut.error().code == Code::kInvalidArgument &&
           cut.error().message.find(word) != std::string::npos;
  };
  EXPECT_TRUE(refused(Corpus(), {.context = 4}, "0 tokens in 0 documents"));
  EXPECT_TRUE(refused(make_corpus(folder, {}), {.context = 4}, "0 tokens"));
  EXPECT_TRUE(refused(make_corpus(folder, {1, 1}), {.context = 4}, "two tokens"));
  EXPECT_TRUE(refused(make_corpus(folder, {3}, {1, 0, 0}), {.context = 4}, "to be learned"));
  EXPECT_TRUE(refused(make_corpus(folder, {4}), {.context = 4, .packing = Packing::kStream},
                      "too few for one sequence of 4"));
}

TEST(Sequences, CoverRandomCorporaExactly) {
  const TestFolder folder;
  Rng rng(23);
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> lengths(1 + rng.below(30));
    int64_t targets = 0;
    for (int64_t& length : lengths) {
      length = 1 + static_cast<int64_t>(rng.below(40));
      targets += length - 1;
    }
    if (targets == 0) continue;
    const int64_t context = 1 + static_cast<int64_t>(rng.below(12));
    const auto cut =
        cut_sequences(make_corpus(folder, lengths),
                      {.context = context, .held_out_fraction = 0.3, .seed = rng.next_u64()});
    ASSERT_TRUE(cut);
    std::vector<Sequence> all = cut->training;
    all.insert(all.end(), cut->held_out.begin(), cut->held_out.end());
    std::sort(all.begin(), all.end(),
              [](const Sequence& a, const Sequence& b) { return a.begin < b.begin; });
    int64_t covered = 0;
    int64_t previous_end = 0;
    for (const Sequence& sequence : all) {
      EXPECT_GE(sequence.begin, previous_end);
      EXPECT_LE(sequence.count, context);
      EXPECT_GE(sequence.count, 1);
      previous_end = sequence.begin + sequence.count;
      covered += sequence.count;
    }
    EXPECT_EQ(covered, targets);
  }
}

TEST(Corpus, IsOneRangeOverManyFiles) {
  const TestFolder folder;
  Corpus corpus;
  for (int i = 0; i < 3; ++i) {
    const std::string path = folder.file(std::to_string(i) + ".bin");
    auto writer = formats::TokenFileWriter::create(path, {.vocab_size = kVocab});
    ASSERT_TRUE(writer->append(std::vector<int32_t>{i * 10, i * 10 + 1}));
    ASSERT_TRUE(writer->commit());
    corpus.add(*formats::TokenFile::open(path, {.vocab_size = kVocab}), {2});
  }
  EXPECT_EQ(corpus.token_count(), 6);
  EXPECT_EQ(corpus.document_count(), 3);
  std::vector<int32_t> ids(2);
  ASSERT_TRUE(corpus.read(4, ids));
  EXPECT_EQ(ids, (std::vector<int32_t>{20, 21}));
  ASSERT_TRUE(corpus.read(3, std::span(ids).first(1)));
  EXPECT_EQ(ids[0], 11);
}

}  // namespace
}  // namespace jige::train
