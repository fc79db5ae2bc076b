// Where people find the page that `jige serve` shows, and by which names of the machine.
//
// Threads: pure functions, but for the name of the machine, which they ask the system for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jige::cli {

// The names of this machine that its network may know, in small letters, and `host`, which the
// server was told to listen on: of "Box.lab.example" also "box" and "box.local".
std::vector<std::string> names_of_machine(std::string_view host);

// What to open: `address` ("http://0.0.0.0:8000") with a slash, and the name of this machine where
// `host` stands for every network.
std::string page_address(const std::string& address, std::string_view host);

}  // namespace jige::cli
