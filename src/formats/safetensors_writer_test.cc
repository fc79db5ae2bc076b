#include "formats/safetensors_writer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "formats/safetensors.h"
#include "formats/test_support.h"
#include "formats/xxhash64.h"

namespace jige::formats {
namespace {

TEST(SafetensorsWriter, WritesTheSameBytesAsTheLibrary) {
  const std::string recorded = fixture("weights/readable.safetensors");
  const auto file = open_safetensors(recorded);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<TensorSource> sources;
  for (const StoredTensor& tensor : file->tensors()) {
    sources.push_back(TensorSource::of(tensor.name, *file->view(tensor.name)));
  }
  std::reverse(sources.begin(), sources.end());  // the order given does not matter
  const ScratchFolder scratch;
  const auto written = write_safetensors(scratch.file("a.safetensors"), sources);
  ASSERT_TRUE(written) << written.error().message;
  const std::string bytes = read_or_fail(scratch.file("a.safetensors"));
  EXPECT_EQ(bytes, read_or_fail(recorded));
  EXPECT_EQ(written->bytes, bytes.size());
  EXPECT_EQ(written->xxh64, xxhash64(bytes_of(bytes)));
}

TEST(SafetensorsWriter, AlignsEveryTensorToItsType) {
  std::vector<uint8_t> odd(3);
  std::vector<float> floats(5);
  std::vector<int64_t> wide(1);
  const TensorSource sources[] = {
      TensorSource::of("a", TensorView::of(odd.data(), DType::kU8, {3})),
      TensorSource::of("b", TensorView::of(floats.data(), DType::kF32, {5})),
      TensorSource::of("c", TensorView::of(wide.data(), DType::kI64, {1}))};
  const ScratchFolder scratch;
  ASSERT_TRUE(write_safetensors(scratch.file("a.safetensors"), sources, {}));
  const auto file = open_safetensors(scratch.file("a.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("b")->offset % 4, 0u);
  EXPECT_EQ(file->find("c")->offset % 8, 0u);
  EXPECT_TRUE(file->metadata().empty());
}

TEST(SafetensorsWriter, GathersStridedRowsAndPieces) {
  std::vector<float> matrix(7 * 10);
  std::iota(matrix.begin(), matrix.end(), 0.0f);
  const TensorView whole = TensorView::of(matrix.data(), DType::kF32, {7, 10});
  TensorSource pieces{"pieces", DType::kF32, {7, 10}, [&](const RowSink& sink) -> Status {
                        JIGE_DO(sink(whole.row_range(0, 3)));
                        JIGE_DO(sink(whole.row_range(3, 3)));
                        return sink(whole.row_range(3, 7));
                      }};
  const TensorSource sources[] = {TensorSource::of("columns", whole.column_range(2, 5)), pieces};
  const ScratchFolder scratch;
  ASSERT_TRUE(write_safetensors(scratch.file("a.safetensors"), sources));
  const auto file = open_safetensors(scratch.file("a.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  const auto columns = file->view("columns");
  ASSERT_TRUE(columns);
  EXPECT_EQ(columns->shape, (Shape{7, 3}));
  for (int row = 0; row < 7; ++row) {
    for (int column = 0; column < 3; ++column) {
      EXPECT_EQ(columns->as<float>()[row * 3 + column], static_cast<float>(row * 10 + column + 2));
    }
  }
  EXPECT_EQ(0, std::memcmp(file->view("pieces")->data, matrix.data(), matrix.size() * 4));
}

TEST(SafetensorsWriter, RefusesSourcesThatDoNotKeepToTheirShape) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a.safetensors");
  write_or_fail(path, "precious");
  std::vector<float> data(12);
  const TensorView view = TensorView::of(data.data(), DType::kF32, {4, 3});
  const auto source = [&](TensorView given, int times) {
    return TensorSource{"t", DType::kF32, {4, 3}, [=](const RowSink& sink) -> Status {
                          for (int i = 0; i < times; ++i) JIGE_DO(sink(given));
                          return {};
                        }};
  };
  for (const TensorSource& bad : {source(view, 0), source(view, 2), source(view.row_range(0, 3), 1),
                                  source(view.column_range(0, 2), 1),
                                  source(TensorView::of(data.data(), DType::kI32, {4, 3}), 1)}) {
    EXPECT_FAILS_WITH(write_safetensors(path, std::span(&bad, 1)), Code::kInvalidArgument,
                      "tensor \"t\"");
  }
  const TensorSource failing{"t", DType::kF32, {4, 3}, [](const RowSink&) -> Status {
                               return fail(Code::kUnavailable, "the device went away");
                             }};
  EXPECT_FAILS_WITH(write_safetensors(path, std::span(&failing, 1)), Code::kUnavailable, "device");
  const TensorSource twice[] = {TensorSource::of("t", view), TensorSource::of("t", view)};
  EXPECT_FAILS_WITH(write_safetensors(path, twice), Code::kInvalidArgument, "twice");
  const TensorSource reserved = TensorSource::of("__metadata__", view);
  EXPECT_FAILS_WITH(write_safetensors(path, std::span(&reserved, 1)), Code::kInvalidArgument,
                    "__metadata__");
  EXPECT_EQ(read_or_fail(path), "precious");
  EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"a.safetensors"});
}

}  // namespace
}  // namespace jige::formats
