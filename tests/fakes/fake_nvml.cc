// A library that answers like NVML, for tests on machines without a GPU. What it tells is in the
// environment variable JIGE_FAKE_NVML, words separated by spaces:
//
//   gpu=DOMAIN:BUS:DEVICE,GENERATION,GENERATION_MAX,WIDTH,WIDTH_MAX       the next GPU
//   nvlink=GPU,COUNT,VERSION,TYPE,DOMAIN:BUS:DEVICE    its next links; TYPE 0 GPU, 2 switch
//   fail=FUNCTION,CODE                                 that function returns the code
//   driver=VERSION
//
// Built with FAKE_NVML_OLD it is an old driver's: nothing about PCIe rates and NVLink.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Place {
  unsigned domain = 0, bus = 0, device = 0;
};
struct NvLink {
  unsigned version = 0, type = 0;
  Place other;
};
struct Gpu {
  Place place;
  unsigned generation = 0, generation_max = 0, width = 0, width_max = 0;
  std::vector<NvLink> links;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

std::vector<Gpu> gpus;
std::string driver, failing;
int failure = 0;
int balance = 0;  // of init and shutdown

void read_script() {
  gpus.clear();
  driver.clear();
  failing.clear();
  const char* script = std::getenv("JIGE_FAKE_NVML");
  std::istringstream words(script ? script : "");
  for (std::string word; words >> word;) {
    Gpu gpu;
    NvLink link;
    unsigned owner = 0, count = 0;
    char name[100] = {};
    if (std::sscanf(word.c_str(), "gpu=%x:%x:%x,%u,%u,%u,%u", &gpu.place.domain, &gpu.place.bus,
                    &gpu.place.device, &gpu.generation, &gpu.generation_max, &gpu.width,
                    &gpu.width_max) == 7) {
      gpus.push_back(gpu);
    } else if (std::sscanf(word.c_str(), "nvlink=%u,%u,%u,%u,%x:%x:%x", &owner, &count,
                           &link.version, &link.type, &link.other.domain, &link.other.bus,
                           &link.other.device) == 7) {
      gpus.at(owner).links.insert(gpus.at(owner).links.end(), count, link);
    } else if (std::sscanf(word.c_str(), "fail=%99[^,],%d", name, &failure) == 2) {
      failing = name;
    } else if (word.starts_with("driver=")) {
      driver = word.substr(7);
    }
  }
}

bool fails(const char* function) { return failing == function; }
const Gpu& gpu_of(void* device) { return *static_cast<Gpu*>(device); }

void fill(PciInfo* info, const Place& place) {
  *info = {};
  info->domain = place.domain;
  info->bus = place.bus;
  info->device = place.device;
  std::snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", place.domain, place.bus,
                place.device);
}

}  // namespace

extern "C" {

int fake_nvml_balance() { return balance; }

int nvmlInit_v2() {
  read_script();
  if (fails("nvmlInit_v2")) return failure;
  ++balance;
  return 0;
}
int nvmlShutdown() {
  --balance;
  return 0;
}
const char* nvmlErrorString(int code) {
  if (code == 15) return "GPU is lost";
  if (code == 18) return "Driver/library version mismatch";
  return "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  if (driver.empty()) return 3;
  std::snprintf(text, length, "%s", driver.c_str());
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus.size());
  return fails("nvmlDeviceGetCount_v2") ? failure : 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (fails("nvmlDeviceGetHandleByIndex_v2") && index == 1) return failure;
  *device = &gpus.at(index);
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  fill(info, gpu_of(device).place);
  return fails("nvmlDeviceGetPciInfo_v3") ? failure : 0;
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* value) {
  *value = gpu_of(device).generation;
  return fails("nvmlDeviceGetCurrPcieLinkGeneration") ? failure : 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* value) {
  *value = gpu_of(device).generation_max;
  return fails("nvmlDeviceGetMaxPcieLinkGeneration") ? failure : 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* value) {
  *value = gpu_of(device).width;
  return fails("nvmlDeviceGetCurrPcieLinkWidth") ? failure : 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* value) {
  *value = gpu_of(device).width_max;
  return fails("nvmlDeviceGetMaxPcieLinkWidth") ? failure : 0;
}
// As of a GPU with 18 links, those that the script does not name being down.
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* up) {
  if (gpu_of(device).links.empty()) return 3;
  if (link >= 18) return 2;
  *up = link < gpu_of(device).links.size() ? 1 : 0;
  return fails("nvmlDeviceGetNvLinkState") ? failure : 0;
}
int nvmlDeviceGetNvLinkVersion(void* device, unsigned link, unsigned* version) {
  *version = gpu_of(device).links.at(link).version;
  return fails("nvmlDeviceGetNvLinkVersion") ? failure : 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
  fill(info, gpu_of(device).links.at(link).other);
  return fails("nvmlDeviceGetNvLinkRemotePciInfo_v2") ? failure : 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, unsigned* type) {
  *type = gpu_of(device).links.at(link).type;
  return fails("nvmlDeviceGetNvLinkRemoteDeviceType") ? failure : 0;
}
#endif

}  // extern "C"
