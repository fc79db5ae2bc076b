// Delta nets, layers of Mamba 2 and short convolutions, and the layers of Nemotron-H.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "formats/gguf_param_list.h"

namespace jige::formats {

namespace {

// Where each of the places comes from. REQUIRES: place puts every one elsewhere.
std::function<int64_t(int64_t)> inverse_of(int64_t count,
                                           const std::function<int64_t(int64_t)>& place) {
  const auto list = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) (*list)[static_cast<size_t>(place(i))] = i;
  return [list](int64_t at) { return (*list)[static_cast<size_t>(at)]; };
}

}  // namespace

void GgufParamList::add_moved_rows(const std::string& stored, std::vector<int64_t> dims,
                                   std::string name, Shape shape,
                                   std::function<int64_t(int64_t)> place) {
  const int64_t rows = shape[0];
  GgufStored from{.name = stored, .dims = std::move(dims)};
  if (!file_) {
    from.write = [origin = inverse_of(rows, place)](const GgufFolderRows& folder, int64_t row,
                                                    float* out) { folder.read(origin(row), out); };
  }
  add_made(std::move(name), shape,
           {.from = {std::move(from)},
            .pieces = rows,
            .values = [place = std::move(place)](const GgufRows& file, int64_t row, float* out) {
              file.read(0, place(row), 1, out);
            }});
}

void GgufParamList::add_moved_columns(const std::string& stored, std::string name, Shape shape,
                                      std::function<int64_t(int64_t)> place, GgufChange change) {
  const int64_t columns = shape[shape.rank() - 1];
  std::vector<int64_t> dims = {columns};
  if (shape.rank() == 2) dims.insert(dims.begin(), shape[0]);
  const auto put_back = [columns, place](const GgufFolderRows& folder, int64_t row, float* out) {
    for (int64_t i = 0; i < columns; ++i) out[place(i)] = folder.number(row, i);
  };
  const auto move = [columns, place = std::move(place)](const GgufRows& file, int64_t row,
                                                        float* out) {
    std::vector<float> values(static_cast<size_t>(columns));
    file.read(0, row, 1, values.data());
    for (int64_t i = 0; i < columns; ++i) out[i] = values[static_cast<size_t>(place(i))];
  };
  add_made(std::move(name), shape,
           {.from = {{stored, std::move(dims), put_back}},
            .pieces = shape.count() / columns,
            .values = move});
  params_.back().change = change;
}

void GgufParamList::add_recurrent(const std::string& from, const std::string& to) {
  const int64_t width = c_.hidden_size;
  if (c_.mamba2.heads > 0) return add_mamba2(from, to + "mamba.");
  if (c_.delta.key_heads > 0) {
    return c_.family == Family::kQwen3Next ? add_delta_of_next(from, to + "linear_attn.")
                                           : add_delta(from, to + "linear_attn.");
  }
  add_reshaped(from + "shortconv.conv.weight", {width, c_.short_conv.kernel},
               to + "conv.conv.weight", {width, 1, c_.short_conv.kernel});
  add_linear(from + "shortconv.in_proj", to + "conv.in_proj", 3 * width, width, false);
  add_linear(from + "shortconv.out_proj", to + "conv.out_proj", width, width, false);
}

