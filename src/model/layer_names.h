// LayerNames: how the files of a family name what a layer of the model has. The one place that
// knows names of layers; blocks are given theirs.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/altup_layer.h"
#include "model/delta_attention.h"
#include "model/expert_mlp.h"
#include "model/experts_beside.h"
#include "model/grouped_attention.h"
#include "model/kimi_delta.h"
#include "model/latent_attention.h"
#include "model/laurel.h"
#include "model/layer_input.h"
#include "model/mamba1.h"
#include "model/mamba2.h"
#include "model/short_conv.h"

namespace jige::model {

// Full names of a layer's modules, without ".weight".
struct LayerNames {
  std::string norm1;
  GroupedAttentionNames attention;
  LatentAttentionNames latent;  // in its place, in families that have latents
  DeltaAttentionNames delta;    // in recurrent layers, or one of these:
  KimiDeltaNames kimi_delta;
  ShortConvNames short_conv;
  Mamba1Names mamba1;
  Mamba2Names mamba2;
  std::string attention_output;
  std::string recurrent_output;  // of what stands beside attention
  std::string norm1_after;       // of numbers of each column a whole name
  std::string norm2;
  std::vector<std::string> ffn_input;  // gate and up, or one
  bool gate_last = false;              // which has the gate behind what it gates
  std::string ffn_output;
  std::string ffn_curve;  // before the names of the numbers of xIELU
  ExpertNames experts;    // in place of both, in families that have them, or beside them
  ExpertsBesideNames beside;
  std::string norm2_after;
  LayerInputNames input;
  AltUpNames altup;
  LaurelNames laurel;
  std::string scale;  // a whole name
};

LayerNames layer_names(const formats::ModelConfig& config, int64_t index);

}  // namespace jige::model
