#include "formats/torch_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/json_file.h"
#include "formats/test_support.h"
#include "formats/torch_state_dict.h"
#include "formats/torch_test_support.h"

namespace jige::formats {
namespace {

std::string torch_fixture(std::string_view name) {
  const std::string folder = name.starts_with("refused/") ? "torch/" : "torch/good/";
  return fixture(folder + std::string(name) + ".bin");
}

Result<TensorTable> parse_torch(std::string_view file) {
  return parse_torch_file(bytes_of(file), "file");
}

std::vector<std::string> names_of(const TensorFile& file) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  return names;
}

// The two tensors of the small recordings.
void expect_small(const std::string& path) {
  const auto file = open_torch_file(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(names_of(*file), (std::vector<std::string>{"b", "w"}));
  const auto w = file->view("w");
  ASSERT_TRUE(w) << w.error().message;
  EXPECT_EQ(w->shape, (Shape{2}));
  EXPECT_EQ(w->as<float>()[0], 1.0f);
  EXPECT_EQ(w->as<float>()[1], 2.0f);
  const auto b = file->view("b");
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ(to_float(b->as<Float16>()[0]), 3.0f);
}

TEST(TorchFile, ReadsEveryTypeAsSafetensorsOfTheSameTensors) {
  const auto expected = open_safetensors(fixture("weights/all_types.safetensors"));
  ASSERT_TRUE(expected) << expected.error().message;
  for (const char* name : {"all_types", "all_types_legacy", "protocol4", "protocol4_legacy"}) {
    SCOPED_TRACE(name);
    const auto file = open_torch_file(torch_fixture(name));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors().size(), expected->tensors().size() + 4);
    for (const StoredTensor& wanted : expected->tensors()) {
      const StoredTensor* found = file->find(wanted.name);
      ASSERT_TRUE(found) << wanted.name;
      EXPECT_EQ(found->dtype_name, wanted.dtype_name) << wanted.name;
      EXPECT_EQ(found->dtype, wanted.dtype) << wanted.name;
      EXPECT_EQ(found->dims, wanted.dims) << wanted.name;
      const auto bytes = file->bytes_of(wanted.name);
      ASSERT_TRUE(bytes);
      EXPECT_TRUE(std::ranges::equal(*bytes, *expected->bytes_of(wanted.name))) << wanted.name;
    }
    EXPECT_FAILS_WITH(file->view("f64"), Code::kUnsupported, "type F64");
  }
}

TEST(TorchFile, ReadsTensorsThatShareAStorage) {
  for (const char* name : {"all_types", "all_types_legacy"}) {
    SCOPED_TRACE(name);
    const auto file = open_torch_file(torch_fixture(name));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->find("tied")->offset, file->find("f32")->offset);
    EXPECT_EQ(file->find("second row")->offset, file->find("f32")->offset + 12);
    EXPECT_EQ(file->find("second row")->dims, std::vector<int64_t>{3});
    EXPECT_EQ(file->find("once")->dims, (std::vector<int64_t>{1, 3}));
    EXPECT_EQ(file->find("parameter")->offset, file->find("bf16")->offset);
    const auto row = file->view("second row");
    ASSERT_TRUE(row) << row.error().message;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(row->as<float>()[i], static_cast<float>(i) + 3.5f);
  }
}

TEST(TorchFile, ReadsTensorsWhoseElementsDoNotFollowOneAnother) {
  const auto expected = open_safetensors(fixture("torch/strided.safetensors"));
  ASSERT_TRUE(expected) << expected.error().message;
  for (const char* name : {"strided", "strided_legacy"}) {
    SCOPED_TRACE(name);
    const auto file = open_torch_file(torch_fixture(name));
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_EQ(file->tensors().size(), expected->tensors().size());
    for (const StoredTensor& wanted : expected->tensors()) {
      SCOPED_TRACE(wanted.name);
      const StoredTensor* found = file->find(wanted.name);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->dims, wanted.dims);
      const auto bytes = file->bytes_of(wanted.name);
      ASSERT_TRUE(bytes) << bytes.error().message;
      EXPECT_TRUE(std::ranges::equal(*bytes, *expected->bytes_of(wanted.name)));
      if (wanted.dims.size() > static_cast<size_t>(kRankMax)) continue;
      const auto view = file->view(wanted.name);
      ASSERT_TRUE(view) << view.error().message;
      EXPECT_TRUE(view->contiguous());
      EXPECT_EQ(view->data, bytes->data()) << "copied once";
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) % 8, 0u);
    }
  }
}

