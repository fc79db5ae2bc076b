# jige-mpi-links, which mpirun starts for `jige profile links --mpi`, where MPI is found: a program
# of its own, so that jige itself needs no MPI. Sanitizers find too much in MPI libraries.
if(MPI_C_FOUND AND NOT JIGE_SANITIZE)
  file(GLOB mpi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/profile/mpi/*.cc)
  list(FILTER mpi_sources EXCLUDE REGEX "/main\\.cc$")
  add_library(jige_profile_mpi STATIC ${mpi_sources})
  target_link_libraries(jige_profile_mpi PUBLIC jige_profile MPI::MPI_C)
  target_compile_definitions(jige_profile_mpi PUBLIC OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  jige_compile_fast(jige_profile_mpi library)
  add_executable(jige-mpi-links src/profile/mpi/main.cc)
  target_link_libraries(jige-mpi-links PRIVATE jige_profile_mpi)
endif()
