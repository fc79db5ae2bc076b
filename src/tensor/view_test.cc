#include "tensor/view.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace jige {
namespace {

TEST(Shape, CountsAndCompares) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.count(), 1);
  EXPECT_EQ(scalar.row_count_elements(), 1);
  EXPECT_EQ(scalar.to_string(), "[]");
  const Shape shape = {2, 3, 4};
  EXPECT_EQ(shape.count(), 24);
  EXPECT_EQ(shape.row_count_elements(), 12);
  EXPECT_EQ(shape.to_string(), "[2, 3, 4]");
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
  EXPECT_FALSE(shape == (Shape{2, 3}));
  EXPECT_FALSE((Shape{2}) == (Shape{2, 0}));  // the unused dimensions are zero too
  EXPECT_FALSE(shape == (Shape{2, 3, 5}));
  EXPECT_EQ((Shape{5, 0, 7}).count(), 0);
  EXPECT_EQ((Shape{5}).row_count_elements(), 1);
  const std::vector<int64_t> dims = {1, 2, 3, 4};
  EXPECT_EQ(Shape(std::span<const int64_t>(dims)).count(), 24);
}

TEST(ShapeDeathTest, RefusesTooManyAndNegativeDimensions) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((Shape{1, 2, 3, 4, 5, 6}), "rank 6");
  EXPECT_DEATH((Shape{1, -2}), "dimension 1 is -2");
}

class ViewTest : public testing::Test {
 protected:
  ViewTest() : data_(60) { std::iota(data_.begin(), data_.end(), 0.0f); }
  // 5 rows of 8, 12 apart.
  TensorView strided() { return {data_.data(), DType::kF32, Shape{5, 8}, 12}; }
  static float at(const TensorView& view, int64_t row, int64_t column) {
    return view.as<float>()[row * view.row_stride + column];
  }
  std::vector<float> data_;
};

TEST_F(ViewTest, KnowsItsRowsAndColumns) {
  const TensorView view = TensorView::of(data_.data(), DType::kF32, Shape{5, 3, 4});
  EXPECT_EQ(view.rows(), 5);
  EXPECT_EQ(view.columns(), 12);
  EXPECT_EQ(view.count(), 60);
  EXPECT_EQ(view.row_stride, 12);
  EXPECT_TRUE(view.contiguous());
  EXPECT_TRUE(static_cast<bool>(view));
  EXPECT_FALSE(static_cast<bool>(TensorView{}));
  const TensorView vector = TensorView::of(data_.data(), DType::kF32, Shape{60});
  EXPECT_EQ(vector.rows(), 60);
  EXPECT_EQ(vector.columns(), 1);
  EXPECT_TRUE(vector.contiguous());
}

TEST_F(ViewTest, TakesRowRanges) {
  const TensorView part = strided().row_range(1, 4);
  EXPECT_EQ(part.shape, (Shape{3, 8}));
  EXPECT_EQ(part.row_stride, 12);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(at(part, 0, 0), 12.0f);
  EXPECT_EQ(at(part, 2, 7), 43.0f);
  EXPECT_TRUE(strided().row_range(2, 3).contiguous());  // one row has no gap
  EXPECT_EQ(strided().row_range(5, 5).rows(), 0);
  const TensorView cube = TensorView::of(data_.data(), DType::kF32, Shape{5, 3, 4});
  EXPECT_EQ(cube.row_range(2, 4).shape, (Shape{2, 3, 4}));
  EXPECT_EQ(at(cube.row_range(2, 4), 0, 0), 24.0f);
  const TensorView vector = TensorView::of(data_.data(), DType::kF32, Shape{60});
  EXPECT_EQ(at(vector.row_range(7, 9), 1, 0), 8.0f);
}

TEST_F(ViewTest, TakesColumnRangesOfRowRanges) {
  const TensorView part = strided().row_range(1, 5).column_range(2, 6);
  EXPECT_EQ(part.shape, (Shape{4, 4}));
  EXPECT_EQ(at(part, 0, 0), 14.0f);
  EXPECT_EQ(at(part, 3, 3), 53.0f);
  EXPECT_EQ(strided().column_range(3, 3).columns(), 0);
  TensorView halves = strided();
  halves.dtype = DType::kBF16;
  EXPECT_EQ(static_cast<std::byte*>(halves.column_range(2, 6).data) -
                static_cast<std::byte*>(halves.data),
            4);
}

TEST_F(ViewTest, ReshapesWhatIsContiguous) {
  const TensorView view = TensorView::of(data_.data(), DType::kF32, Shape{5, 12});
  EXPECT_EQ(view.reshaped(Shape{3, 20}).row_stride, 20);
  EXPECT_EQ(at(view.reshaped(Shape{3, 20}), 2, 19), 59.0f);
  EXPECT_EQ(view.reshaped(Shape{60}).rows(), 60);
}

using ViewDeathTest = ViewTest;

TEST_F(ViewDeathTest, RefusesRangesBeyondItself) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(strided().row_range(0, 6), "rows");
  EXPECT_DEATH(strided().row_range(-1, 2), "rows");
  EXPECT_DEATH(strided().row_range(3, 2), "rows");
  EXPECT_DEATH(strided().column_range(0, 9), "columns");
  EXPECT_DEATH(TensorView::of(data_.data(), DType::kF32, Shape{60}).column_range(0, 1), "columns");
  EXPECT_DEATH(strided().reshaped(Shape{40}), "cannot become");
  EXPECT_DEATH(TensorView::of(data_.data(), DType::kF32, Shape{5, 12}).reshaped(Shape{61}),
               "cannot become");
}

}  // namespace
}  // namespace jige