TEST(TorchFile, FindsTheStateDictInACheckpoint) {
  for (const char* name :
       {"small", "small_legacy", "repacked", "nested", "nested_legacy", "beside_plain"}) {
    SCOPED_TRACE(name);
    expect_small(torch_fixture(name));
  }
}

TEST(TorchFile, RefusesWhatItDoesNotReadByItsName) {
  const auto expected = load_json_object(fixture("torch/expected.json"));
  ASSERT_TRUE(expected) << expected.error().message;
  const Json& refused = expected->at("refused");
  ASSERT_GT(refused.size(), 20u);
  for (const auto& [name, words] : refused.items()) {
    const std::string path = torch_fixture("refused/" + name);
    const auto file = open_torch_file(path);
    ASSERT_FALSE(file) << name << " was accepted";
    EXPECT_NE(file.error().message.find(words.get<std::string>()), std::string::npos)
        << name << ": " << file.error().message;
    EXPECT_NE(file.error().message.find(path), std::string::npos) << file.error().message;
  }
}

TEST(TorchFile, DoesNotAdviseToRunWhatAFileSays) {
  for (const char* name : {"command", "command_legacy", "called", "module"}) {
    EXPECT_FAILS_WITH(open_torch_file(torch_fixture(fmt::format("refused/{}", name))),
                      Code::kUnsupported, "only if you trust its source");
  }
}

TEST(TorchFile, RefusesEveryTruncation) {
  for (const char* name :
       {"small", "small_legacy", "all_types", "all_types_legacy", "nested", "protocol4_legacy"}) {
    const std::string whole = read_or_fail(torch_fixture(name));
    ASSERT_TRUE(parse_torch(whole)) << name;
    for (size_t size = 0; size < whole.size(); ++size) {
      const auto cut = parse_torch(std::string_view(whole).substr(0, size));
      ASSERT_FALSE(cut) << name << ", " << size << " bytes";
      EXPECT_EQ(cut.error().code, Code::kCorrupt) << cut.error().message;
    }
  }
}

TEST(TorchFile, RefusesATensorThatAppearsTwice) {
  const TorchTensor one{"w", "FloatStorage", {1}, std::string(4, '\0')};
  EXPECT_FAILS_WITH(parse_torch(torch_archive({one, one})), Code::kCorrupt, "\"w\" appears twice");
}

TEST(TorchFile, RefusesFilesThatAreNoneOfTorch) {
  EXPECT_FAILS_WITH(parse_torch(""), Code::kCorrupt, "has 0 bytes");
  EXPECT_FAILS_WITH(parse_torch("version https://"), Code::kCorrupt, "torch.save did not write it");
  EXPECT_FAILS_WITH(parse_torch("\x80\x02}."), Code::kUnsupported, "torch.save did not write");
  std::string legacy = torch_legacy_file({});
  EXPECT_FAILS_WITH(parse_torch(legacy), Code::kUnsupported, "holds no tensors by name");
  std::string other = legacy;
  other.replace(other.find("M\xe9\x03"), 2, "M\xea");
  EXPECT_FAILS_WITH(parse_torch(other), Code::kUnsupported, "another version");
  legacy[legacy.find('\x88')] = '\x89';
  EXPECT_FAILS_WITH(parse_torch(legacy), Code::kUnsupported, "big-endian");
  EXPECT_FAILS_WITH(open_torch_file("/nowhere/a.bin"), Code::kNotFound, "/nowhere/a.bin");
}

TEST(TorchFile, ReadsAWideArchive) {
  const auto source = open_safetensors(fixture("weights/readable.safetensors"));
  ASSERT_TRUE(source);
  for (const bool wide : {false, true}) {
    const std::string archive = torch_archive(torch_tensors(*source), wide);
    const auto table = parse_torch(archive);
    ASSERT_TRUE(table) << table.error().message;
    ASSERT_EQ(table->tensors.size(), source->tensors().size());
    const StoredTensor& tensor = table->tensors[table->index.at("f32")];
    const auto wanted = source->bytes_of("f32");
    EXPECT_EQ(0, std::memcmp(archive.data() + tensor.offset, wanted->data(), wanted->size()));
  }
}

