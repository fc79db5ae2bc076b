#include "train/dataset.h"

#include <fmt/format.h>

#include <utility>

#include "formats/token_bin.h"
#include "formats/xxhash64.h"
#include "train/document_index.h"
#include "train/tokenize.h"

namespace jige::train {
namespace {

// Adds files to a corpus.
class Loader {
 public:
  Loader(const DatasetOptions& options, const text::Tokenizer& tokenizer, ThreadTeam& team)
      : options_(options), tokenizer_(tokenizer), team_(team) {}

  Status add(const std::string& path, Corpus& corpus) {
    JIGE_TRY(const SourceKind kind, source_kind(path));
    if (options_.pairs && kind != SourceKind::kJsonl) {
      return fail(Code::kUnsupported,
                  "{}: preference tuning reads pairs of answers from JSONL files (.jsonl): "
                  "{{\"prompt\", \"chosen\", \"rejected\"}} on each line",
                  path);
    }
    return kind == SourceKind::kTokens ? add_tokens(path, corpus) : add_text(path, corpus);
  }

  std::vector<uint64_t> take_keys() { return std::exchange(keys_, {}); }
  int64_t skipped_count() const { return skipped_count_; }

 private:
  Status add_text(const std::string& path, Corpus& corpus) {
    TokenizeOptions options{.cache_folder = options_.data.cache_folder,
                            .tokenizer_folder = options_.tokenizer_folder,
                            .image_folder = options_.image_folder,
                            .records = {.split = options_.data.split,
                                        .separator = options_.data.separator,
                                        .skip_bad = options_.data.skip_bad},
                            .encoder = {.text_field = options_.data.text_field,
                                        .append_eos = options_.data.append_eos,
                                        .pair_context = options_.pairs ? options_.context : 0,
                                        .images = options_.images,
                                        .no_images = options_.no_images}};
    if (options_.progress) {
      options.progress = [&](int64_t done, int64_t total) {
        return options_.progress({.file = path, .done_bytes = done, .total_bytes = total});
      };
    }
    JIGE_TRY(TokenizedFile copy, tokenize_file(path, tokenizer_, options, team_));
    skipped_count_ += copy.skipped_count;
    keys_.push_back(copy.key);
    JIGE_TRY(auto file, formats::TokenFile::open(copy.path, {.vocab_size = options_.vocab_size}));
    JIGE_TRY(auto ends, read_document_ends(file, -1));
    if (options_.pairs && ends.size() % 2 != 0) {
      return fail(Code::kCorrupt, "{}: half a pair; remove it to have it made anew", copy.path);
    }
    if (!copy.images.empty()) {
      corpus.add(std::move(file), std::move(ends), std::move(copy.images), copy.path);
      return {};
    }
    corpus.add(std::move(file), std::move(ends),
               options_.pairs ? DocumentsOf::kPairs : DocumentsOf::kThemselves);
    return {};
  }

  Status add_tokens(const std::string& path, Corpus& corpus) {
    JIGE_TRY(auto file, formats::TokenFile::open(path, {.layout = options_.data.token_layout,
                                                        .vocab_size = options_.vocab_size}));
    JIGE_DO(file.check());
    JIGE_TRY(auto ends, read_document_ends(file, tokenizer_.eos_id()));
    formats::XxHash64 hash;
    JIGE_TRY(const uint64_t content, hash_file(path));
    hash.update(&content, sizeof content);
    if (file.has_mask()) {
      JIGE_TRY(const uint64_t mask, hash_file(path + ".mask"));
      hash.update(&mask, sizeof mask);
    }
    hash.update(ends.data(), ends.size() * sizeof ends[0]);
    keys_.push_back(hash.digest());
    corpus.add(std::move(file), std::move(ends));
    return {};
  }

