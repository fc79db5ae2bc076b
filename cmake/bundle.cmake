# jige_bundled(target): tools/bundle can take the program to other machines. It looks into the folder lib
# beside it first, for the needs of its libraries too, which DT_RUNPATH does not reach: hence the older
# DT_RPATH.
function(jige_bundled target)
  set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/lib")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endfunction()
