// Family: the families of models that Jige knows, by the names of their rows in the tables
// (model_families.h).
//
// Threads: constants.
#pragma once

namespace jige::formats {

enum class Family {
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kGpt2,
  kGptBigCode,
  kOpt,
  kGptNeo,
  kGptJ,
  kFalcon,
  kPhi3,
  kGemma2,
  kGemma3,
  kOlmo2,
  kOlmo3,
  kGranite,
  kSmolLm3,
  kStarCoder2,
  kStableLm,
  kSeedOss,
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
  kOlmoe,
  kGptOss,
  kGptNeoX,
  kPhi,
  kCohere,
  kCohere2,
  kGemma,
  kGlm,
  kGlm4,
  kExaone4,
  kErnie45,
  kMinistral,
  kMinistral3,
  kArcee,
  kNemotron,
  kYoutu,
  kDeepSeekV2,
  kDeepSeekV3,
  kMiniCpm,
  kMiniCpm3,
  kGlm4Moe,
  kGlm4MoeLite,
  kGraniteMoe,
  kGraniteMoeShared,
  kErnie45Moe,
  kDots1,
  kMiniMaxM2,
  kApertus,
  kGemma4,
  kGemma3n,
  kLlama4,
  kVaultGemma,
  kHelium,
  kOlmo,
  kExaone,
  kInternLm2,
  kInternLm3,
  kExaoneMoe,
  kHunYuanDense,
  kHunYuanMoe,
  kCwm,
  kFlexOlmo,
  kSolarOpen,
  kJais2,
  kIQuestCoder,
  kNanoChat,
  kMellum,
  kHyperClovaX,
  kGraniteSwa,
  kGraniteMoeSwa,
  kMistral4,
  kBert,
  kRoberta,
  kXlmRoberta,
  kQwen35,
  kQwen35Moe,
  kQwen3Next,
  kLfm2,
  kLfm2Moe,
  kLfm3,
  kGraniteHybrid,
  kBamba,
  kNemotronH,
  kFalconH1,
  kOlmoHybrid,
  kMamba,
  kFalconMamba,
  kMamba2,
  kJamba,
  kHyV3,
  kKimiLinear,
  kModernBert,
  kDistilBert,
  kMpNet,
  kNomicBert,
  kDebertaV2,
  kGte,
  kEuroBert
};
inline constexpr Family kLastFamily = Family::kEuroBert;

// Families whose feed-forward layers, or some of them, are experts.
inline constexpr bool has_experts(Family family) {
  return family == Family::kMixtral || family == Family::kQwen2Moe || family == Family::kQwen3Moe ||
         family == Family::kOlmoe || family == Family::kGptOss || family == Family::kDeepSeekV2 ||
         family == Family::kDeepSeekV3 || family == Family::kGlm4Moe ||
         family == Family::kGlm4MoeLite || family == Family::kQwen35Moe ||
         family == Family::kQwen3Next || family == Family::kLfm2Moe ||
         family == Family::kGraniteHybrid || family == Family::kNemotronH ||
         family == Family::kGraniteMoe || family == Family::kGraniteMoeShared ||
         family == Family::kErnie45Moe || family == Family::kDots1 ||
         family == Family::kMiniMaxM2 || family == Family::kGemma4 ||
         family == Family::kHunYuanMoe || family == Family::kFlexOlmo ||
         family == Family::kSolarOpen || family == Family::kLlama4 ||
         family == Family::kExaoneMoe || family == Family::kMellum ||
         family == Family::kGraniteMoeSwa || family == Family::kMistral4 ||
         family == Family::kJamba || family == Family::kHyV3 || family == Family::kKimiLinear;
}

}  // namespace jige::formats
