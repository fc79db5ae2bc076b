// Experts: stacked in files, one by one or stacked in folders.
#include <fmt/format.h>

#include "formats/gguf_param_list.h"

namespace jige::formats {

namespace {

constexpr int64_t kMxfp4Elements = 32;
constexpr int64_t kMxfp4Bytes = 17;  // a power of two, then 16 pairs of codes

// The codes of one block in the order of folders, where neighbours share a byte; in files the first
// half of the block has the low halves of the bytes.
void copy_mxfp4_codes(const std::byte* block, std::byte* out) {
  const auto code = [&](int i) {
    const auto pair = static_cast<uint8_t>(block[1 + i % 16]);
    return i < 16 ? pair & 15 : pair >> 4;
  };
  for (int i = 0; i < 16; ++i) out[i] = static_cast<std::byte>(code(2 * i) | code(2 * i + 1) << 4);
}

}  // namespace

GgufExpertNames gguf_expert_names(Family family) {
  GgufExpertNames names;
  switch (family) {
    case Family::kMixtral:
    case Family::kMiniMaxM2:
      return {.gate = "w1",
              .up = "w3",
              .down = "w2",
              .at = "block_sparse_moe.",
              .choice_bias = "e_score_correction_bias"};
    case Family::kLfm2Moe:
      return {.gate = "w1",
              .up = "w3",
              .down = "w2",
              .at = "feed_forward.",
              .choice_bias = "expert_bias"};
    case Family::kErnie45Moe:
      names.choice_bias = "moe_statics.e_score_correction_bias";
      break;
    case Family::kHunYuanMoe:
      names.router = "gate.wg";
      names.shared = "shared_mlp";
      break;
    case Family::kNemotronH:
      names.at = "";
      names.has_gate = false;
      break;
    case Family::kQwen2Moe:
    case Family::kQwen35Moe:
    case Family::kQwen3Next:
      names.shared = "shared_expert";
      break;
    default:
      break;
  }
  return names;
}

void GgufParamList::add_experts(const std::string& from, const std::string& to) {
  const ExpertConfig& experts = c_.experts;
  const GgufExpertNames names = gguf_expert_names(c_.family);
  const std::string at = to + names.at;
  add(from + "ffn_gate_inp.weight", at + names.router + ".weight", {experts.count, c_.hidden_size});
  if (experts.choice_bias) {
    const bool row = c_.family == Family::kErnie45Moe;
    add(from + "exp_probs_b.bias", at + names.choice_bias,
        row ? Shape{1, experts.count} : Shape{experts.count});
    params_.back().wide = true;
  }
  const auto add_stack = [&](const char* stored, const char* name, int64_t out, int64_t in) {
    for (int64_t expert = 0; expert < experts.count; ++expert) {
      add(from + stored + ".weight", fmt::format("{}experts.{}.{}.weight", at, expert, name),
          {out, in});
      params_.back().first_row = expert * out;
      params_.back().stored_matrices = experts.count;
    }
  };
  if (names.has_gate) add_stack("ffn_gate_exps", names.gate, experts.ffn_size, c_.hidden_size);
  add_stack("ffn_up_exps", names.up, experts.ffn_size, c_.hidden_size);
  add_stack("ffn_down_exps", names.down, c_.hidden_size, experts.ffn_size);
  if (experts.shared_ffn_size > 0) add_shared_expert(from, at, names);
}

void GgufParamList::add_shared_expert(const std::string& from, const std::string& at,
                                      const GgufExpertNames& names) {
  const int64_t ffn = c_.experts.shared_ffn_size;
  const int64_t width = c_.hidden_size;
  if (c_.experts.shared_gate) {
    add(from + "ffn_gate_inp_shexp.weight", at + "shared_expert_gate.weight", {1, width});
    params_.back().flat = true;
  }
  const std::string shared = fmt::format("{}{}.", at, names.shared);
  if (names.has_gate) add_linear(from + "ffn_gate_shexp", shared + "gate_proj", ffn, width, false);
  add_linear(from + "ffn_up_shexp", shared + "up_proj", ffn, width, false);
  add_linear(from + "ffn_down_shexp", shared + "down_proj", width, ffn, false);
}

void GgufParamList::add_stacked(const std::string& stored, std::string name, int64_t count,
                                int64_t out, int64_t in) {
  add_made(std::move(name), {count, out, in},
           {.from = {{stored,
                      {count, out, in},
                      [](const GgufFolderRows& folder, int64_t row, float* values) {
                        folder.read(row, values);
                      }}},
            .pieces = count,
            .values = [out](const GgufRows& rows, int64_t piece, float* values) {
              rows.read(0, piece * out, out, values);
            }});
}

void GgufParamList::add_joined(const std::string& first, const std::string& second,
                               std::string name, Shape shape, int64_t count) {
  const int64_t columns = shape[shape.rank() - 1];
  const int64_t rows = shape.count() / columns / count / 2;
  std::vector<int64_t> dims = {rows, columns};
  if (shape.rank() == 3) dims.insert(dims.begin(), count);
  const auto part = [rows](int64_t which) {
    return [rows, which](const GgufFolderRows& folder, int64_t row, float* values) {
      folder.read((row / rows * 2 + which) * rows + row % rows, values);
    };
  };
  add_made(std::move(name), shape,
           {.from = {{first, dims, part(0)}, {second, dims, part(1)}},
            .pieces = 2 * count,
            .values = [rows](const GgufRows& stored, int64_t piece, float* values) {
              stored.read(static_cast<size_t>(piece % 2), piece / 2 * rows, rows, values);
            }});
}

// Of Granite the layer for all tokens, too, has gate and up in one tensor; without experts files
// name it as others do theirs.
void GgufParamList::add_granite_mlp(const std::string& from, const std::string& to, bool experts) {
  const int64_t width = c_.hidden_size;
  const ExpertConfig& e = c_.experts;
  if (experts) {
    const std::string at = to + "block_sparse_moe.";
    add(from + "ffn_gate_inp.weight", at + "router.layer.weight", {e.count, width});
    add_joined(from + "ffn_gate_exps.weight", from + "ffn_up_exps.weight",
               at + "input_linear.weight", {e.count, 2 * e.ffn_size, width}, e.count);
    add_stacked(from + "ffn_down_exps.weight", at + "output_linear.weight", e.count, width,
                e.ffn_size);
  }
  const int64_t shared = experts ? e.shared_ffn_size : c_.ffn_size;
  if (shared == 0) return;
  const std::string end = experts ? "_shexp.weight" : ".weight";
  add_joined(from + "ffn_gate" + end, from + "ffn_up" + end, to + "shared_mlp.input_linear.weight",
             {2 * shared, width}, 1);
  add(from + "ffn_down" + end, to + "shared_mlp.output_linear.weight", {width, shared});
}

// Beside the MLP.
void GgufParamList::add_gemma4_experts(const std::string& from, const std::string& to) {
  const ExpertConfig& e = c_.experts;
  const int64_t width = c_.hidden_size;
  add(from + "ffn_gate_inp.weight", to + "router.proj.weight", {e.count, width});
  add(from + "ffn_gate_inp.scale", to + "router.scale", {width});
  add(from + "ffn_down_exps.scale", to + "router.per_expert_scale", {e.count});
  add_norm(from + "post_ffw_norm_1", to + "post_feedforward_layernorm_1", width);
  add_norm(from + "post_ffw_norm_2", to + "post_feedforward_layernorm_2", width);
  add_norm(from + "pre_ffw_norm_2", to + "pre_feedforward_layernorm_2", width);
  if (file_has(from + "ffn_gate_exps.weight")) {
    add_joined(from + "ffn_gate_exps.weight", from + "ffn_up_exps.weight",
               to + "experts.gate_up_proj", {e.count, 2 * e.ffn_size, width}, e.count);
  } else {
    add_stacked(from + "ffn_gate_up_exps.weight", to + "experts.gate_up_proj", e.count,
                2 * e.ffn_size, width);
  }
  add_stacked(from + "ffn_down_exps.weight", to + "experts.down_proj", e.count, width, e.ffn_size);
}

// In folders gate and up stand in turns, and matrices are transposed unless they are MXFP4.
void GgufParamList::add_gpt_oss_experts(const std::string& from, const std::string& to) {
  const int64_t count = c_.experts.count;
  const int64_t ffn = c_.experts.ffn_size;
  const int64_t width = c_.hidden_size;
  const std::string at = to + "mlp.experts.";
  add_linear(from + "ffn_gate_inp", to + "mlp.router", count, width, true);
  const auto biases = [ffn](const GgufRows& stored, int64_t piece, float* out) {
    std::vector<float> part(static_cast<size_t>(ffn));
    for (const size_t source : {size_t{0}, size_t{1}}) {
      stored.read(source, piece, 1, part.data());
      for (int64_t i = 0; i < ffn; ++i) {
        out[2 * i + static_cast<int64_t>(source)] = part[static_cast<size_t>(i)];
      }
    }
  };
  const auto every_second = [ffn](int64_t which) {
    return [ffn, which](const GgufFolderRows& folder, int64_t row, float* out) {
      for (int64_t i = 0; i < ffn; ++i) out[i] = folder.number(row, 2 * i + which);
    };
  };
  add_made(at + "gate_up_proj_bias", {count, 2 * ffn},
           {.from = {{from + "ffn_gate_exps.bias", {count, ffn}, every_second(0)},
                     {from + "ffn_up_exps.bias", {count, ffn}, every_second(1)}},
            .pieces = count,
            .values = biases});
  add(from + "ffn_down_exps.bias", at + "down_proj_bias", {count, width});
  const GgufTensor* gate = file_ ? file_->find(from + "ffn_gate_exps.weight") : nullptr;
  if (keep_blocks_ && (!file_ || (gate && gate->type->number == kGgufMxfp4))) {
    return add_gpt_oss_blocks(from, at);
  }
  add_gpt_oss_matrices(from, at);
}

void GgufParamList::add_gpt_oss_matrices(const std::string& from, const std::string& at) {
  const int64_t count = c_.experts.count;
  const int64_t ffn = c_.experts.ffn_size;
  const int64_t width = c_.hidden_size;
  // rows x columns of gate and up, in turns along the rows or, transposed, along the columns
  const auto in_turns = [](int64_t rows, int64_t columns) {
    return [=](const GgufRows& stored, int64_t piece, float* out) {
      std::vector<float> part(static_cast<size_t>(rows * columns));
      for (const size_t source : {size_t{0}, size_t{1}}) {
        stored.read(source, piece * rows, rows, part.data());
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t column = 0; column < columns; ++column) {
            out[column * 2 * rows + 2 * row + static_cast<int64_t>(source)] =
                part[static_cast<size_t>(row * columns + column)];
          }
        }
      }
    };
  };
  const auto columns_of = [=](int64_t which) {
    return [=](const GgufFolderRows& folder, int64_t row, float* out) {
      const int64_t first = row / ffn * width;
      for (int64_t i = 0; i < width; ++i) {
        out[i] = folder.number(first + i, 2 * (row % ffn) + which);
      }
    };
  };
  add_made(at + "gate_up_proj", {count, width, 2 * ffn},
           {.from = {{from + "ffn_gate_exps.weight", {count, ffn, width}, columns_of(0)},
                     {from + "ffn_up_exps.weight", {count, ffn, width}, columns_of(1)}},
            .pieces = count,
            .values = in_turns(ffn, width)});
  const auto turned = [=](const GgufRows& stored, int64_t piece, float* out) {
    std::vector<float> part(static_cast<size_t>(ffn * width));
    stored.read(0, piece * width, width, part.data());
    for (int64_t i = 0; i < ffn * width; ++i) {
      out[i] = part[static_cast<size_t>(i % width * ffn + i / width)];
    }
  };
  add_made(at + "down_proj", {count, ffn, width},
           {.from = {{from + "ffn_down_exps.weight",
                      {count, width, ffn},
                      [=](const GgufFolderRows& folder, int64_t row, float* out) {
                        const int64_t first = row / width * ffn;
                        for (int64_t i = 0; i < ffn; ++i) {
                          out[i] = folder.number(first + i, row % width);
                        }
                      }}},
            .pieces = count,
            .values = turned});
}

