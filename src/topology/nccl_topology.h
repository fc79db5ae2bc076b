// Topologies from NCCL's own description (what NCCL_TOPO_DUMP_FILE writes, NCCL_TOPO_FILE reads).
//
//   <system version="1"><cpu numaid="0" …><pci busid="0000:17:00.0" class="0x060400"
//     link_speed="16.0 GT/s PCIe" link_width="16"><pci …><gpu dev="0"
//     …/></pci></pci></cpu></system>
//
// A cpu becomes a host bridge with its memory (numaid -1, of virtual machines that are told of no
// node, counts as 0), a pci a switch, a device or a NIC by what is inside.
// Link rates follow from width and speed; bridges, memory and sockets stay unlimited, for NCCL
// knows them as constants only. NVLinks (<nvlink target="0000:18:00.0" count="4"
// tclass="0x030200"/> of a gpu, tclass 0x0680… a switch, 0x068001 the processor) get the rate of
// the hardware for the GPU's compute capability; those to a GPU that the file lacks are left out,
// as NCCL does. Threads: pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "topology/description.h"
#include "topology/xml.h"

namespace jige::topology {

// Fails with kCorrupt or kUnsupported, naming `where` and the line.
Result<Description> description_from_nccl(const XmlElement& system, std::string_view where);

}  // namespace jige::topology
