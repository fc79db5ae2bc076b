// The state of a run on several ranks: how all come to rank 0's, and how rank 0 writes what is
// divided among them (optimizer_shares.h). The checkpoint is that of one rank, byte for byte.
//
// Values are whole on every rank between steps. Of divided moments a rank's parts go to rank 0
// piece by piece while the file is written, so that nobody holds more of them than its share.
// All goes by way of the host's memory, a piece at a time, whatever device holds it.
// All ranks call the same functions in the same order. Threads: one thread at a time.
#pragma once

#include "comm/async_group.h"
#include "formats/checkpoint.h"
#include "train/optimizer.h"
#include "train/run_state.h"

namespace jige::train {

// Gives all ranks rank 0's state, values and, where there were updates, moments; divided ones out
// of the checkpoint that rank 0 goes on from. REQUIRES: it is there on rank 0 if there were updates
// and moments are divided.
Status share_state(comm::AsyncGroup& group, RunState& state, Optimizer& optimizer,
                   const formats::CheckpointReader* checkpoint, Stream& stream);

// What rank 0 writes of divided moments, and what the other ranks do meanwhile: they send their
// parts, in the order of the file. All must outlive the writing. Fail as the group.
MomentSource gathered_moments(comm::AsyncGroup& group, const Optimizer& optimizer, Stream& stream);
Status send_moments(comm::AsyncGroup& group, const Optimizer& optimizer, Stream& stream);

}  // namespace jige::train
