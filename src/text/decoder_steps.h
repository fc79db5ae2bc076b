// The steps of a decoder chain (decoder.h); each factory makes the running form of one step.
//
// Threads: factories are immutable; running steps belong to one thread.
#pragma once

#include <memory>
#include <string>

#include "text/component.h"
#include "text/decoder.h"

namespace jige::text {

using DecoderFactory = std::shared_ptr<const Decoder::Factory>;

// Byte-level characters back to bytes; a token with other characters stands for its own bytes.
// Everything becomes one token.
DecoderFactory byte_level_decoder();
// The mark to a space; in the first token nothing, if `drop_first`.
DecoderFactory metaspace_decoder(std::string mark, bool drop_first);
// Runs of <0x..> tokens to the characters that their bytes spell.
DecoderFactory byte_fallback_decoder();
// All tokens to one.
DecoderFactory fuse_decoder();
// Every match in a token to `content`.
DecoderFactory replace_decoder(Pattern pattern, std::string content);

struct StripCounts {
  int64_t start = 0;
  int64_t stop = 0;
};
// Up to so many characters `content` off the start and stop of every token.
DecoderFactory strip_decoder(std::string content, StripCounts counts);
// A space before every token but the first and those that begin with `prefix`, which is left out;
// `cleans`: spaces before punctuation and endings of English words go.
DecoderFactory word_piece_decoder(std::string prefix, bool cleans);
// A space between tokens: what happens without any decoder.
DecoderFactory join_decoder();

}  // namespace jige::text
