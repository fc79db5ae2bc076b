// What models a device has kernels for: all of them on a CPU, some on a GPU.
//
// Threads: pure function.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/architecture.h"
#include "tensor/device.h"

namespace jige::model {

// Fails with kUnsupported, naming what devices of the kind have no kernel for and what to do.
// `name`: what the message calls the device, which need not be here.
Status check_device_support(DeviceKind kind, std::string_view name,
                            const Architecture& architecture);

}  // namespace jige::model
