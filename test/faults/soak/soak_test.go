package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/test/faults/verify"
)

// TestResume opens the record of a run that was ended in the middle of a line.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rounds.jsonl")
	text := `{"engine":"memory","fault":"none","seed":1}
{"engine":"etcd","fault":"none","seed":2,"illegal":[{"check":"lost","text":"x","count":1}]}
{"engine":"etcd","fau`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := openRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	left, err := missing(r.done, options{rounds: 3, engines: "memory,etcd"})
	if err != nil {
		t.Fatal(err)
	}
	want := []task{{"etcd", "kill"}, {"memory", "none"}, {"etcd", "full"}, {"memory", "none"}}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("what is left to do: %s", diff)
	}
	if err := r.add(line{Engine: "etcd", Fault: "kill", Seed: 3}); err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	again, err := openRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.close() })
	wanted := []line{
		{Engine: "memory", Fault: "none", Seed: 1},
		{Engine: "etcd", Fault: "none", Seed: 2, Illegal: []verify.Violation{{Check: "lost", Text: "x", Count: 1}}},
		{Engine: "etcd", Fault: "kill", Seed: 3},
	}
	if diff := cmp.Diff(wanted, again.done); diff != "" {
		t.Errorf("what is done: %s", diff)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if table(&out, []line{{Engine: "etcd", Fault: "kill", Faults: 3, Operations: 5}}) {
		t.Error("a legal round is called a failure")
	}
	if want := "| etcd | kill | 1 | 3 | 5 | 0 | 0 |"; !strings.Contains(out.String(), want) {
		t.Errorf("%s\nhas no row %s", &out, want)
	}
	for name, l := range map[string]line{
		"illegal": {Illegal: []verify.Violation{{Check: verify.Lost}}}, "error": {Error: "the server did not start"},
	} {
		if !table(&out, []line{l}) {
			t.Errorf("%s: a round that failed is none", name)
		}
	}
}
