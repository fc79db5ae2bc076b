# cmake -DIMAGE=… -DOUTPUT=… -P embed_image.cmake: a source file that holds an image as bytes.
file(READ ${IMAGE} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "// Made from cuda/copy_kernel.cu.
#include \"profile/copy_kernel.h\"
namespace jige::profile {
namespace {
alignas(16) constexpr unsigned char kImage[] = {${bytes}};
}
std::span<const unsigned char> copy_kernel_image() { return kImage; }
}
")
