// Adapter: a LoRA adapter beside the base that it was made for, added to the rows that ask for it.
//
//   JIGE_TRY(Adapter adapter, Adapter::open({.name = "poet", .folder = folder}, architecture));
//   adapter.packed_bytes(DType::kBF16);                       // exact, before memory is taken
//   JIGE_DO(adapter.load(arena, stream, DType::kBF16, base_folder));
//   step.rows = {{.adapter = &adapter, .row_begin = 0, .row_end = 7}};
//   block.forward({…, .adapters = &step}, …);
//
// What is adapted is what the folder has tensors for, in any layer on its own; A of a projection's
// parts are stacked, as in training (projection.h), and the numbers are those of its forward.
// Magnitudes of DoRA and biases become factors and addends of columns (adapter_columns.h).
// Values that are not finite make answers fail as those of the base do.
// Threads: const functions from any thread once it is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/lora_config.h"
#include "formats/tensor_folder.h"
#include "model/adapter_columns.h"
#include "model/adapter_tensors.h"
#include "model/architecture.h"
#include "model/device_copies.h"
#include "model/latent_heads.h"
#include "ops/low_rank.h"
#include "tensor/arena.h"

namespace jige::model {

// The number of the base among those that rows may ask for; adapters count from 0.
inline constexpr int32_t kNoAdapter = -1;

// A folder with adapter_config.json and adapter_model.safetensors (or .bin), and what requests call
// it; no name where there is one adapter only.
struct AdapterSource {
  std::string name;
  std::string folder;
  // The flag that gave it: "--adapter NAME=FOLDER".
  std::string flag() const;
};

// What the largest adapter takes that there can be for a model, up to a rank: of all linear layers.
struct AdapterRoom {
  int64_t packed_bytes = 0;
  int64_t product_columns = 0;
  int64_t part_outputs = 0;
};

class Adapter {
 public:
  static AdapterRoom room(const Architecture& architecture, int64_t rank_max, DType compute);

  // Reads the configuration and the head of the tensors and checks them against the base, which
  // must outlive the adapter. Fails as load_lora_config and read_adapter_tensors do, with kNotFound
  // where a folder is not there, kCorrupt where it was made for another model and kUnsupported
  // where it can only be merged; each names flag and folder.
  static Result<Adapter> open(const AdapterSource& source, const Architecture& architecture);

  const AdapterSource& source() const { return source_; }
  const formats::LoraConfig& config() const { return config_; }
  // The highest of its modules.
  int64_t rank_max() const;
  // Bytes of the packed matrices.
  int64_t packed_bytes(DType compute) const;
  // Of the widest projection: rows of all its parts' A, and outputs of a part.
  int64_t product_columns() const;
  int64_t part_outputs() const;

  // Takes the memory and packs; the files are let go of. What it needs of the base's numbers is
  // read from that folder. Fails with kExhausted where the arena's cap is too small, and as
  // column_change does. REQUIRES: not loaded yet.
  Status load(Arena& arena, Stream& stream, DType compute, const std::string& base_folder);
  // Packs into memory that is there, and must outlive the adapter's use. REQUIRES: packed_bytes of
  // it, not loaded yet.
  Status load(const TensorView& memory, Stream& stream, DType compute,
              const std::string& base_folder);
  // What is added to a projection's result; null where it is not adapted. REQUIRES: loaded.
  std::shared_ptr<const ops::LowRankWeight> find(const Projection& projection) const;
  // The same of a projection that is taken apart by head, which has no other.
  const HeadLowRank* find_heads(const Projection& projection) const;

 private:
  // One adapted projection: its parts with a pair.
  struct Target {
    const Projection* projection = nullptr;
    struct Part {
      AdapterPair pair;
      int64_t column = 0;
      std::optional<StoredRows> stored_rows = {};  // of the pair's B
      const ParamSpec* weight = nullptr;           // of the base
      const ParamSpec* bias = nullptr;             // likewise, or null
      bool has_factors = false;                    // of columns
      bool has_addends = false;
    };
    std::vector<Part> parts;
  };

  explicit Adapter(AdapterSource source) : source_(std::move(source)) {}
  Status read(const Architecture& architecture);
  Status add_targets(const Architecture& architecture, const AdapterTensors& tensors);
  Result<Target::Part> make_part(const TransformerLayer& layer, const Projection& projection,
                                 const ProjectionOptions::Part& part, const std::string& module,
                                 const AdapterPair& pair) const;
  // What was found in no layer.
  Status refuse_module(const std::string& module) const;
  // Rows of all its parts' A.
  static int64_t rank_of(const Target& target);
  // B of a part with its rows in the order of models: as the folder has it, or in `memory`.
  static TensorView b_rows(const Target::Part& part, std::vector<std::byte>& memory);
  static AdaptedPart adapted_part(const Target& target, const Target::Part& part);
  Status pack_target(const Target& target, const ops::LowRankWeight& weight, Stream& stream,
                     DeviceCopies& copies) const;
  Status put_columns(const Target& target, const ops::LowRankWeight& weight, Stream& stream,
                     BaseNumbers& base) const;
  // Of the last kind, as below.
  HeadLowRank place_heads(const Target& target, DType compute, std::byte* memory,
                          int64_t& at) const;
  // A weight whose matrices lie in `memory` one behind the other, from byte `at` on, which moves.
  ops::LowRankWeight place(const Target& target, DType compute, std::byte* memory,
                           int64_t& at) const;

  AdapterSource source_;
  const Architecture* architecture_ = nullptr;
  formats::LoraConfig config_;
  std::optional<formats::TensorFolder> files_;  // until loaded
  std::vector<Target> targets_;                 // in the order of the graph
  Tensor memory_;
  std::unordered_map<const Projection*, std::shared_ptr<const ops::LowRankWeight>> weights_;
  std::unordered_map<const Projection*, HeadLowRank> heads_;
};

// Rows [row_begin, row_end) of a step and their adapter.
struct AdapterRows {
  const Adapter* adapter = nullptr;
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

// What blocks add to the rows of a step. Rows of the base are in no range.
struct StepAdapters {
  std::vector<AdapterRows> rows;
  TensorView product;  // [T, AdapterSizes::product_columns], compute type
  TensorView scratch;  // u8, for AdapterSizes::part_outputs
};

// What the adapters of a model take; packed forms by adapter, then those of rooms for more.
struct AdapterSizes {
  std::vector<int64_t> packed_bytes;
  int64_t product_columns = 0;  // the largest of all
  int64_t part_outputs = 0;
  bool empty() const { return packed_bytes.empty(); }
};
AdapterSizes adapter_sizes(const std::vector<Adapter>& adapters, DType compute);

// Opens them in their order. Fails as Adapter::open does.
Result<std::vector<Adapter>> open_adapters(const std::vector<AdapterSource>& sources,
                                           const Architecture& architecture);

}  // namespace jige::model
