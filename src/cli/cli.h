// The command line of the binary `jige`: finds the command, reads its flags, runs it, reports
// errors.
//
// Standard output carries a command's result and nothing else; messages and progress go to standard
// error. With --json an error is one JSON object on standard output, besides the line for people.
// Threads: called once, from main.
#pragma once

namespace jige::cli {

// Runs one command and returns the exit code of the process (base/result.h lists them).
int run(int argc, char** argv);

}  // namespace jige::cli