// The blocks of MXFP4 as they are, codes and powers of two apart.
void GgufParamList::add_gpt_oss_blocks(const std::string& from, const std::string& at) {
  const int64_t count = c_.experts.count;
  const auto add_part = [&](const char* part, int64_t rows, int64_t columns,
                            std::vector<std::string> stored, int64_t own) {
    const int64_t blocks = columns / kMxfp4Elements;
    const auto sources = static_cast<int64_t>(stored.size());
    GgufMade made{.pieces = count * rows};
    for (std::string& name : stored) {
      made.from.push_back({from + std::move(name), {count, own, columns}});
    }
    const auto row_of = [sources](const GgufRows& stored_rows, int64_t piece) {
      return stored_rows.blocks(static_cast<size_t>(piece % sources), piece / sources);
    };
    made.bytes = [=](const GgufRows& stored_rows, int64_t piece, std::byte* out) {
      const std::byte* row = row_of(stored_rows, piece);
      for (int64_t i = 0; i < blocks; ++i) copy_mxfp4_codes(row + i * kMxfp4Bytes, out + 16 * i);
    };
    add_made(fmt::format("{}{}_blocks", at, part), {count, rows, blocks, 16}, made);
    made.bytes = [=](const GgufRows& stored_rows, int64_t piece, std::byte* out) {
      const std::byte* row = row_of(stored_rows, piece);
      for (int64_t i = 0; i < blocks; ++i) out[i] = row[i * kMxfp4Bytes];
    };
    add_made(fmt::format("{}{}_scales", at, part), {count, rows, blocks}, std::move(made));
  };
  const int64_t ffn = c_.experts.ffn_size;
  add_part("gate_up_proj", 2 * ffn, c_.hidden_size, {"ffn_gate_exps.weight", "ffn_up_exps.weight"},
           ffn);
  add_part("down_proj", c_.hidden_size, ffn, {"ffn_down_exps.weight"}, c_.hidden_size);
}

}  // namespace jige::formats
