// What of the exported files can be checked against an NCCL library without a GPU: NCCL asks the
// CUDA driver first and fails there, long before it reads a graph, and none of its functions reads
// one. But the names it looks for stand in its file: every element, attribute, path type and
// variable that we write must be among them. Skips where there is no NCCL of 2.18 or later.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <set>
#include <string>

#include "plan/nccl_export.h"
#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"
#include "topology/xml.h"

namespace jige::plan {
namespace {

struct NcclLibrary {
  int version = 0;  // 22809
  std::string path;
};

std::optional<NcclLibrary> find_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  NcclLibrary found;
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  if (get_version != nullptr) get_version(&found.version);
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) found.path = map->l_name;
  return found;  // stays loaded: what it registered with CUDA's runtime need not be undone
}

// The read-only data of a shared object of this machine.
std::string read_only_data(const std::string& path) {
  std::string data;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0) return data;
  const auto size = static_cast<size_t>(info.st_size);
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return data;
  const char* file = static_cast<const char*>(memory);
  Elf64_Ehdr head;
  std::memcpy(&head, file, sizeof head);
  for (size_t s = 0; s < head.e_shnum; ++s) {
    Elf64_Shdr section;
    const size_t at = head.e_shoff + s * sizeof section;
    if (at + sizeof section > size) break;
    std::memcpy(&section, file + at, sizeof section);
    // Strings lie in sections that are loaded, and neither written nor run.
    const bool strings = section.sh_type == SHT_PROGBITS && section.sh_flags & SHF_ALLOC &&
                         !(section.sh_flags & (SHF_WRITE | SHF_EXECINSTR)) &&
                         section.sh_size < (16u << 20) &&
                         section.sh_offset + section.sh_size <= size;
    if (strings) data.append(file + section.sh_offset, section.sh_size);
  }
  munmap(memory, size);
  return data;
}

void collect_names(const topology::XmlElement& element, std::set<std::string>& names) {
  names.insert(element.name);
  for (const auto& [name, value] : element.attributes) {
    names.insert(name);
    if (name.starts_with("type")) names.insert(value);
  }
  for (const topology::XmlElement& child : element.children) collect_names(child, names);
}

TEST(NcclLibrary, KnowsEveryNameThatWeWrite) {
  const auto library = find_nccl();
  if (!library) GTEST_SKIP() << "no libnccl.so.2 on this machine";
  if (library->version < 21800) GTEST_SKIP() << "NCCL " << library->version << " is too old";
  const std::string data = read_only_data(library->path);
  if (data.empty()) GTEST_SKIP() << library->path << " cannot be read";

  const NcclVersion version{library->version / 10000, library->version / 100 % 100};
  std::set<std::string> names;
  for (const char* reference : {"pcie-4gpu-2numa", "pcie-4gpu-2numa-nopeer", "switch-8gpu-2numa"}) {
    const topology::Topology box = *topology::reference_topology(reference);
    const RingProblem problem = *ring_problem(box, ring_devices(box), {});
    profile::SimulatedMeter meter(box);
    profile::Profiler profiler(box, meter);
    const RingPlan plan = *plan_ring(problem, profiler, {.budget_s = 5});
    const auto out = export_to_nccl(problem, plan.rank_order, profiler, version);
    ASSERT_TRUE(out) << out.error().message;
    const auto mirror = mirrored_ring(problem, plan.rank_order.ring);
    ASSERT_TRUE(mirror);
    const MeasuredMix both{.name = "both ways",
                           .mix = {.rings = {{plan.rank_order.ring, 0.6}, {*mirror, 0.4}}}};
    const auto several = export_to_nccl(problem, both, profiler, version);
    ASSERT_TRUE(several) << several.error().message;
    collect_names(*topology::parse_xml(several->graph_xml, "graph.xml"), names);
    collect_names(*topology::parse_xml(out->graph_xml, "graph.xml"), names);
    for (size_t at = 0; (at = out->environment.find("NCCL_", at)) != std::string::npos; ++at) {
      const size_t end = out->environment.find('=', at);
      names.insert(out->environment.substr(at, end - at));
    }
  }
  names.insert("NVL");  // of boxes with NVLinks
  names.insert("net");  // of rings through the network
  EXPECT_GT(names.size(), 20u);
  const auto knows = [&](const std::string& name) {
    return data.find(name + std::string(1, '\0')) != std::string::npos;
  };
  for (const std::string& name : names) EXPECT_TRUE(knows(name)) << name;
  EXPECT_FALSE(knows("speedintra2")) << "anything is found";
  RecordProperty("nccl_version", library->version);
}

}  // namespace
}  // namespace jige::plan
