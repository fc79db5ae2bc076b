// The places of a forward's rows: their index or, in sequences with images, what these give them.
#include <utility>

#include "model/inference.h"

namespace jige::model {
namespace {

bool is_one_place(const TokenPlace& place) { return place[0] == place[1] && place[1] == place[2]; }

}  // namespace

Status InferenceModel::turn_by_places(PairPlaces pairs) {
  const auto refused = [&](std::string_view why) {
    return fail(Code::kUnsupported,
                "heads of a {} turn by the lines and columns of images, for which {} have no way "
                "yet; run it on a CPU, with all of its layers, or on text alone",
                formats::family_name(config().family), why);
  };
  if (arena_.device().kind() != DeviceKind::kCpu) return refused("GPUs");
  if (beyond_ || !sizes_.layers.ends) return refused("layers on other machines");
  JIGE_DO(PlaceAngles::check(config(), pairs));
  place_angles_ = PlaceAngles(std::move(pairs));
  host_angles_.reserve(static_cast<size_t>(sizes_.batch_tokens_max * place_angles_.columns()));
  return {};
}

Status InferenceModel::check_places(const InferenceBatch& batch) const {
  if (batch.places.empty()) return {};
  if (!turns_by_places() || beyond_) {
    return fail(Code::kUnsupported, "sequences have images with places, by which nothing turns");
  }
  if (batch.places.size() == batch.sequences.size()) return {};
  return fail(Code::kInvalidArgument, "places of {} sequences, of {}", batch.places.size(),
              batch.sequences.size());
}

void InferenceModel::put_positions(const InferenceBatch& batch) {
  host_positions_.clear();
  host_angles_.clear();
  batch_.angles = {};
  std::vector<TokenPlace> places;
  bool one_each = true;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const ops::SequenceSpan& sequence = batch.sequences[s];
    const ImagePlaces* const images = batch.places.empty() ? nullptr : batch.places[s];
    for (int32_t i = 0; i < sequence.row_count; ++i) {
      const int32_t index = sequence.context_count + i;
      const TokenPlace place = images ? images->at(index) : TokenPlace{index, index, index};
      one_each = one_each && is_one_place(place);
      host_positions_.push_back(place[0]);
      if (!batch.places.empty()) places.push_back(place);
    }
  }
  if (one_each) return;
  const int64_t columns = place_angles_.columns();
  host_angles_.resize(places.size() * static_cast<size_t>(columns));
  for (size_t row = 0; row < places.size(); ++row) {
    host_positions_[row] = static_cast<int32_t>(row);
    place_angles_.write(weights_->block(0).rope_table, places[row],
                        host_angles_.data() + static_cast<int64_t>(row) * columns);
  }
  batch_.angles =
      TensorView::of(host_angles_.data(), DType::kF32, Shape{std::ssize(places), columns});
}

}  // namespace jige::model
