// Package script has the commands of scripts that drive the binary with the real
// kubectl. Its tests run those in testdata; test/compatibility has further ones.
//
// Each file in testdata is one script that shows one thing, in the language of
// github.com/rogpeppe/go-internal/testscript, with these commands besides:
//
//	serve [FLAG...]     starts "sailplane serve" and waits for its ready line;
//	                    it is stopped at the end of the script
//	shutdown            stops the server with SIGTERM; it must exit with status 0
//	crash               kills the server with SIGKILL
//	anonymous PATH      requests a path of the server without credentials;
//	                    the status is on stdout, then the body
//	eventually CMD...   repeats a command until it succeeds, where kubectl cannot wait
//	each FILE CMD...    runs a command for each line of a file, which replaces {}
//
// Scripts in testdata/api are about what a storage does, and run on every one. Those in
// testdata/persistent run on every storage that keeps objects in files, and those in testdata/crds,
// too, with the largest set of definitions. Those in testdata/answers and testdata/binary run
// once. Some of testdata/api and answers run again on servers that have only the parts they are
// about, as those in testdata/pieces do.
//
// $SERVER is the address of the running server, $STORAGE the storage of the
// run, and $CONFIG the folder config of the repository.
package script
