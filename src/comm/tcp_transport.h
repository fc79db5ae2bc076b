// The transport over TCP.
//
// Small writes gather in a buffer per stream and go out together when the rank waits; large ones go
// straight to the connection. Control connections carry heartbeats of waiting ranks, the news that
// the group has failed, and the leave of a rank; each message is 256 bytes: magic u32 "JGM1", kind
// u8, code u8, length u16 of a text, the text, zeros. To end a transport is to take leave: at once
// where the others hear it, 1 s at the most where one of them is cut off (control_channel.h).
//
// Threads: one thread per transport.
#pragma once

#include <memory>

#include "comm/tcp_mesh.h"
#include "comm/transport.h"

namespace jige::comm {

std::unique_ptr<Transport> make_tcp_transport(TcpMesh mesh, const RingPlan& plan);

}  // namespace jige::comm
