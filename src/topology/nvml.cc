#include "topology/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>

namespace jige::topology {
namespace {

// NVML's binary interface, as its reference describes it.
using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceOpaque*;
constexpr NvmlReturn kSuccess = 0;
constexpr NvmlReturn kBadArgument = 2;
constexpr NvmlReturn kNotSupported = 3;
constexpr unsigned kRemoteGpu = 0, kRemoteSwitch = 2;
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);

constexpr unsigned kGpusMax = 1024;
constexpr unsigned kLinksMax = 36;  // twice what any GPU has had so far
constexpr int32_t kWidthMax = 32, kGenerationMax = 7;

// The functions of the library; a null one is not there.
struct NvmlFunctions {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*handle)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*pci_info)(NvmlDevice, NvmlPciInfo*) = nullptr;
  NvmlReturn (*driver_version)(char*, unsigned) = nullptr;
  NvmlReturn (*generation)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*generation_max)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*width)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*width_max)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*link_state)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*link_version)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*link_remote_pci)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
  NvmlReturn (*link_remote_type)(NvmlDevice, unsigned, unsigned*) = nullptr;
};

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

class Nvml {
 public:
  static Result<Nvml> load(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      return fail(Code::kNotFound, "NVML: {}", why ? why : path);
    }
    Nvml nvml(path, library);
    JIGE_DO(nvml.bind());
    JIGE_DO(nvml.check(nvml.f_.init(), "nvmlInit_v2"));
    nvml.started_ = true;
    return nvml;
  }

  Nvml(Nvml&& other) noexcept = default;
  Nvml& operator=(Nvml&&) = delete;
  ~Nvml() {
    if (library_ && started_) f_.shutdown();
  }

  Result<NvmlReport> read() const {
    NvmlReport report;
    char version[80] = {};
    if (f_.driver_version && f_.driver_version(version, sizeof version) == kSuccess) {
      report.driver.assign(version, strnlen(version, sizeof version));
    }
    unsigned count = 0;
    JIGE_DO(check(f_.count(&count), "nvmlDeviceGetCount_v2"));
    if (count > kGpusMax) return fail(Code::kUnavailable, "NVML tells of {} GPUs", count);
    for (unsigned i = 0; i < count; ++i) {
      JIGE_TRY(NvmlGpu gpu, read_gpu(i));
      report.gpus.push_back(std::move(gpu));
    }
    return report;
  }

 private:
  Nvml(std::string path, void* library) : path_(std::move(path)), library_(library) {}

  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_.get(), name));
  }
  template <typename Function>
  void optional(Function*& target, const char* name) {
    target = find<Function>(name);
  }
  template <typename Function>
  Status required(Function*& target, const char* name) {
    target = find<Function>(name);
    if (target) return {};
    return fail(Code::kUnsupported, "NVML: {} has no {}; is it another library?", path_, name);
  }

  Status bind() {
    JIGE_DO(required(f_.init, "nvmlInit_v2"));
    JIGE_DO(required(f_.shutdown, "nvmlShutdown"));
    JIGE_DO(required(f_.count, "nvmlDeviceGetCount_v2"));
    JIGE_DO(required(f_.handle, "nvmlDeviceGetHandleByIndex_v2"));
    JIGE_DO(required(f_.pci_info, "nvmlDeviceGetPciInfo_v3"));
    optional(f_.error_string, "nvmlErrorString");
    optional(f_.driver_version, "nvmlSystemGetDriverVersion");
    optional(f_.generation, "nvmlDeviceGetCurrPcieLinkGeneration");
    optional(f_.generation_max, "nvmlDeviceGetMaxPcieLinkGeneration");
    optional(f_.width, "nvmlDeviceGetCurrPcieLinkWidth");
    optional(f_.width_max, "nvmlDeviceGetMaxPcieLinkWidth");
    optional(f_.link_state, "nvmlDeviceGetNvLinkState");
    optional(f_.link_version, "nvmlDeviceGetNvLinkVersion");
    optional(f_.link_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    optional(f_.link_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
    return {};
  }

  Status check(NvmlReturn code, std::string_view what) const {
    if (code == kSuccess) return {};
    const char* words = f_.error_string ? f_.error_string(code) : nullptr;
    return fail(Code::kUnavailable, "NVML: {} failed: {} ({})", what, words ? words : "error",
                code);
  }

  static std::string address_of(const NvmlPciInfo& info) {
    return fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
  }

  // 0 where it is not told, or no such thing as a number of lanes or a generation.
  int32_t fact(NvmlReturn (*function)(NvmlDevice, unsigned*), NvmlDevice device,
               int32_t most) const {
    unsigned value = 0;
    if (!function || function(device, &value) != kSuccess) return 0;
    return value <= static_cast<unsigned>(most) ? static_cast<int32_t>(value) : 0;
  }

  Result<NvmlGpu> read_gpu(unsigned index) const {
    const auto at = [&](std::string_view name) { return fmt::format("{} of GPU {}", name, index); };
    NvmlDevice device = nullptr;
    NvmlPciInfo info{};
    JIGE_DO(check(f_.handle(index, &device), at("nvmlDeviceGetHandleByIndex_v2")));
    JIGE_DO(check(f_.pci_info(device, &info), at("nvmlDeviceGetPciInfo_v3")));
    NvmlGpu gpu{.index = static_cast<int32_t>(index), .address = address_of(info)};
    gpu.width = fact(f_.width, device, kWidthMax);
    gpu.width_max = fact(f_.width_max, device, kWidthMax);
    gpu.generation = fact(f_.generation, device, kGenerationMax);
    gpu.generation_max = fact(f_.generation_max, device, kGenerationMax);
    for (unsigned link = 0; f_.link_state && link < kLinksMax; ++link) {
      unsigned up = 0;
      const NvmlReturn code = f_.link_state(device, link, &up);
      if (code == kBadArgument || code == kNotSupported) break;  // there are no more
      JIGE_DO(check(code, at(fmt::format("nvmlDeviceGetNvLinkState of link {}", link))));
      if (up == 1) gpu.links.push_back(read_link(device, link));
    }
    return gpu;
  }

  NvmlLink read_link(NvmlDevice device, unsigned link) const {
    NvmlLink result;
    unsigned version = 0, type = kRemoteGpu;
    if (f_.link_version && f_.link_version(device, link, &version) == kSuccess && version < 100) {
      result.version = static_cast<int32_t>(version);
    }
    NvmlPciInfo info{};
    if (!f_.link_remote_pci || f_.link_remote_pci(device, link, &info) != kSuccess) return result;
    result.address = address_of(info);
    // A driver too old to tell is of machines whose other ends show by their addresses.
    const bool told = f_.link_remote_type && f_.link_remote_type(device, link, &type) == kSuccess;
    if (!told || type == kRemoteGpu) result.end = NvmlLink::End::kGpu;
    if (told && type == kRemoteSwitch) result.end = NvmlLink::End::kSwitch;
    return result;
  }

  std::string path_;
  std::unique_ptr<void, CloseLibrary> library_;
  NvmlFunctions f_;
  bool started_ = false;
};

}  // namespace

Result<NvmlReport> read_nvml(const std::string& library) {
  JIGE_TRY(const Nvml nvml, Nvml::load(library));
  return nvml.read();
}

}  // namespace jige::topology