  const DatasetOptions& options_;
  const text::Tokenizer& tokenizer_;
  ThreadTeam& team_;
  std::vector<uint64_t> keys_;
  int64_t skipped_count_ = 0;
};

// "a.txt", "a.txt and b.txt", "a.txt and 7 more files".
std::string file_names(const std::vector<std::string>& files) {
  if (files.size() == 1) return files[0];
  if (files.size() == 2) return fmt::format("{} and {}", files[0], files[1]);
  return fmt::format("{} and {} more files", files[0], files.size() - 1);
}

}  // namespace

int64_t Dataset::index_bytes() const {
  const size_t sequences = training.size() + held_out.size();
  return static_cast<int64_t>(sequences * sizeof(Sequence)) + corpus.index_bytes() +
         eval_corpus.index_bytes();
}

int64_t Dataset::all_input_count() const {
  int64_t count = input_count();
  for (const Sequence& sequence : held_out) count += sequence.count;
  return count;
}

int64_t Dataset::input_count() const {
  int64_t count = 0;
  for (const Sequence& sequence : training) count += sequence.count;
  return count;
}

int64_t Dataset::learned_count() const {
  int64_t count = 0;
  for (const Sequence& sequence : training) count += sequence.learned_count;
  return count;
}

Result<Dataset> load_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer,
                             ThreadTeam& team) {
  Dataset dataset;
  Loader loader(options, tokenizer, team);
  for (const std::string& path : options.data.files) JIGE_DO(loader.add(path, dataset.corpus));
  dataset.keys = loader.take_keys();
  const bool own_eval = !options.data.eval_files.empty();
  SequenceOptions cut{.context = options.context,
                      .packing = options.data.packing,
                      .held_out_fraction = own_eval ? 0 : options.data.eval_fraction,
                      .seed = options.seed};
  auto cut_training = cut_sequences(dataset.corpus, cut);
  if (!cut_training) {
    return with_context(std::move(cut_training.error()), "{}", file_names(options.data.files));
  }
  Sequences sequences = std::move(*cut_training);
  dataset.training = std::move(sequences.training);
  dataset.held_out = std::move(sequences.held_out);
  if (own_eval) {
    for (const std::string& path : options.data.eval_files) {
      JIGE_DO(loader.add(path, dataset.eval_corpus));
    }
    auto evaluation = cut_sequences(dataset.eval_corpus, cut);
    if (!evaluation) {
      return with_context(std::move(evaluation.error()), "evaluation data {}",
                          file_names(options.data.eval_files));
    }
    dataset.held_out = std::move(evaluation->training);
    dataset.eval_keys = loader.take_keys();
  }
  dataset.skipped_count = loader.skipped_count();
  return dataset;
}

Result<Dataset> load_prompts(const DatasetOptions& options, int64_t answer_tokens,
                             std::optional<RewardRule> rule, const text::Tokenizer& tokenizer) {
  PromptOptions prompt_options{.tokens_max = options.context - answer_tokens,
                               .rule = rule,
                               .skip_bad = options.data.skip_bad};
  if (options.progress) {
    prompt_options.progress = [&](const std::string& file, int64_t done, int64_t total) {
      return options.progress({.file = file, .done_bytes = done, .total_bytes = total});
    };
  }
  const auto add = [&](const std::vector<std::string>& files, PromptSet& set,
                       std::vector<Sequence>& sequences) -> Status {
    for (const std::string& path : files) {
      JIGE_DO(add_prompts(path, tokenizer, prompt_options, set));
    }
    for (size_t i = 0; i < set.prompts.size(); ++i) {
      sequences.push_back({.begin = static_cast<int64_t>(i), .count = 1, .learned_count = 1});
    }
    return {};
  };
  Dataset dataset;
  JIGE_DO(add(options.data.files, dataset.prompts, dataset.training));
  JIGE_DO(add(options.data.eval_files, dataset.eval_prompts, dataset.held_out));
  dataset.keys = dataset.prompts.keys;
  dataset.eval_keys = dataset.eval_prompts.keys;
  dataset.skipped_count = dataset.prompts.skipped_count + dataset.eval_prompts.skipped_count;
  return dataset;
}

}  // namespace jige::train
