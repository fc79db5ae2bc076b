// Whether the ports above GPUs and network adapters redirect what these send one another to the
// root (PCIe access control services, ACS): transfers between devices below one switch then cross
// the host bridge, which no picture of the machine shows. Switching it changes what is measured, so
// it is a fact of the environment and belongs to the fingerprint:
//
//   environment acs of 0000:16:01.0 redirects
//
// It is read from the configuration space in sysfs, of which the kernel shows more than 64 bytes to
// root alone; what cannot be read is unknown and no fact (fingerprint.h says how that compares).
// Threads: reads files.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "topology/description.h"

namespace jige::topology {

inline constexpr const char* kAccessControlFact = "acs of ";  // and the address

// Whether a function with this configuration space redirects; nothing where it has no such
// capability or too little of the space is there.
std::optional<bool> redirects(std::span<const std::byte> configuration);

// Adds what is known of the ports above the description's devices and NICs.
void add_access_control(Description& description, const std::string& sysfs = "/sys");

}  // namespace jige::topology
