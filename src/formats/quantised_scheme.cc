#include "formats/quantised_scheme.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

namespace jige::formats {
namespace {

constexpr size_t kGroupsMax = 256;
constexpr std::string_view kRemedy = "take the unquantised model";

std::string shown(const Json& value) { return dump_json(value).substr(0, 80); }

tl::unexpected<Error> refuse_field(std::string_view where, std::string_view field,
                                   const Json& value, std::string_view supported) {
  return fail(Code::kUnsupported,
              "{}: field \"{}\" of quantization_config is {}, which Jige does not read (it reads "
              "{}); {}",
              where, field, shown(value), supported, kRemedy);
}

// A string field that must be one of a few; `fallback` where it is absent or null.
Result<std::string> one_of(const Json& config, std::string_view field, std::string_view fallback,
                           std::initializer_list<std::string_view> known, std::string_view where) {
  JIGE_TRY(const std::string given, get_string_or(config, field, fallback, where));
  std::string name = given;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (std::find(known.begin(), known.end(), name) != known.end()) return name;
  return refuse_field(where, field, given, fmt::format("{}", fmt::join(known, ", ")));
}

Result<int> bits_of(const Json& config, std::string_view field, std::initializer_list<int> known,
                    std::string_view where) {
  JIGE_TRY(const int64_t bits, get_int(config, field, where));
  for (const int one : known) {
    if (bits == one) return one;
  }
  return refuse_field(where, field, bits, fmt::format("{}", fmt::join(known, ", ")));
}

Status check_block(std::string_view field, int64_t size, std::string_view where) {
  if (size >= 1 && size <= kQuantisedBlockMax) return {};
  return fail(Code::kCorrupt, "{}: field \"{}\" of quantization_config is {}; it must be in 1..{}",
              where, field, size, kQuantisedBlockMax);
}

// A field that has to be absent, null, false or empty.
Status must_be_empty(const Json& config, std::string_view field, std::string_view where) {
  const Json* value = find_field(config, field);
  if (!value || (value->is_structured() && value->empty())) return {};
  if (value->is_boolean() && !value->get<bool>()) return {};
  return refuse_field(where, field, *value, "models without it");
}

Status set_block(const Json& pair, std::string_view field, QuantisedWeights& weights,
                 std::string_view where) {
  const auto whole = [](const Json& one) { return one.is_number_integer(); };
  if (!pair.is_array() || pair.size() != 2 || !whole(pair[0]) || !whole(pair[1])) {
    return fail(Code::kCorrupt,
                "{}: field \"{}\" of quantization_config is {}; it must be two "
                "whole numbers",
                where, field, shown(pair));
  }
  const Json wrapped = {{"rows", pair[0]}, {"columns", pair[1]}};
  JIGE_TRY(weights.block_rows, get_int(wrapped, "rows", where));
  JIGE_TRY(weights.block_columns, get_int(wrapped, "columns", where));
  JIGE_DO(check_block(field, weights.block_rows, where));
  return check_block(field, weights.block_columns, where);
}

// -1: one group a row.
Status set_group(int64_t size, QuantisedWeights& weights, std::string_view where) {
  weights.block_rows = 1;
  weights.block_columns = size == -1 ? 0 : size;
  return size == -1 ? Status{} : check_block("group_size", size, where);
}

// The modules of methods that have one form for all.
QuantisedGroup every_linear(const QuantisedWeights& weights) {
  const Json linear = Json::array({"Linear"});
  return {.targets = ModulePatterns::parse(&linear, PatternStyle::kCompressedTensors, "").value(),
          .weights = weights};
}

Status parse_fp8(const Json& config, QuantisedScheme& out, std::string_view where) {
  QuantisedWeights weights{.layout = QuantisedLayout::kFloat8};
  JIGE_DO(
      one_of(config, "fmt", "e4m3", {"e4m3", "float8_e4m3fn"}, where).map([](const std::string&) {
      }));
  JIGE_DO(one_of(config, "activation_scheme", "dynamic", {"dynamic", "static"}, where)
              .map([](const std::string&) {}));
  JIGE_DO(
      one_of(config, "scale_fmt", "float", {"float", "ue8m0"}, where).map([](const std::string&) {
      }));
  JIGE_DO(one_of(config, "expert_dtype", "fp8", {"fp8"}, where).map([](const std::string&) {}));
  JIGE_DO(must_be_empty(config, "modules_to_convert", where));
  if (const Json* block = find_field(config, "weight_block_size")) {
    JIGE_DO(set_block(*block, "weight_block_size", weights, where));
  } else {
    // Left out, some writers mean 128 x 128 and some a scale a matrix; null is the latter.
    const bool whole = config.contains("weight_block_size");
    weights.block_rows = weights.block_columns = whole ? 0 : 128;
    weights.one_scale = true;
  }
  out.groups.push_back(every_linear(weights));
  const char* field =
      find_field(config, "modules_to_not_convert") ? "modules_to_not_convert" : "ignored_layers";
  JIGE_TRY(out.ignored,
           ModulePatterns::parse(find_field(config, field), PatternStyle::kTransformers,
                                 fmt::format("{}: field \"{}\"", where, field)));
  return {};
}

Status set_strategy(const Json& args, QuantisedWeights& weights, std::string_view where) {
  const Json* size = find_field(args, "group_size");
  JIGE_TRY(const int64_t group_size, get_int_or(args, "group_size", -1, where));
  const char* usual = !size ? "tensor" : group_size == -1 ? "channel" : "group";
  JIGE_TRY(const std::string strategy,
           one_of(args, "strategy", usual, {"tensor", "channel", "group", "block"}, where));
  if (strategy == "tensor") {
    weights.block_rows = 0;
  } else if (strategy == "group") {
    JIGE_DO(set_group(group_size, weights, where));
  } else if (strategy == "block") {
    const Json* block = find_field(args, "block_structure");
    JIGE_DO(set_block(block ? *block : Json(), "block_structure", weights, where));
  }
  if (weights.layout == QuantisedLayout::kPacked && weights.block_rows != 1 &&
      weights.zero_points) {
    return refuse_field(where, "strategy", strategy,
                        "group and channel where \"symmetric\" is false");
  }
  return {};
}

// The "weights" of a group of compressed-tensors.
Result<QuantisedWeights> parse_args(const Json& args, std::string_view format,
                                    std::string_view where) {
  QuantisedWeights weights;
  const bool float8 = format == "float-quantized";
  JIGE_DO(
      one_of(args, "type", "int", {float8 ? "float" : "int"}, where).map([](const std::string&) {
      }));
  const bool packed = format == "pack-quantized";
  if (packed) {
    JIGE_TRY(weights.bits, bits_of(args, "num_bits", {4, 8}, where));
  } else {
    JIGE_TRY(weights.bits, bits_of(args, "num_bits", {8}, where));
  }
  weights.layout = float8   ? QuantisedLayout::kFloat8
                   : packed ? QuantisedLayout::kPacked
                            : QuantisedLayout::kInt8;
  JIGE_TRY(const bool symmetric, get_bool_or(args, "symmetric", true, where));
  weights.zero_points = !symmetric;
  if (float8 && !symmetric) return refuse_field(where, "symmetric", symmetric, "true");
  JIGE_DO(must_be_empty(args, "dynamic", where));
  const Json* order = find_field(args, "actorder");
  if (order && !order->is_boolean()) {
    JIGE_TRY(const std::string name,
             one_of(args, "actorder", "", {"group", "dynamic", "weight", "static"}, where));
    weights.ordered = name == "group" || name == "dynamic";
  } else if (order) {
    weights.ordered = order->get<bool>();
  }
  JIGE_DO(set_strategy(args, weights, where));
  if (weights.ordered && (!packed || weights.block_columns == 0)) {
    return refuse_field(where, "actorder", *order, "it in groups that are pack-quantized");
  }
  return weights;
}

Status parse_compressed(const Json& config, QuantisedScheme& out, std::string_view where) {
  JIGE_TRY(
      out.format,
      one_of(config, "format", "absent",
             {"float-quantized", "int-quantized", "pack-quantized", "mixed-precision"}, where));
  const Json* sparsity = find_field(config, "sparsity_config");
  if (sparsity && !sparsity->empty()) {
    JIGE_DO(one_of(*sparsity, "format", "dense", {"dense"}, where).map([](const std::string&) {}));
  }
  if (const Json* transform = find_field(config, "transform_config")) {
    JIGE_DO(must_be_empty(*transform, "config_groups", where));
  }
  const Json* groups = find_field(config, "config_groups");
  if (!groups || !groups->is_object() || groups->empty() || groups->size() > kGroupsMax) {
    return fail(Code::kCorrupt,
                "{}: field \"config_groups\" of quantization_config must be an object of 1 to {} "
                "groups",
                where, kGroupsMax);
  }
  for (const auto& [name, group] : groups->items()) {
    if (!group.is_object()) return refuse_field(where, name, group, "groups with all their fields");
    const std::string place = fmt::format("{}: group \"{}\"", where, name);
    const Json* args = find_field(group, "weights");
    if (!args) continue;  // of activations alone
    std::string format = out.format;
    if (format == "mixed-precision") {
      JIGE_TRY(format, one_of(group, "format", "absent",
                              {"float-quantized", "int-quantized", "pack-quantized"}, place));
    } else if (find_field(group, "format")) {
      JIGE_DO(one_of(group, "format", "", {format}, place).map([](const std::string&) {}));
    }
    QuantisedGroup& to = out.groups.emplace_back();
    JIGE_TRY(to.weights, parse_args(*args, format, place));
    JIGE_TRY(to.targets,
             ModulePatterns::parse(find_field(group, "targets"), PatternStyle::kCompressedTensors,
                                   place + ": field \"targets\""));
  }
  JIGE_TRY(out.ignored,
           ModulePatterns::parse(find_field(config, "ignore"), PatternStyle::kCompressedTensors,
                                 fmt::format("{}: field \"ignore\"", where)));
  return {};
}

// GPTQModel's rules for single modules: those it leaves out are in floating point.
Status parse_gptq_rules(const Json& config, QuantisedScheme& out, std::string_view where) {
  const Json* rules = find_field(config, "dynamic");
  if (!rules) return {};
  if (!rules->is_object() || rules->size() > kModulePatternsMax) {
    return fail(Code::kCorrupt, "{}: field \"dynamic\" must be an object of at most {} rules",
                where, kModulePatternsMax);
  }
  for (const auto& [rule, changes] : rules->items()) {
    const std::string place = fmt::format("{}: field \"dynamic\"", where);
    if (rule.starts_with("-:")) {
      JIGE_DO(out.ignored.add_expression(std::string_view(rule).substr(2), place));
    } else if (!changes.empty()) {
      return refuse_field(where, "dynamic", rule, "rules that leave modules out, with \"-:\"");
    }
  }
  return {};
}

Status parse_gptq(const Json& config, QuantisedScheme& out, std::string_view where) {
  QuantisedWeights weights{.layout = QuantisedLayout::kGptq, .zero_points = true};
  JIGE_TRY(weights.bits, bits_of(config, "bits", {4, 8}, where));
  JIGE_TRY(const int64_t group_size, get_int_or(config, "group_size", 128, where));
  JIGE_DO(set_group(group_size, weights, where));
  JIGE_TRY(weights.ordered, get_bool_or(config, "desc_act", false, where));
  JIGE_DO(get_bool_or(config, "sym", true, where).map([](bool) {}));
  const char* field = find_field(config, "checkpoint_format") ? "checkpoint_format" : "format";
  JIGE_TRY(out.format, one_of(config, field, "gptq", {"gptq", "gptq_v2"}, where));
  weights.zeros_less_one = out.format == "gptq";
  JIGE_DO(one_of(config, "pack_dtype", "int32", {"int32"}, where).map([](const std::string&) {}));
  JIGE_DO(must_be_empty(config, "is_marlin_format", where));
  JIGE_DO(parse_gptq_rules(config, out, where));
  out.groups.push_back(every_linear(weights));
  return {};
}

Status parse_awq(const Json& config, QuantisedScheme& out, std::string_view where) {
  QuantisedWeights weights{.layout = QuantisedLayout::kAwq, .zero_points = true};
  JIGE_TRY(weights.bits,
           bits_of(config, find_field(config, "bits") ? "bits" : "w_bit", {4}, where));
  const char* size = find_field(config, "q_group_size") ? "q_group_size" : "group_size";
  JIGE_TRY(const int64_t group_size, get_int_or(config, size, 128, where));
  JIGE_DO(set_group(group_size, weights, where));
  JIGE_TRY(const bool zero_point, get_bool_or(config, "zero_point", true, where));
  if (!zero_point) return refuse_field(where, "zero_point", zero_point, "true");
  const char* field = find_field(config, "version") ? "version" : "format";
  JIGE_TRY(out.format, one_of(config, field, "gemm", {"gemm"}, where));
  JIGE_TRY(const std::string backend, get_string_or(config, "backend", "auto", where));
  if (backend == "llm-awq") return refuse_field(where, "backend", backend, "what AutoAWQ writes");
  out.groups.push_back(every_linear(weights));
  JIGE_TRY(out.ignored,
           ModulePatterns::parse(find_field(config, "modules_to_not_convert"),
                                 PatternStyle::kTransformers,
                                 fmt::format("{}: field \"modules_to_not_convert\"", where)));
  return {};
}

}  // namespace

Result<const QuantisedWeights*> QuantisedScheme::find(std::string_view module) const {
  JIGE_TRY(const PatternMatch left_out, ignored.match(module));
  if (left_out != PatternMatch::kNone) return nullptr;
  const QuantisedWeights* found = nullptr;
  PatternMatch best = PatternMatch::kNone;
  for (const QuantisedGroup& group : groups) {
    JIGE_TRY(const PatternMatch match, group.targets.match(module));
    if (match > best) {
      best = match;
      found = &group.weights;
    }
  }
  return found;
}

Result<QuantisedScheme> parse_quantised_scheme(const Json& config, std::string_view where) {
  if (!config.is_object()) {
    return fail(Code::kCorrupt, "{}: field \"quantization_config\" must be an object", where);
  }
  QuantisedScheme out;
  JIGE_TRY(out.method, get_string_or(config, "quant_method", "absent", where));
  using Parser = Status (*)(const Json&, QuantisedScheme&, std::string_view);
  constexpr std::pair<std::string_view, Parser> kParsers[] = {
      {"fp8", parse_fp8},
      {"compressed-tensors", parse_compressed},
      {"gptq", parse_gptq},
      {"awq", parse_awq}};
  for (const auto& [method, parse] : kParsers) {
    if (out.method != method) continue;
    JIGE_DO(parse(config, out, where));
    return out;
  }
  return refuse_field(where, "quant_method", out.method, "fp8, compressed-tensors, gptq, awq");
}

std::string quantised_text(const QuantisedWeights& weights) {
  const std::string numbers =
      weights.layout == QuantisedLayout::kFloat8 ? "F8_E4M3" : fmt::format("{} bits", weights.bits);
  if (weights.block_rows == 0) return numbers + ", a scale a matrix";
  if (weights.block_columns == 0) return numbers + ", a scale a row";
  if (weights.block_rows == 1)
    return fmt::format("{} in groups of {}", numbers, weights.block_columns);
  return fmt::format("{} in blocks of {} x {}", numbers, weights.block_rows, weights.block_columns);
}

std::string quantised_text(const QuantisedScheme& scheme) {
  std::vector<std::string> parts;
  for (const QuantisedGroup& group : scheme.groups) {
    const std::string part = quantised_text(group.weights);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  const bool told = !scheme.format.empty() && scheme.format != scheme.method;
  return fmt::format("{}{}: {}", scheme.method, told ? ", " + scheme.format : "",
                     fmt::join(parts, "; "));
}

}  // namespace jige::formats
