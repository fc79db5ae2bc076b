#include "profile/mpi_launch.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace jige::profile {
namespace {

constexpr size_t kSaidMax = 600;  // bytes of standard error that are repeated
constexpr double kLaunchGraceSeconds = 1;

// Beside the program that runs.
Result<std::string> program_of(const MpiLaunchOptions& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path own = fs::read_symlink("/proc/self/exe", error);
  const fs::path program =
      options.program.empty() ? own.parent_path() / "jige-mpi-links" : fs::path(options.program);
  if (fs::exists(program, error)) return program.string();
  return fail(Code::kUnsupported,
              "MPI: {} is not there: this build found no MPI; install libopenmpi-dev (Debian), "
              "configure and build again",
              program.string());
}

std::vector<std::string> command_of(const MpiLaunchOptions& options, const std::string& program,
                                    std::span<const MpiPlace> places) {
  std::vector<std::string> words = options.launcher;
  words.insert(words.end(), {"-n", std::to_string(places.size())});
  std::string hosts;
  for (const MpiPlace& place : places) {
    if (!place.host.empty()) hosts += (hosts.empty() ? "" : ",") + place.host;
  }
  // One rank a host, in this order.
  if (!hosts.empty()) words.insert(words.end(), {"--host", hosts});
  words.push_back(program);
  for (const MpiPlace& place : places) {
    words.push_back(fmt::format("{}:{}", place.place.name, fmt::join(place.place.processors, ",")));
  }
  return words;
}

std::vector<std::string> environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) all.emplace_back(*entry);
  constexpr std::pair<const char*, const char*> kSettings[] = {
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
      {"OMPI_MCA_mpi_yield_when_idle", "1"},
  };
  for (const auto& [name, value] : kSettings) {
    if (!std::getenv(name)) all.push_back(fmt::format("{}={}", name, value));
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

Result<std::unique_ptr<MpiLaunch>> MpiLaunch::start(const MpiLaunchOptions& options,
                                                    std::span<const MpiPlace> places) {
  if (options.launcher.empty()) return fail(Code::kInvalidArgument, "MPI: no launcher is named");
  JIGE_TRY(const std::string program, program_of(options));
  std::unique_ptr<MpiLaunch> launch(new MpiLaunch);
  int ends[2];
  launch->said_fd_ = memfd_create("jige-mpirun", MFD_CLOEXEC);
  if (launch->said_fd_ < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(Code::kExhausted, "MPI: no connection to the launcher: {}", std::strerror(errno));
  }
  launch->control_ = comm::Socket(ends[0], options.launcher[0]);
  std::vector<std::string> words = command_of(options, program, places), settings = environment();
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, launch->said_fd_, STDERR_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&launch->pid_, words[0].c_str(), &files, &attributes,
                                 pointers(words).data(), pointers(settings).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(ends[1]);
  if (error == 0) return launch;
  launch->pid_ = -1;
  if (error == ENOENT) {
    return fail(Code::kNotFound,
                "MPI: {} is not on PATH; install openmpi-bin (Debian), or name a launcher with "
                "--mpirun",
                words[0]);
  }
  return fail(Code::kUnavailable, "MPI: {} does not start: {}", words[0], std::strerror(error));
}

bool MpiLaunch::closed() const {
  char byte = 0;
  return control_.is_open() && recv(control_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

std::optional<int> MpiLaunch::exit_code() {
  int status = 0;
  if (!exit_code_ && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return exit_code_;
}

std::string MpiLaunch::said() const {
  char text[kSaidMax];
  const ssize_t size = pread(said_fd_, text, sizeof text, 0);
  std::string line;
  for (ssize_t i = 0; i < size; ++i) {
    // Boxes of dashes and line ends become a blank.
    const bool blank = std::isspace(static_cast<unsigned char>(text[i])) != 0 ||
                       (text[i] == '-' && i > 0 && text[i - 1] == '-') ||
                       (text[i] == '-' && i + 1 < size && text[i + 1] == '-');
    if (!blank) line.push_back(text[i]);
    if (blank && !line.empty() && line.back() != ' ') line.push_back(' ');
  }
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

bool MpiLaunch::wait_for_end(double seconds) {
  const comm::Deadline deadline = comm::Deadline::after(seconds);
  while (!exit_code() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return exit_code().has_value();
}

// mpirun hands a request to end on to its ranks, a kill it cannot.
void MpiLaunch::end_now() {
  control_.close();
  if (pid_ <= 0 || exit_code()) return;
  kill(-pid_, SIGTERM);
  if (wait_for_end(kLaunchGraceSeconds)) return;
  kill(-pid_, SIGKILL);
  wait_for_end(kLaunchGraceSeconds);
}

MpiLaunch::~MpiLaunch() {
  control_.close();  // upon which the ranks end
  if (pid_ > 0 && !exit_code() && !wait_for_end(kLaunchGraceSeconds)) end_now();
  if (said_fd_ >= 0) close(said_fd_);
}

}  // namespace jige::profile
