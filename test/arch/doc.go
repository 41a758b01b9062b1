// Package arch holds the architecture tests: who may import whom, where heavy
// dependencies live, what a program links when it picks few parts, and the
// house rules that a reader of one file cannot check.
//
// The tables in tables_test.go are the rules. A new package fails the tests
// until someone gives it a row there.
package arch
