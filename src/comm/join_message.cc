#include "comm/join_message.h"

#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "comm/join.h"

namespace jige::comm {
namespace {

constexpr std::string_view kJoinFormat = "jige.join";

Result<int> get_small(const Json& json, std::string_view field, int max, const std::string& where) {
  JIGE_TRY(const int64_t value, get_int(json, field, where));
  if (value < 0 || value > max) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}", where, field, value);
  }
  return static_cast<int>(value);
}

}  // namespace

Hello describe_self() {
  Hello hello;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) == 0) hello.host = name;
  const auto boot = read_file("/proc/sys/kernel/random/boot_id");
  // Processes see one another's descriptors where they share a machine and its numbering of
  // processes.
  char space[64] = {};
  const ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  hello.machine =
      fmt::format("{}/{}", boot ? boot->substr(0, 36) : hello.host,
                  std::string_view(space, length > 0 ? static_cast<size_t>(length) : 0));
  hello.pid = static_cast<int>(getpid());
  return hello;
}

Json hello_to_json(const Hello& hello) {
  return {{"format", kJoinFormat},
          {"version", 1},
          {"rank", hello.rank},
          {"world", hello.world},
          {"host", hello.host},
          {"machine", hello.machine},
          {"pid", hello.pid},
          {"address", hello.address.text()},
          {"transport", hello.transport},
          {"plan", hello.plan}};
}

Json table_to_json(const JoinTable& table) {
  Json members = Json::array();
  for (const Hello& member : table.members) members.push_back(hello_to_json(member));
  return {{"members", std::move(members)},
          {"token", std::to_string(table.token)},
          {"transport", table.transport},
          {"memory", table.memory}};
}

Json join_error_to_json(const Error& error) {
  return {{"error", {{"code", static_cast<int>(error.code)}, {"message", error.message}}}};
}

Result<Hello> parse_hello(const Json& json, const std::string& where) {
  JIGE_TRY(const std::string format, get_string(json, "format", where));
  JIGE_TRY(const int64_t version, get_int(json, "version", where));
  if (format != kJoinFormat || version != 1) {
    return fail(Code::kCorrupt, "{}: is not a process of this version of Jige", where);
  }
  Hello hello;
  JIGE_TRY(hello.rank, get_small(json, "rank", kWorldMax, where));
  JIGE_TRY(hello.world, get_small(json, "world", kWorldMax, where));
  JIGE_TRY(hello.host, get_string(json, "host", where));
  JIGE_TRY(hello.machine, get_string(json, "machine", where));
  JIGE_TRY(hello.pid, get_small(json, "pid", 1 << 30, where));
  JIGE_TRY(const std::string address, get_string(json, "address", where));
  JIGE_TRY(hello.address, parse_address(address));
  JIGE_TRY(hello.transport, get_string(json, "transport", where));
  JIGE_TRY(const int64_t plan, get_int(json, "plan", where));
  hello.plan = static_cast<uint32_t>(plan);
  return hello;
}

Status check_no_error(const Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("error")) return {};
  JIGE_TRY(const int code,
           get_small(json["error"], "code", static_cast<int>(Code::kCancelled), where));
  JIGE_TRY(const std::string message, get_string(json["error"], "message", where));
  return tl::unexpected<Error>(reported_error(where, static_cast<Code>(code), message));
}

Result<JoinTable> parse_table(const Json& json, const std::string& where) {
  JIGE_DO(check_no_error(json, where));
  JoinTable table;
  JIGE_TRY(const std::string token, get_string(json, "token", where));
  table.token = std::strtoull(token.c_str(), nullptr, 10);
  JIGE_TRY(table.transport, get_string(json, "transport", where));
  JIGE_TRY(table.memory, get_string(json, "memory", where));
  if (!json.contains("members") || !json["members"].is_array()) {
    return fail(Code::kCorrupt, "{}: field \"members\" is not a list", where);
  }
  for (const Json& member : json["members"]) {
    JIGE_TRY(Hello hello, parse_hello(member, where));
    if (hello.rank != static_cast<int>(table.members.size())) {
      return fail(Code::kCorrupt, "{}: members are not in order of rank", where);
    }
    table.members.push_back(std::move(hello));
  }
  return table;
}

Status send_json(Socket& socket, const Json& json, Deadline deadline) {
  const std::string text = dump_json(json);
  const auto length = static_cast<uint32_t>(text.size());
  std::string message(sizeof length, '\0');
  std::memcpy(message.data(), &length, sizeof length);
  message += text;
  return socket.send_all(std::as_bytes(std::span(message)), deadline);
}

Result<Json> recv_json(Socket& socket, Deadline deadline) {
  uint32_t length = 0;
  JIGE_DO(socket.recv_all(std::as_writable_bytes(std::span(&length, 1)), deadline));
  if (length > kJoinBytesMax) {
    return fail(Code::kCorrupt, "{}: a message of {} bytes; {} at most", socket.peer(), length,
                kJoinBytesMax);
  }
  std::string text(length, '\0');
  JIGE_DO(socket.recv_all(std::as_writable_bytes(std::span(text)), deadline));
  return parse_json(text, socket.peer());
}

}  // namespace jige::comm
