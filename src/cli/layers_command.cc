// jige layers: holds layers of a model for a program on another machine.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/layers_on_flags.h"
#include "cli/output.h"
#include "serve/layer_holder.h"

namespace jige::cli {
namespace {

class LayersCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Lends this machine's memory and processor, or a GPU, to a model that is too large for "
        "one machine: "
        "holds some of its layers, and computes them for `jige serve`, generate, chat, score or "
        "embed with --layers-on on another machine, which says which ones. A copy of the model "
        "folder must be here. It serves one program at a time, and the next when that one has "
        "gone; Ctrl-C ends it. What it says is not encrypted, and whoever reaches it may use it: "
        "run it in a network you trust.");
    flags.text("FOLDER", folder_, "model folder, or folder of a run");
    flags.text("--listen ADDRESS", listen_,
               fmt::format("ADDRESS[:PORT] by which the other machine reaches this one, 0.0.0.0 "
                           "for all; port {} unless given, 0 for a free one",
                           kLayersPort));
    flags.section("Machine");
    flags.text("--device NAME", device_.device,
               "what holds the layers and computes them: cpu, cuda (the first NVIDIA GPU) or "
               "cuda:N (GPU N); a machine with several runs this once for each, on other ports");
    flags.integer("--threads N", device_.threads, thread_range(0),
                  "threads, 8 for each processor at most; 0: as many as the process may use");
    flags.bytes("--memory-limit SIZE", device_.memory_limit_bytes,
                "memory for layers, their caches and buffers at most; unless given, three "
                "quarters of what is free, of a GPU all but a sixteenth");
    output_.declare(flags, "one JSON line when it listens, and when layers are taken and released");
    flags.example("jige layers models/llama-3.1-70b --listen 10.0.0.2");
    flags.example("jige layers models/llama-3.1-70b --listen 10.0.0.3 --memory-limit 48GiB");
    flags.example("jige layers models/llama-3.1-70b --listen 10.0.0.4 --device cuda:1");
    flags.example("jige serve models/llama-3.1-70b --layers-on 10.0.0.2,10.0.0.3");
  }

  Status run() override {
    output_.apply();
    outlive_readers();
    const InterruptScope interrupts;
    JIGE_TRY(const std::string folder, find_model_folder(folder_));
    JIGE_TRY(const comm::Address listen, parse_layers_address(listen_, "--listen"));
    JIGE_TRY(const std::optional<int> gpu, device_.gpu_index());
    JIGE_TRY(const int64_t memory_bytes, layers_memory_bytes(device_, gpu));
    JIGE_TRY(const ComputeDevices devices, device_.make());
    JIGE_TRY(const auto holder,
             serve::LayerHolder::listen(devices.compute(), {.folder = folder,
                                                            .listen = listen,
                                                            .gpu = devices.gpu_as_computer(),
                                                            .memory_bytes = memory_bytes}));
    const std::string address = holder->address().text();
    if (output_.json) {
      print_json({{"event", "listening"}, {"address", address}, {"memory_bytes", memory_bytes}});
    } else {
      print_text(fmt::format("listening on {}, with room for {}; Ctrl-C ends it\n", address,
                             format_bytes(memory_bytes)));
    }
    return holder->serve(interrupt_flag(),
                         [this](const serve::LayerHolder::Event& event) { tell(event); });
  }

 private:
  void tell(const serve::LayerHolder::Event& event) const {
    const bool holding = event.kind == serve::LayerHolder::Event::Kind::kHolding;
    if (output_.json) {
      Json json{{"event", holding ? "holding" : "released"},
                {"peer", event.peer},
                {"layers", {event.layer_begin, event.layer_end}}};
      if (holding) json["bytes"] = event.bytes;
      if (!holding) json["rows"] = event.rows;
      if (!event.reason.empty()) json["reason"] = event.reason;
      return print_json(json);
    }
    const std::string layers =
        event.layer_end > event.layer_begin
            ? fmt::format("layers {} to {}", event.layer_begin, event.layer_end - 1)
            : "no layers";
    if (holding) {
      print_text(fmt::format("{} for {}: {}\n", layers, event.peer, format_bytes(event.bytes)));
    } else {
      print_text(fmt::format("released: {} for {}, {} rows computed{}{}\n", layers, event.peer,
                             event.rows, event.reason.empty() ? "" : "; ", event.reason));
    }
  }

  std::string folder_, listen_ = "0.0.0.0";
  DeviceFlags device_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_layers_command() { return std::make_unique<LayersCommand>(); }

}  // namespace jige::cli
