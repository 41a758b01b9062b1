package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// outcome is what testscript tells of a script: a [testscript.T] outside `go test`.
type outcome struct {
	log    strings.Builder
	failed bool
}

var _ testscript.T = (*outcome)(nil)

// Run implements testscript.T: it waits for the function, and for nothing else.
func (o *outcome) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() {
		defer close(done) // also when FailNow ends the goroutine
		f(o)
	}()
	<-done
}

// Log implements testscript.T.
func (o *outcome) Log(args ...any) { fmt.Fprintln(&o.log, args...) }

// FailNow implements testscript.T.
func (o *outcome) FailNow() {
	o.failed = true
	runtime.Goexit()
}

// Fatal implements testscript.T.
func (o *outcome) Fatal(args ...any) {
	o.Log(args...)
	o.FailNow()
}

// Skip implements testscript.T. A script that does not run shows nothing, so it fails.
func (o *outcome) Skip(args ...any) { o.Fatal(append([]any{"skipped:"}, args...)...) }

// Parallel implements testscript.T: scripts run one after the other.
func (*outcome) Parallel() {}

// Verbose implements testscript.T.
func (*outcome) Verbose() bool { return false }
