// What Jige writes into the AdminComment of jobs, which users can read but not set: a mark, by
// which a job's last release can be told from a person's, and before it, for its user, why the job
// waits.
//
//   jige hold
//   jige place epoch=17 n=3
//   jige: waits for 4 GPUs on one node; 2 are free on one at most
//   jige: waits for … | jige place epoch=17 n=3        of a job that ran before
//
// A note without a mark behind it stands for "jige hold". Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace jige::slurm {

// First words of marks.
inline constexpr std::string_view kHoldMark = "jige hold";
inline constexpr std::string_view kPlacedMark = "jige place";
inline constexpr std::string_view kDeadManMark = "jige dead-man";

struct AdminComment {
  std::string note;  // for people; empty: none
  std::string mark;  // or what somebody else wrote
};

AdminComment split_admin_comment(std::string_view text);
// Of marks only that of a placement is kept beside a note: what else a job was before it waited is
// of no account.
std::string join_admin_comment(const AdminComment& comment);

// As it can stand in a note: one line, not too long, without the sign before a mark.
std::string note_of(std::string_view text);

}  // namespace jige::slurm
