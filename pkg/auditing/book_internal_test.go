package auditing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// TestSummary: what is over a budget is counted, and told when the log is closed.
func TestSummary(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := Log{Path: filepath.Join(t.TempDir(), "audit.log"), MaxSize: 100_000, MaxBackups: 1, Keep: day, StrangerBytes: 10_000}
	b := newBook(l, JSON)
	if err := b.Run(nil); err != nil {
		t.Fatal(err)
	}
	b.out = &out // and the file has room for ever
	full := false
	b.budget.room = func(time.Time) int64 {
		if full {
			return 0
		}
		return 1 << 30
	}
	if !b.ProcessEvents(of("ann", 201)) {
		t.Error("an event is refused though there is room")
	}
	full = true
	for i := range 1000 {
		e := of("", 401)
		e.SourceIPs = []string{"198.51.100.1", fmt.Sprint("192.0.2.", i%3)}
		b.ProcessEvents(e)
		if b.ProcessEvents(of("ann", 201)) {
			t.Fatal("a request whose event is over the budget does not learn of it")
		}
	}
	b.ProcessEvents(of("system:serviceaccount:a:b", 403))
	b.Shutdown()
	var last auditv1.Event
	counts := map[string]int{}
	for line := range strings.Lines(out.String()) {
		last = auditv1.Event{}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		counts[last.User.Username]++
	}
	if counts[""] < 10 || counts[""] > 40 || counts["ann"] != 1 {
		t.Errorf("got events %v: want those of strangers that 10,000 bytes hold, and one of ann", counts)
	}
	if want := fmt.Sprintf("%d from 3 addresses", 1000-counts[""]); last.Verb != "summarize" || last.Annotations[strangersNote] != want {
		t.Errorf("got summary %v: want %q", last.Annotations, want)
	}
	if want := `"ann" 1000, "system:serviceaccounts:a" 1`; last.Annotations[callersNote] != want {
		t.Errorf("got summary %v: want %s", last.Annotations, want)
	}
	if want := fmt.Sprint(2001 - counts[""]); last.Annotations[unwrittenNote] != want {
		t.Errorf("got summary %v: want %s events", last.Annotations, want)
	}
}

// BenchmarkLog writes events of a usual size to a file: 500 bytes of metadata.
func BenchmarkLog(b *testing.B) {
	for name, l := range map[string]Log{
		"plain": {}, "keep": {Keep: 7 * day}, "chain": {Chain: true}, "both": {Keep: 7 * day, Chain: true},
	} {
		b.Run(name, func(b *testing.B) {
			l.Path, l.MaxSize, l.MaxBackups = filepath.Join(b.TempDir(), "audit.log"), 100<<20, 10
			book := newBook(l, JSON)
			if err := book.Run(nil); err != nil {
				b.Fatal(err)
			}
			defer book.Shutdown()
			e := long("a", 1)
			e.RequestURI = "/api/v1/namespaces/default/configmaps?fieldManager=kubectl-create&fieldValidation=Strict"
			e.Stage = auditinternal.StageResponseComplete
			e.UserAgent = "kubectl/v1.37.0 (linux/amd64) kubernetes/1234567"
			b.ReportAllocs()
			for b.Loop() {
				book.ProcessEvents(e)
			}
		})
	}
}