// Value heads come by key head in folders, and in files the first of every key head, then the
// second of every one, and so on.
void GgufParamList::add_delta(const std::string& from, const std::string& at) {
  const DeltaConfig& d = c_.delta;
  const int64_t width = c_.hidden_size;
  const auto head_place = [groups = d.key_heads, each = d.value_heads / d.key_heads](int64_t head) {
    return head % each * groups + head / each;
  };
  const auto value_place = [head_place, size = d.value_dim](int64_t row) {
    return head_place(row / size) * size + row % size;
  };
  const auto channel_place = [value_place, keys = 2 * d.key_columns()](int64_t row) {
    return row < keys ? row : keys + value_place(row - keys);
  };
  const int64_t channels = d.conv_columns();
  add_moved_rows(from + "attn_qkv.weight", {channels, width}, at + "in_proj_qkv.weight",
                 {channels, width}, channel_place);
  add_moved_rows(from + "attn_gate.weight", {d.value_columns(), width}, at + "in_proj_z.weight",
                 {d.value_columns(), width}, value_place);
  add_moved_rows(from + "ssm_beta.weight", {d.value_heads, width}, at + "in_proj_b.weight",
                 {d.value_heads, width}, head_place);
  add_moved_rows(from + "ssm_alpha.weight", {d.value_heads, width}, at + "in_proj_a.weight",
                 {d.value_heads, width}, head_place);
  add_moved_rows(from + "ssm_conv1d.weight", {channels, d.kernel}, at + "conv1d.weight",
                 {channels, 1, d.kernel}, channel_place);
  add_moved_columns(from + "ssm_dt.bias", at + "dt_bias", {d.value_heads}, head_place);
  add_moved_columns(from + "ssm_a", at + "A_log", {d.value_heads}, head_place,
                    GgufChange::kNegativeExp);
  add(from + "ssm_norm.weight", at + "norm.weight", {d.value_dim});
  add_moved_columns(from + "ssm_out.weight", at + "out_proj.weight", {width, d.value_columns()},
                    value_place);
}

// In folders of Qwen3-Next rows of queries, keys, values and gates come by key head; old files have
// them so, too, in ssm_in.
void GgufParamList::add_delta_of_next(const std::string& from, const std::string& at) {
  const DeltaConfig& d = c_.delta;
  const int64_t width = c_.hidden_size;
  const int64_t keys = d.key_columns();
  const int64_t values = d.value_columns();
  const int64_t rows = 2 * keys + 2 * values;
  const int64_t channels = d.conv_columns();
  if (file_has(from + "ssm_in.weight")) {
    add(from + "ssm_in.weight", at + "in_proj_qkvz.weight", {rows, width});
  } else {
    const auto row_of_head = [=, key = d.key_dim, value = values / d.key_heads,
                              all = rows / d.key_heads](const GgufRows& file, int64_t row,
                                                        float* out) {
      const int64_t head = row / all;
      const int64_t in_head = row % all;
      const int64_t in_values = in_head - 2 * key;
      if (in_values >= value) return file.read(1, head * value + in_values - value, 1, out);
      if (in_values >= 0) return file.read(0, 2 * keys + head * value + in_values, 1, out);
      file.read(0, in_head / key * keys + head * key + in_head % key, 1, out);
    };
    const auto write_channels = [=, key = d.key_dim, value = values / d.key_heads,
                                 all = rows / d.key_heads](const GgufFolderRows& folder,
                                                           int64_t row, float* out) {
      const int64_t in_keys = row % keys;
      const int64_t in_values = row - 2 * keys;
      folder.read(in_values < 0 ? in_keys / key * all + row / keys * key + in_keys % key
                                : in_values / value * all + 2 * key + in_values % value,
                  out);
    };
    const auto write_gates = [=, key = d.key_dim, value = values / d.key_heads,
                              all = rows / d.key_heads](const GgufFolderRows& folder, int64_t row,
                                                        float* out) {
      folder.read(row / value * all + 2 * key + value + row % value, out);
    };
    add_made(at + "in_proj_qkvz.weight", {rows, width},
             {.from = {{from + "attn_qkv.weight", {channels, width}, write_channels},
                       {from + "attn_gate.weight", {values, width}, write_gates}},
              .pieces = rows,
              .values = row_of_head});
  }
  add(from + "ssm_ba.weight", at + "in_proj_ba.weight", {2 * d.value_heads, width});
  add_reshaped(from + "ssm_conv1d.weight", {channels, d.kernel}, at + "conv1d.weight",
               {channels, 1, d.kernel});
  add(from + "ssm_dt.bias", at + "dt_bias", {d.value_heads});
  add(from + "ssm_a", at + "A_log", {d.value_heads});
  params_.back().change = GgufChange::kNegativeExp;
  add(from + "ssm_norm.weight", at + "norm.weight", {d.value_dim});
  add(from + "ssm_out.weight", at + "out_proj.weight", {width, values});
}