TEST(TorchFile, RefusesOlderFilesWhoseStoragesAreOthers) {
  const std::string good = torch_legacy_file({{"w", "FloatStorage", {2}, std::string(8, 'x'), 2}});
  const auto table = parse_torch(good);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->tensors[0].offset, good.size() - 8);
  std::string other_count = good;
  other_count[good.size() - 16] = '\1';
  EXPECT_FAILS_WITH(parse_torch(other_count), Code::kCorrupt,
                    "storage \"0\" has 1 elements, but 2 by its tensors");
  other_count[good.size() - 9] = '\x80';
  EXPECT_FAILS_WITH(parse_torch(other_count), Code::kCorrupt, "elements, but 2 by its tensors");
  const std::string list = "](" + pickled_text("0") + "e.";
  const size_t at = good.rfind(list);
  std::string other_key = good;
  other_key.replace(at, list.size(), "](" + pickled_text("1") + "e.");
  EXPECT_FAILS_WITH(parse_torch(other_key), Code::kCorrupt, "lists storage \"1\"");
  std::string no_key = good;
  no_key.replace(at, list.size(), "].");
  EXPECT_FAILS_WITH(parse_torch(no_key), Code::kCorrupt, "which the file does not have");
}

// A state dict with one tensor "w" of six f32 in "0", of which parts are replaced.
struct Lie {
  std::string name = "w";
  std::string function = "_rebuild_tensor_v2";
  std::string storage = pickled_global("torch", "FloatStorage") + pickled_text("0") +
                        pickled_text("cpu") + pickled_int(6);
  std::string offset = pickled_int(0);
  std::string sizes = pickled_int(2) + pickled_int(3);
  std::string strides = pickled_int(3) + pickled_int(1);
  std::string behind = "\x89}";

  std::string tensor() const {
    return pickled_global("torch._utils", function) + "((" + pickled_text("storage") + storage +
           "tQ" + offset + "(" + sizes + "t(" + strides + "t" + behind + "tR";
  }
  Result<std::vector<StoredTensor>> read(std::string value) const {
    const std::string text = "}" + pickled_text(name) + value + "s.";
    const auto pickle = read_pickle(bytes_of(text), "file");
    if (!pickle) return tl::unexpected<Error>(pickle.error());
    return read_state_dict(*pickle, {{"0", {.offset = 100, .bytes = 24}}}, "file");
  }
  Result<std::vector<StoredTensor>> read() const { return read(tensor()); }
};

TEST(StateDict, PlacesTensorsInTheirStorage) {
  const Lie whole;
  const auto tensors = whole.read();
  ASSERT_TRUE(tensors) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 1u);
  EXPECT_EQ(tensors->front().offset, 100u);
  EXPECT_EQ(tensors->front().bytes, 24u);
  Lie last{.offset = pickled_int(5), .sizes = pickled_int(1), .strides = pickled_int(-7)};
  EXPECT_FAILS_WITH(last.read(), Code::kCorrupt, "stride that is no whole number");
  last.strides = pickled_int(99);  // of a dimension of 1
  ASSERT_TRUE(last.read());
  EXPECT_EQ(last.read()->front().offset, 120u);
  const Lie columns{.sizes = pickled_int(2) + pickled_int(2),
                    .strides = pickled_int(1) + pickled_int(4)};
  ASSERT_TRUE(columns.read()) << columns.read().error().message;
  EXPECT_EQ(columns.read()->front().strides, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(columns.read()->front().bytes, 16u);
  Lie none{.offset = pickled_int(6), .sizes = pickled_int(0) + pickled_int(4)};
  ASSERT_TRUE(none.read());
  EXPECT_EQ(none.read()->front().bytes, 0u);
  Lie first_form{.function = "_rebuild_tensor", .behind = ""};
  EXPECT_TRUE(first_form.read());
  Lie typed{.function = "_rebuild_tensor_v3",
            .storage = pickled_global("torch.storage", "UntypedStorage") + pickled_text("0") +
                       pickled_text("cpu") + pickled_int(24),
            .offset = pickled_int(6),
            .behind = "\x89}" + pickled_global("torch", "int16")};
  ASSERT_TRUE(typed.read()) << typed.read().error().message;
  EXPECT_EQ(typed.read()->front().offset, 112u);
  EXPECT_EQ(typed.read()->front().dtype_name, "I16");
}

