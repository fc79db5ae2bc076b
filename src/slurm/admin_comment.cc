#include "slurm/admin_comment.h"

#include <algorithm>

namespace jige::slurm {
namespace {

constexpr std::string_view kNote = "jige: ";
constexpr std::string_view kBetween = " | ";
constexpr size_t kNoteMax = 240;  // bytes

bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

}  // namespace

AdminComment split_admin_comment(std::string_view text) {
  if (!text.starts_with(kNote)) return {.note = {}, .mark = std::string(text)};
  text.remove_prefix(kNote.size());
  const size_t end = text.find(kBetween);
  AdminComment comment{.note = std::string(text.substr(0, end)), .mark = std::string(kHoldMark)};
  if (end != std::string_view::npos) comment.mark = text.substr(end + kBetween.size());
  return comment;
}

std::string join_admin_comment(const AdminComment& comment) {
  if (comment.note.empty()) return comment.mark;
  std::string text(kNote);
  text += comment.note;
  if (!comment.mark.starts_with(kPlacedMark)) return text;
  text += kBetween;
  return text + comment.mark;
}

std::string note_of(std::string_view text) {
  std::string note(text);
  if (note.size() > kNoteMax) {
    size_t end = kNoteMax;
    while (end > 0 && is_inside_character(note[end])) --end;
    note.resize(end);
    note += "...";
  }
  std::ranges::replace(note, '|', '/');
  for (char& byte : note) {
    if (static_cast<unsigned char>(byte) < ' ' || byte == '\x7f') byte = ' ';
  }
  // Slurm may cut blanks at the ends.
  while (note.ends_with(' ')) note.pop_back();
  note.erase(0, std::min(note.find_first_not_of(' '), note.size()));
  return note;
}

}  // namespace jige::slurm
