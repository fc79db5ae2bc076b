#include "formats/pickle.h"

#include <gtest/gtest.h>

#include "formats/test_support.h"
#include "formats/torch_test_support.h"

namespace jige::formats {
namespace {

using std::string_literals::operator""s;

Result<Pickle> read_text(std::string_view text) { return read_pickle(bytes_of(text), "file"); }

// A value as Python would print it, but for calls.
std::string printed(const Pickle& pickle, const PickleValue& value) {
  std::string items;
  for (const uint32_t item : value.items) items += printed(pickle, pickle[item]) + ",";
  switch (value.kind) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return value.number ? "True" : "False";
    case PickleKind::kInt:
      return std::to_string(value.number);
    case PickleKind::kOtherNumber:
      return fmt::format("number of {} bytes", value.text.size());
    case PickleKind::kText:
      return fmt::format("'{}'", value.text);
    case PickleKind::kBytes:
      return fmt::format("b'{}'", value.text);
    case PickleKind::kTuple:
      return "(" + items + ")";
    case PickleKind::kList:
      return "[" + items + "]";
    case PickleKind::kDict:
      return "{" + items + "}";
    case PickleKind::kGlobal:
      return global_text(value);
    case PickleKind::kCall:
      return "call" + items;
    case PickleKind::kPersistent:
      return "id" + items;
  }
  return "?";
}

void expect_value(std::string_view text, std::string_view wanted) {
  const auto pickle = read_text(text);
  ASSERT_TRUE(pickle) << wanted << ": " << pickle.error().message;
  EXPECT_EQ(printed(*pickle, pickle->top()), wanted);
  EXPECT_EQ(pickle->size, text.size()) << wanted;
}

TEST(Pickle, ReadsEveryOpcodeOfPlainValues) {
  expect_value("\x80\x02N.", "None");
  expect_value("\x80\x05\x88.", "True");
  expect_value("\x89.", "False");
  expect_value("K\xff.", "255");
  expect_value("M\xff\xff.", "65535");
  expect_value("J\xfe\xff\xff\xff.", "-2");
  expect_value("\x8a\x00."s, "0");
  expect_value("\x8a\x01\xff.", "-1");
  expect_value("\x8a\x02\xff\x00."s, "255");
  expect_value("\x8b\x03\x00\x00\x00\x00\x00\x80."s, "-8388608");
  expect_value("\x8a\x08" + little_endian(INT64_MIN) + ".", "-9223372036854775808");
  expect_value("\x8a\x09" + std::string(9, '\1') + ".", "number of 9 bytes");
  expect_value("G" + std::string(8, '\0') + ".", "number of 8 bytes");
  expect_value("U\x02hi.", "'hi'");
  expect_value("T\x02\x00\x00\x00hi."s, "'hi'");
  expect_value("\x8c\x02hi.", "'hi'");
  expect_value("X\x02\x00\x00\x00hi."s, "'hi'");
  expect_value("\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s, "'hi'");
  expect_value("C\x01x.", "b'x'");
  expect_value("B\x01\x00\x00\x00x."s, "b'x'");
  expect_value("\x8e\x01\x00\x00\x00\x00\x00\x00\x00x."s, "b'x'");
  expect_value("\x96\x01\x00\x00\x00\x00\x00\x00\x00x."s, "b'x'");
}

TEST(Pickle, ReadsEveryOpcodeOfContainersAndTheMemo) {
  expect_value(").", "()");
  expect_value("].", "[]");
  expect_value("}.", "{}");
  expect_value("\x8f(K\1K\2\x90.", "[1,2,]");
  expect_value("(K\1K\2\x91.", "[1,2,]");
  expect_value("K\1\x85.", "(1,)");
  expect_value("K\1K\2\x86.", "(1,2,)");
  expect_value("K\1K\2K\3\x87.", "(1,2,3,)");
  expect_value("(K\1(K\2tK\3t.", "(1,(2,),3,)");
  expect_value("]K\1a(K\2K\3e.", "[1,2,3,]");
  expect_value("}K\1K\2s(K\3K\4u.", "{1,2,3,4,}");
  expect_value(
      "N0K\1(K\2K\3"
      "1.",
      "1");
  expect_value(
      "K\7q\x05"
      "0h\x05.",
      "7");
  expect_value(
      "K\7r\x00\x01\x00\x00"
      "0j\x00\x01\x00\x00."s,
      "7");
  expect_value("\x80\x04\x95\x09\x00\x00\x00\x00\x00\x00\x00K\7\x94K\x08\x94\x86h\x00h\x01\x87."s,
               "((7,8,),7,8,)");
}

TEST(Pickle, SaysWhatWouldBeCalledAndCallsNothing) {
  expect_value("cos\nsystem\n(U\x04truetR.", "callos.system,('true',),");
  expect_value("\x8c\x05posix\x8c\x06system\x93U\x04true\x85R.", "callposix.system,('true',),");
  expect_value("ca\nB\n)\x81.", "calla.B,(),");
  expect_value("ca\nB\n)}\x92.", "calla.B,(),");
  expect_value("ca\nB\n)\x81}b.", "calla.B,(),");                 // its state
  expect_value("ca\nB\n)\x81K\1a(K\2e(K\3K\4u.", "calla.B,(),");  // its content
  expect_value("ca\nB\n)R)R.", "callcalla.B,(),,(),");
  expect_value("U\1xQ.", "id'x',");
  const auto pickle = read_text("ca\nB\n)R.");
  ASSERT_TRUE(pickle);
  EXPECT_EQ(global_text(*pickle->callee(pickle->top())), "a.B");
  EXPECT_EQ(pickle->callee((*pickle)[0]), nullptr);
}

TEST(Pickle, MakesDictionariesOfOrderedDict) {
  const std::string type = pickled_global("collections", "OrderedDict");
  expect_value(type + ")R.", "{}");
  expect_value(type + ")\x81.", "{}");
  expect_value(type + ")RU\1aK\1s}U\1bK\2sb.", "{'a',1,}");  // but for their attributes
  expect_value(type + "](](U\1aK\1e](U\1bK\2ee\x85R.", "{'a',1,'b',2,}");  // Python 2
  EXPECT_FAILS_WITH(read_text(type + "](K\1e\x85R."), Code::kCorrupt, "other than pairs");
  EXPECT_FAILS_WITH(read_text(type + "]]\x86R."), Code::kCorrupt, "several arguments");
  const auto pickle = read_text("}(U\1aK\1K\1K\2U\1bNu.");
  ASSERT_TRUE(pickle);
  EXPECT_EQ(pickle->find(pickle->top(), "a")->number, 1);
  EXPECT_EQ(pickle->find(pickle->top(), "c"), nullptr);
  EXPECT_EQ(pickle->find((*pickle)[1], "a"), nullptr);
}

TEST(Pickle, ReadsWhatContainsItself) {
  const auto pickle = read_text(
      "]q\x00h\x00"
      "a}U\1xh\x00s\x86."s);
  ASSERT_TRUE(pickle) << pickle.error().message;
  EXPECT_EQ((*pickle)[0].items, std::vector<uint32_t>{0});
}

TEST(Pickle, StopsWhereItEnds) {
  const auto pickle = read_text("K\1.K\2.");
  ASSERT_TRUE(pickle);
  EXPECT_EQ(pickle->size, 3u);
  EXPECT_EQ(pickle->top().number, 1);
}

TEST(Pickle, RefusesWhatContradictsItself) {
  const std::pair<std::string, const char*> kLies[] = {
      {"", "the pickle has 1 bytes from byte 0 on"},
      {"N", "the pickle has 1 bytes from byte 1 on"},
      {".", "more or less than a value"},
      {"NN.", "more or less than a value"},
      {"N(.", "more or less than a value"},
      {"0", "nothing left to take"},
      {"K\1(0", "nothing left to take"},
      {"K\1(\x85", "nothing left to take"},
      {"K\1t", "there is no mark"},
      {"K\1a", "nothing to add to"},
      {"K\1K\1a", "adds to what is no list"},
      {"}K\1a", "adds to what is no list"},
      {"]K\1K\1s", "adds to what is no dictionary"},
      {"}(K\1u", "a key has no value"},
      {"](K\1a", "nothing to add to"},
      {"h\1", "nothing at place 1 of the memo"},
      {"q\1", "nothing to keep"},
      {"K\1(\x94", "nothing to keep"},
      {"K\1K\2\x93", "the name of a class is no text"},
      {"U\1aK\2\x93", "the name of a class is no text"},
      {"ca\nB\nK\1R", "the arguments of a call are no tuple"},
      {"}b", "there is no object"},
      {"cposix", "the name of a module from byte 1 on has no end"},
      {"cposix\nsystem", "the name of a class from byte 7 on has no end"},
      {"U\x05"
       "abc",
       "a text of the pickle has 5 bytes from byte 2 on"},
      {"\x8d" + std::string(8, '\xff'), "a text of the pickle has 18446744073709551615 bytes"},
      {"\x8b\xff\xff\xff\x7f", "a number of the pickle has 2147483647 bytes"},
  };
  for (const auto& [text, words] : kLies) {
    EXPECT_FAILS_WITH(read_text(text), Code::kCorrupt, words);
    EXPECT_FAILS_WITH(read_text(text), Code::kCorrupt, "file");
  }
  EXPECT_FAILS_WITH(read_text("\x80\x06N."), Code::kUnsupported, "is of protocol 6");
  // Texts of protocol 0, extension codes, buffers elsewhere, and what is none.
  for (const char opcode : "ILFSVgpidloP\x82\x83\x84\x97\x98\xff"s) {
    EXPECT_FAILS_WITH(read_text("N"s + opcode), Code::kUnsupported,
                      "byte 1 of the pickle is opcode");
  }
}

TEST(Pickle, BoundsItsMemory) {
  const std::string values(kPickleValuesMax + 1, ')');
  EXPECT_FAILS_WITH(read_text(values), Code::kExhausted, "more than 2097152 values");
  const std::string marks(kPickleStepsMax + 1, '(');
  EXPECT_FAILS_WITH(read_text(marks), Code::kExhausted, "more than 8388608 opcodes and items");
  EXPECT_FAILS_WITH(read_text("Nr\xff\xff\xff\xff."), Code::kCorrupt,
                    "place 4294967295 of the memo is too far");
  // A list of pairs that is made a dictionary again and again.
  std::string text = "](";
  for (int i = 0; i < 10'000; ++i) text += "NN\x86";
  text +=
      "eq\x01"
      "0" +
      pickled_global("collections", "OrderedDict") +
      "q\x02"
      "0";
  for (int i = 0; i < 1000; ++i) text += "h\x02h\x01\x85R0";
  EXPECT_FAILS_WITH(read_text(text + "N."), Code::kExhausted,
                    "more than 8388608 opcodes and items");
}

}  // namespace
}  // namespace jige::formats
