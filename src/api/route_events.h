// What a router knows of streams of events: where they may be cut, what in them counts, and errors
// in the form of each route.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/api_error.h"
#include "api/http_message.h"

namespace jige::api {

// Behind the last whole event.
size_t events_end(std::string_view text);

// Behind the whole lines at the beginning that are comments or empty: in front of the first event.
size_t comments_end(std::string_view text);

// Events with data whose first line is there.
int64_t count_events(std::string_view text);

// An error in the form of its route, behind so many events.
std::string error_event(std::string_view path, const ApiError& error, int64_t events);

// What an answer that is no stream says of an error; what it is where it says nothing.
ApiError error_of(const HttpResponse& answer);

}  // namespace jige::api
