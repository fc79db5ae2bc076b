// What NVML, the management library of NVIDIA's driver, tells of GPUs. It is loaded when it is
// asked for, so that neither building nor running needs it.
//
//   const auto report = read_nvml();
//   if (!report && report.error().code == Code::kNotFound) …   // no driver here
//
// Of NVML's functions only those that find GPUs must be there; what an older driver cannot tell
// stays unknown. The types below are NVML's documented binary interface, declared by us.
// Threads: one caller at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::topology {

// One NVLink that is up.
struct NvmlLink {
  enum class End { kGpu, kSwitch, kOther };
  End end = End::kOther;
  std::string address;  // of the other end, empty where NVML does not tell
  int32_t version = 0;  // of NVLink; 0: not told
};

struct NvmlGpu {
  int32_t index = 0;
  std::string address;     // "0000:17:00.0"
  int32_t width = 0;       // PCIe lanes as negotiated; 0: not told, as below
  int32_t width_max = 0;   // that device and slot can have
  int32_t generation = 0;  // of PCIe as it runs now; an idle GPU lowers it
  int32_t generation_max = 0;
  std::vector<NvmlLink> links;
};

struct NvmlReport {
  std::string driver;  // its version; empty: not told
  std::vector<NvmlGpu> gpus;
};

// Fails with kNotFound where there is no such library, kUnsupported where it lacks a function,
// kUnavailable where NVML fails, with its words and the GPU.
Result<NvmlReport> read_nvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace jige::topology
