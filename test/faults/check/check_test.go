package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// TestCheck checks a legal file, an illegal one with its picture, and one that
// is no history.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	created := history.Op{Kind: history.Create, Key: "/p/a", Value: "1", Revision: 2, Call: 1, Return: 2, Outcome: history.OK}
	lost := history.Op{Kind: history.Get, Key: "/p/a", Revision: 2, Call: 3, Return: 4, Outcome: history.OK}
	for name, ops := range map[string][]history.Op{"legal": {created}, "illegal": {created, lost}} {
		path := filepath.Join(dir, name)
		if err := history.Write(path, &history.History{Ops: ops}); err != nil {
			t.Fatal(err)
		}
		legal, err := check(path, true)
		if err != nil || legal != (name == "legal") {
			t.Errorf("%s: legal %v, %v", name, legal, err)
		}
		if info, err := os.Stat(path + ".html"); err != nil || info.Size() == 0 {
			t.Errorf("%s has no picture: %v", name, err)
		}
	}
	path := filepath.Join(dir, "none")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := check(path, false); err == nil {
		t.Error("a file without a round is no error")
	}
}
