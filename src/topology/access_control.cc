#include "topology/access_control.h"

#include <cstdint>
#include <filesystem>

#include "base/file.h"

namespace jige::topology {
namespace {

namespace fs = std::filesystem;

// As PCI Express lays it out: capabilities from byte 256 on, each with its number and the offset of
// the next.
constexpr size_t kFirst = 0x100, kSpaceBytes = 4096, kControl = 6;
constexpr uint32_t kAccessControl = 0x000D;
constexpr uint32_t kRequestRedirect = 1u << 2, kCompletionRedirect = 1u << 3;

uint32_t number_at(std::span<const std::byte> bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= std::to_integer<uint32_t>(bytes[at + i]) << (8 * i);
  return value;
}

}  // namespace

std::optional<bool> redirects(std::span<const std::byte> configuration) {
  // Every step goes to another of the offsets there are, or it is no list.
  constexpr size_t kStepsMax = (kSpaceBytes - kFirst) / 8;
  size_t at = kFirst;
  for (size_t step = 0; step < kStepsMax; ++step) {
    if (at < kFirst || at + 8 > configuration.size()) return std::nullopt;
    const uint32_t head = number_at(configuration, at, 4);
    if (head == 0 || head == 0xFFFFFFFF) return std::nullopt;
    if ((head & 0xFFFF) == kAccessControl) {
      const uint32_t control = number_at(configuration, at + kControl, 2);
      return (control & (kRequestRedirect | kCompletionRedirect)) != 0;
    }
    at = head >> 20;
  }
  return std::nullopt;
}

void add_access_control(Description& d, const std::string& sysfs) {
  for (const Component& c : d.components) {
    if (c.kind != ComponentKind::kDevice && c.kind != ComponentKind::kNic) continue;
    if (c.address.empty() || c.address.find('/') != std::string::npos) continue;
    std::error_code error;
    fs::path folder = fs::canonical(sysfs + "/bus/pci/devices/" + c.address, error);
    if (error) continue;
    // Ports are the folders above that have a configuration space.
    while (folder.has_relative_path()) {
      folder = folder.parent_path();
      if (!fs::exists(folder / "config", error)) break;
      const auto bytes = read_file((folder / "config").string(), kSpaceBytes);
      if (!bytes) continue;
      const std::optional<bool> on = redirects(std::as_bytes(std::span(*bytes)));
      if (!on) continue;
      d.environment[kAccessControlFact + folder.filename().string()] =
          *on ? "redirects" : "does-not-redirect";
    }
  }
}

}  // namespace jige::topology
