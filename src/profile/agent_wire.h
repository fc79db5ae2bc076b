// Messages of agent_protocol.h over a connection.
//
//   JIGE_DO(send_message(socket, OpenedMessage{3}, deadline));
//   JIGE_TRY(const RanMessage ran, receive<RanMessage>(socket, deadline));
//
// An error that the other side reports becomes an error here, with the peer in front.
// Threads: one thread a socket.
#pragma once

#include <atomic>

#include "comm/socket.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

Status send_message(comm::Socket& socket, const AgentMessage& message, comm::Deadline deadline);

// Fails as payload_size and parse_message do, and as the connection does.
Result<AgentMessage> receive_message(comm::Socket& socket, comm::Deadline deadline);

// Waits for an answer to begin: until there is something to read, the other side has closed, or the
// deadline, of which receive() tells. Fails with kCancelled once the flag is set; null: never.
Status await_answer(const comm::Socket& socket, comm::Deadline deadline,
                    const std::atomic<bool>* cancelled);

// What the other side answers: a reported error, or kCorrupt where it is no T.
template <typename T>
Result<T> receive(comm::Socket& socket, comm::Deadline deadline) {
  JIGE_TRY(AgentMessage message, receive_message(socket, deadline));
  if (T* wanted = std::get_if<T>(&message)) return std::move(*wanted);
  if (const auto* error = std::get_if<ErrorMessage>(&message)) {
    return fail(error->code, "{}: {}", socket.peer(), error->message);
  }
  return fail(Code::kCorrupt, "{}: answered with another message than was due", socket.peer());
}

// Sends `bytes` in one transfer and waits until all of it was taken.
Status send_data(comm::Socket& socket, const DataMessage& data, comm::Deadline deadline);

// Takes what a DataMessage announced, and says so.
Status take_data(comm::Socket& socket, const DataMessage& data, comm::Deadline deadline);

}  // namespace jige::profile
