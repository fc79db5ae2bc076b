# jige_page(target folder): the files of a folder as a source of the target, for api/page.h. CMake alone
# writes it: this file run as a script, with -DFILES=…;… and -DOUTPUT=….
if(CMAKE_SCRIPT_MODE_FILE)
  set(type_of_html "text/html; charset=utf-8")
  set(type_of_css "text/css; charset=utf-8")
  set(type_of_js "text/javascript; charset=utf-8")
  set(bodies "")
  set(rows "")
  foreach(file ${FILES})
    cmake_path(GET file FILENAME name)
    cmake_path(GET file EXTENSION LAST_ONLY ending)
    string(SUBSTRING "${ending}" 1 -1 ending)
    if(NOT DEFINED type_of_${ending})
      message(FATAL_ERROR "${file}: no type is known for this ending")
    endif()
    set(path /page/${name})
    if(name STREQUAL index.html)
      set(path /)
    endif()
    file(READ ${file} bytes HEX)
    file(SHA256 ${file} hash)
    string(SUBSTRING ${hash} 0 16 hash)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
    string(MAKE_C_IDENTIFIER k_${name} body)
    string(APPEND bodies "constexpr char ${body}[] = \"${bytes}\";\n")
    string(APPEND rows "    {\"${path}\", \"${type_of_${ending}}\", {${body}, sizeof ${body} - 1}, "
                       "\"\\\"${hash}\\\"\"},\n")
  endforeach()
  file(WRITE ${OUTPUT} "// Made from the files of src/api/page.
#include \"api/page.h\"
namespace jige::api {
namespace {
${bodies}constexpr PageFile kFiles[] = {
${rows}};
}  // namespace
std::span<const PageFile> page_files() { return kFiles; }
}  // namespace jige::api
")
  return()
endif()

function(jige_page target folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*)
  list(SORT files)
  set(source ${CMAKE_BINARY_DIR}/generated/page_files.cc)
  set(script ${CMAKE_SOURCE_DIR}/cmake/page.cmake)
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${files}" -DOUTPUT=${source} -P ${script}
    DEPENDS ${files} ${script} VERBATIM)
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
