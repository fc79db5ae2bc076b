#include "model/image_parts.h"

#include <cmath>

#include "model/image_parts_class.h"
#include "model/image_parts_gemma3.h"
#include "model/image_parts_gemma4.h"
#include "model/image_parts_idefics3.h"
#include "model/image_parts_internvl.h"
#include "model/image_parts_pixtral.h"
#include "model/image_parts_qwen.h"
#include "model/image_parts_siglip.h"

namespace jige::model {

int64_t ImagePart::packed_bytes(DType compute) const {
  return packed_.bytes(compute, PackFor::kInference, ops::WeightFormat::kCompute);
}

void ImagePart::pack(Stream& stream, const BlockWeights& weights, DType compute) const {
  for (const Projection* one : projections()) {
    one->pack(stream, weights, compute, PackFor::kInference);
  }
}

double ImagePart::elements() const {
  double sum = 0;
  for (const Projection* one : projections()) {
    sum += static_cast<double>(one->inputs()) * static_cast<double>(one->outputs());
  }
  return sum;
}

std::unique_ptr<const ImagePart> make_image_entry(const formats::ImageConfig& config) {
  switch (config.family) {
    case formats::ImageFamily::kGemma3:
      return std::make_unique<SiglipEntry>(config, kGemma3Tower);
    case formats::ImageFamily::kGemma4:
      if (config.tower.layer_count == 0) return std::make_unique<Gemma4UnifiedEntry>(config);
      return std::make_unique<Gemma4Entry>(config);
    case formats::ImageFamily::kIdefics3:
      return std::make_unique<SiglipEntry>(config, kIdefics3Tower);
    case formats::ImageFamily::kInternVl:
      return std::make_unique<ClassEntry>(config);
    case formats::ImageFamily::kLlava:
      if (config.class_rows > 0) return std::make_unique<ClassEntry>(config);
      return std::make_unique<SiglipEntry>(config, kGemma3Tower);
    case formats::ImageFamily::kQwen2:
    case formats::ImageFamily::kQwen25:
    case formats::ImageFamily::kQwen3:
      return std::make_unique<QwenEntry>(config);
    case formats::ImageFamily::kPixtral:
      break;
  }
  return std::make_unique<PixtralEntry>(config);
}

std::unique_ptr<const ImagePart> make_image_projector(const formats::ImageConfig& config) {
  switch (config.family) {
    case formats::ImageFamily::kGemma3:
      return std::make_unique<Gemma3Projector>(config);
    case formats::ImageFamily::kGemma4:
      return std::make_unique<Gemma4Projector>(config);
    case formats::ImageFamily::kIdefics3:
      return std::make_unique<Idefics3Projector>(config);
    case formats::ImageFamily::kInternVl:
      return std::make_unique<InternVlProjector>(config);
    case formats::ImageFamily::kQwen2:
    case formats::ImageFamily::kQwen25:
    case formats::ImageFamily::kQwen3:
      return std::make_unique<QwenMerger>(config);
    case formats::ImageFamily::kLlava:
    case formats::ImageFamily::kPixtral:
      break;
  }
  return std::make_unique<PixtralProjector>(config);
}

// Of pair i theta^(-2i/d). Rows of Pixtral turn by the pairs of even i and columns by the others;
// those of other towers by the even ones both.
std::vector<double> image_frequencies(const formats::ImageConfig& config) {
  const int64_t half = config.tower.head_dim / 2;
  const bool odd = config.family == formats::ImageFamily::kPixtral;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t pair = i < half / 2 ? 2 * i : 2 * i - half + (odd ? 1 : 0);
    frequencies.push_back(
        std::pow(config.tower.rope.theta, -static_cast<double>(pair) / static_cast<double>(half)));
  }
  return frequencies;
}

LayerNames image_layer_names(const formats::ImageConfig& config, int64_t index) {
  switch (config.family) {
    case formats::ImageFamily::kGemma3:
    case formats::ImageFamily::kLlava:
      return siglip_layer_names(kGemma3Tower, index);
    case formats::ImageFamily::kGemma4:
      return gemma4_layer_names(index);
    case formats::ImageFamily::kInternVl:
      return internvl_layer_names(index);
    case formats::ImageFamily::kIdefics3:
      return siglip_layer_names(kIdefics3Tower, index);
    case formats::ImageFamily::kQwen2:
    case formats::ImageFamily::kQwen25:
    case formats::ImageFamily::kQwen3:
      return qwen_layer_names(config, index);
    case formats::ImageFamily::kPixtral:
      break;
  }
  return pixtral_layer_names(index);
}

}  // namespace jige::model
