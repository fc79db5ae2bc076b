// The MPI program of a meter: started by mpirun, spoken with over its standard input and output,
// ended with this object.
//
//   JIGE_TRY(std::unique_ptr<MpiLaunch> launch, MpiLaunch::start(options, places));
//   JIGE_TRY(const auto ranks, receive<RanksMessage>(launch->control(), deadline));
//
// The program is one of its own, so that nothing else needs an MPI library to start. mpirun runs in
// a process group of its own and hears no Ctrl-C. Settings of Open MPI that let it run as root,
// with more ranks than processors, and without pinning of its own go to it in the environment,
// where nobody has set them already. Threads: one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/socket.h"
#include "profile/mpi_places.h"

namespace jige::profile {

struct MpiLaunchOptions {
  std::vector<std::string> launcher = {"mpirun"};  // with options of its own
  std::string program;                             // empty: jige-mpi-links beside this one
};

class MpiLaunch {
 public:
  // Fails with kUnsupported where this build has no such program, kNotFound where there is no
  // launcher; both name the package.
  static Result<std::unique_ptr<MpiLaunch>> start(const MpiLaunchOptions& options,
                                                  std::span<const MpiPlace> places);
  // Waits a moment for it to end by itself, unless end_now() was called.
  ~MpiLaunch();
  MpiLaunch(const MpiLaunch&) = delete;
  MpiLaunch& operator=(const MpiLaunch&) = delete;

  comm::Socket& control() { return control_; }
  // Whether the other end of control() was closed, as it is when mpirun ends.
  bool closed() const;
  // 128 + signal where a signal ended it; nothing while it runs.
  std::optional<int> exit_code();
  // The beginning of what it wrote to standard error, on one line.
  std::string said() const;
  // Kills it.
  void end_now();

 private:
  MpiLaunch() = default;
  bool wait_for_end(double seconds);

  comm::Socket control_;
  int said_fd_ = -1;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace jige::profile
