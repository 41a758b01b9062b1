// Package examples runs the programs in the folder examples of the repository
// and does with them what their READMEs say.
//
// A README's blocks of type console are a session in the root of the
// repository: lines that start with "$ " are commands, the lines below one are
// what it prints. The commands are run as they stand, with these exceptions:
//
//	$ go run ./examples/NAME   starts the program, built before, with a free
//	                           port; what it prints has to contain the lines
//	                           below, in this order, when all commands ran
//	$ export NAME=VALUE        is for the commands that follow
//	$ kubectl ... --watch      goes on while those that follow run, and has
//	                           to have printed the lines below after them
//
// A session ends at a command that is not installed: the rest is skipped, and
// in CI that is an error.
//
// In what is printed, "..." stands for anything, ages and white space are not
// compared, and the order of lines is.
package examples