void GgufParamList::add_mamba2(const std::string& from, const std::string& at) {
  const Mamba2Config& m = c_.mamba2;
  const int64_t values = m.value_columns();
  const int64_t channels = m.conv_columns();
  add_linear(from + "ssm_in", at + "in_proj", values + channels + m.heads, c_.hidden_size, m.bias);
  if (c_.family == Family::kFalconH1) {
    params_.back().written_scale = [m, values](int64_t row) {
      // Gates, values, B, C and steps.
      const int64_t inner = row - 2 * values;
      const int64_t part =
          inner < 0 ? row / values : std::min<int64_t>(2 + inner / m.key_columns(), 4);
      return m.in_scale * m.part_scales[static_cast<size_t>(part)];
    };
  }
  add_reshaped(from + "ssm_conv1d.weight", {channels, m.kernel}, at + "conv1d.weight",
               {channels, 1, m.kernel});
  if (m.conv_bias) add(from + "ssm_conv1d.bias", at + "conv1d.bias", {channels});
  add(from + "ssm_dt.bias", at + "dt_bias", {m.heads});
  add_reshaped(from + "ssm_a", {m.heads, 1}, at + "A_log", {m.heads}, GgufChange::kNegativeExp);
  add_reshaped(from + "ssm_d", {m.heads, 1}, at + "D", {m.heads});
  if (m.norm != GatedNorm::kNone) {
    add_reshaped(from + "ssm_norm.weight", {m.groups, values / m.groups}, at + "norm.weight",
                 {values});
  }
  add_linear(from + "ssm_out", at + "out_proj", c_.hidden_size, values, m.output_bias);
  scale_last(m.out_scale);
}

void GgufParamList::scale_last(double scale) {
  if (scale == 1.0) return;
  params_.back().written_scale = [scale](int64_t) { return scale; };
}

void GgufParamList::add_nemotron_h() {
  const int64_t width = c_.hidden_size;
  add("token_embd.weight", "backbone.embeddings.weight", {c_.vocab_size, width});
  for (int64_t i = 0; i < c_.layer_count; ++i) {
    const std::string from = fmt::format("blk.{}.", i);
    const std::string to = fmt::format("backbone.layers.{}.", i);
    add_norm(from + "attn_norm", to + "norm", width);
    add_nemotron_part(from, to + "mixer.", i);
  }
  add_norm("output_norm", "backbone.norm_f", width);
  add_head("lm_head.weight");
}

void GgufParamList::add_nemotron_part(const std::string& from, const std::string& at,
                                      int64_t layer) {
  const int64_t width = c_.hidden_size;
  if (is_recurrent(c_, layer)) return add_mamba2(from, at);
  if (has_attention_part(c_, layer)) {
    const int64_t query = c_.head_count * c_.head_dim;
    const int64_t kv = c_.kv_head_count * c_.head_dim;
    // Nothing turns, but writers order rows as if it did.
    add_linear(from + "attn_q", at + "q_proj", query, width, false, c_.head_count);
    add_linear(from + "attn_k", at + "k_proj", kv, width, false, c_.kv_head_count);
    add_linear(from + "attn_v", at + "v_proj", kv, width, false);
    add_linear(from + "attn_output", at + "o_proj", width, query, false);
    return;
  }
  if (has_experts(c_, layer)) return add_experts(from, at);
  add_linear(from + "ffn_up", at + "up_proj", c_.ffn_size, width, c_.mlp_bias);
  add_linear(from + "ffn_down", at + "down_proj", width, c_.ffn_size, c_.mlp_bias);
}

}  // namespace jige::formats
