#include "cli/cli.h"

int main(int argc, char** argv) { return jige::cli::run(argc, argv); }
