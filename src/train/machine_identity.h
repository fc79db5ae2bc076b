// Whose a plan is: the machine that its times were measured on, and the GPUs that it is made for.
//
//   {"processor": "Intel …", "kernels": "amx", "processors": 2}         plans of measured times
//   [{"name": "NVIDIA H200", "memory_bytes": 150754820096}, …]          plans for GPUs, in order
//
// Threads: pure, but what asks for GPUs, which asks the driver.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::train {

Json machine_identity();
// Fails with kInvalidArgument, naming what differs, where `identity` is of another machine; `where`
// names its file.
Status check_same_machine(const Json& identity, const std::string& where);

// Of GPUs of this machine, in the order given. Fails as list_cuda_devices, with kNotFound where one
// is not there.
Result<Json> gpus_identity(const std::vector<int>& gpus);
// Fails with kInvalidArgument where `identity` (null: of a plan for processors) is of other GPUs
// than these, in number, name or memory, saying what to do; and as gpus_identity.
Status check_same_gpus(const Json& identity, const std::vector<int>& gpus,
                       const std::string& where);

}  // namespace jige::train