TEST(StateDict, RefusesWhatContradictsItself) {
  const std::string huge = pickled_int(int64_t{1} << 62);
  const std::string largest = pickled_int(INT64_MAX);
  const auto storage = [](std::string key, std::string count) {
    return pickled_global("torch", "FloatStorage") + key + pickled_text("cpu") + count;
  };
  const std::pair<Lie, const char*> kLies[] = {
      {{.name = std::string(5000, 'x')}, "a name of 5000 bytes"},
      {{.name = "\xff"}, "is not UTF-8"},
      {{.storage = storage(pickled_text("1"), pickled_int(6))}, "which the file does not have"},
      {{.storage = storage(pickled_text("0"), pickled_int(7))},
       "28 bytes, of which the file has 24"},
      {{.storage = storage(pickled_text("0"), huge)}, "is said to have 4611686018427387904"},
      {{.storage = storage(pickled_text("0"), pickled_int(-1))},
       "not of the form that torch writes"},
      {{.storage = storage("N", pickled_int(6))}, "not of the form that torch writes"},
      {{.storage = "N" + pickled_text("0") + "NK\6"}, "not of the form that torch writes"},
      {{.storage = "NN"}, "has no storage"},
      {{.offset = pickled_int(1)}, "has 24 bytes from element 1 on, beyond the 24"},
      {{.offset = pickled_int(-1)}, "beyond the 24"},
      {{.offset = largest}, "beyond the 24"},
      {{.offset = pickled_int(int64_t{1} << 62)}, "beyond the 24"},
      {{.offset = "N"}, "beyond the 24"},
      {{.sizes = pickled_int(3) + pickled_int(3)}, "beyond the 24"},
      {{.strides = pickled_int(4) + pickled_int(1)},
       "has 28 bytes from element 0 on, beyond the 24"},
      {{.offset = pickled_int(1), .strides = pickled_int(1) + pickled_int(2)},
       "has 24 bytes from element 1 on, beyond the 24"},
      {{.strides = largest + largest}, "has too many bytes from element 0 on"},
      {{.strides = huge + pickled_int(1)}, "has too many bytes from element 0 on"},
      {{.sizes = pickled_int(-2) + pickled_int(3)}, "a dimension that is no whole number"},
      {{.sizes = "NN"}, "a dimension that is no whole number"},
      {{.sizes = huge + huge}, "the product of its dimensions overflows"},
      {{.sizes = pickled_int(6)}, "has 1 dimensions and 2 strides"},
      {{.strides = "NN"}, "a stride that is no whole number"},
  };
  for (const auto& [lie, words] : kLies) {
    EXPECT_FAILS_WITH(lie.read(), Code::kCorrupt, words);
  }
  std::string many;
  for (size_t i = 0; i <= kRankListedMax; ++i) many += pickled_int(1);
  EXPECT_FAILS_WITH((Lie{.sizes = many, .strides = many}).read(), Code::kCorrupt, "at most 64");
}

// A small file cannot ask for a large copy.
TEST(StateDict, RefusesTensorsOfMoreElementsThanTheirStorage) {
  Lie lie{.sizes = pickled_int(4) + pickled_int(2), .strides = pickled_int(0) + pickled_int(1)};
  EXPECT_FAILS_WITH(lie.read(), Code::kUnsupported, "stand for many: 32 bytes in 24 of storage");
  lie.sizes = pickled_int(int64_t{1} << 40) + pickled_int(2);
  EXPECT_FAILS_WITH(lie.read(), Code::kUnsupported, "stand for many");
  lie.sizes = pickled_int(3) + pickled_int(2);
  EXPECT_TRUE(lie.read());
}

TEST(StateDict, RefusesOtherCallsAndTypes) {
  const Lie lie;
  const auto wrapped = [&](int times) {
    std::string value = lie.tensor();
    for (int i = 0; i < times; ++i) {
      value = pickled_global("torch._utils", "_rebuild_parameter") + value + "\x88}\x87R";
    }
    return value;
  };
  EXPECT_TRUE(lie.read(wrapped(2)));
  EXPECT_FAILS_WITH(lie.read(wrapped(9)), Code::kUnsupported, "made by _rebuild_parameter");
  const std::string parameter = pickled_global("torch._utils", "_rebuild_parameter");
  EXPECT_FAILS_WITH(lie.read(parameter + ")R"), Code::kCorrupt, "a parameter without a tensor");
  EXPECT_FAILS_WITH(lie.read(parameter + "N\x85R"), Code::kUnsupported, "made by an object");
  Lie other{.function = "_rebuild_tensor_v3", .behind = "\x89}" + pickled_global("torch", "qint8")};
  EXPECT_FAILS_WITH(other.read(), Code::kUnsupported, "is of type torch.qint8");
  other.behind = "\x89}";
  EXPECT_FAILS_WITH(other.read(), Code::kCorrupt, "not of the form that torch writes");
  Lie part;
  part.storage += "(" + pickled_text("1") + pickled_int(0) + pickled_int(6) + "t";
  EXPECT_FAILS_WITH(part.read(), Code::kUnsupported, "is a part of another");
  Lie quantised;
  quantised.storage = pickled_global("torch", "QInt8Storage") + pickled_text("0") + "NK\6";
  EXPECT_FAILS_WITH(quantised.read(), Code::kUnsupported, "is a torch.QInt8Storage");
}

}  // namespace
}  // namespace jige::formats
