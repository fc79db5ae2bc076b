// The messages by which a group is joined (layout in join.h).
//
// Threads: one thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "comm/socket.h"

namespace jige::comm {

// What a rank says of itself.
struct Hello {
  int rank = 0;
  int world = 0;
  std::string host;
  std::string machine;
  int pid = 0;
  Address address;
  std::string transport;
  uint32_t plan = 0;
};

struct JoinTable {
  std::vector<Hello> members;  // by rank
  uint64_t token = 0;
  std::string transport;
  std::string memory;
};

// Host, machine and pid of this process.
Hello describe_self();

Json hello_to_json(const Hello& hello);
Json table_to_json(const JoinTable& table);
Json join_error_to_json(const Error& error);
// Fails with the error that the message tells, if it is one; with kCorrupt where it tells it badly.
Status check_no_error(const Json& json, const std::string& where);
// Fail with kCorrupt, kNotFound or kInvalidArgument on what does not fit; parse_table() gives the
// error that rank 0 sent.
Result<Hello> parse_hello(const Json& json, const std::string& where);
Result<JoinTable> parse_table(const Json& json, const std::string& where);

Status send_json(Socket& socket, const Json& json, Deadline deadline);
Result<Json> recv_json(Socket& socket, Deadline deadline);

}  // namespace jige::comm
