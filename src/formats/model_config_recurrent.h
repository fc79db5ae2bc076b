// What families share that have other layers than attention in some places, with a state of a size
// that does not grow: delta nets (model_config_delta.h), short convolutions (model_config_lfm2.h)
// and layers of Mamba (model_config_mamba1.h) and Mamba 2 (model_config_mamba2.h). layer_types says
// which layers have which, or a list of those with attention.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "formats/model_config.h"

namespace jige::formats {

// The most tokens that a convolution may be over.
inline constexpr int64_t kConvolutionMax = 8;

// Whether layers of the family may be recurrent.
bool may_be_recurrent(Family family);

// Reads the family's fields and sets layer_is_recurrent. REQUIRES: layers of the family may be
// recurrent.
Status parse_recurrent(const Json& config, ModelConfig& out, std::string_view where);
void emit_recurrent(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument, also where the family has no such layers and they are given.
Status check_recurrent(const ModelConfig& config, std::string_view where);

// Parameters of a recurrent layer's part in place of attention or beside it, without the norm
// before it.
int64_t recurrent_parameter_count(const ModelConfig& config);

// What layer_types calls the two kinds of layers.
struct LayerTypes {
  std::string_view attention;
  std::string_view recurrent;
};
inline constexpr LayerTypes kUsualLayerTypes{"full_attention", "linear_attention"};
inline constexpr LayerTypes kConvLayerTypes{"full_attention", "conv"};
inline constexpr LayerTypes kMambaLayerTypes{"attention", "mamba"};

// Sets layer_is_recurrent by layer_types, in names of any of the spellings, or where it is absent
// to the usual flags. Fails with kUnsupported on other names.
Status parse_recurrent_layers(const Json& config, std::initializer_list<LayerTypes> spellings,
                              std::vector<uint8_t> usual, ModelConfig& out, std::string_view where);
void emit_recurrent_layers(const ModelConfig& config, const LayerTypes& spelling, Json& out);

// Flags of all layers but those that a list of numbers has; without the list, of all.
Result<std::vector<uint8_t>> all_but_listed_layers(const Json& config, const char* field,
                                                   int64_t layer_count, std::string_view where);
// Sets layer_is_recurrent.
void set_recurrent_layers(std::vector<uint8_t> flags, ModelConfig& out);

}  // namespace jige::formats
