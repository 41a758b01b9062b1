//go:build unix

package life

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verbs are all that kubectl has for flunders, through the lender.
func (l *life) verbs(t *testing.T) {
	l.kubectl(t, flunder("a", "1"), "create -f -", "flunder.wardle.example.com/a created")
	if out := l.refused(t, flunder("a", "1"), "create -f -"); !strings.Contains(out, "AlreadyExists") {
		t.Errorf("a second one of the name is %s", out)
	}
	next := l.watched(t)
	next(t, "ADDED", "a")
	l.reads(t, "a", "1")
	l.kubectl(t, "", `patch flunder a --type=merge -p {"spec":{"flunderReference":"2"}}`, "patched")
	next(t, "MODIFIED", "a")
	l.reads(t, "a", "2")
	l.kubectl(t, flunder("a", "3"), "apply --server-side --force-conflicts -f -", "serverside-applied")
	next(t, "MODIFIED", "a")
	l.reads(t, "a", "3")
	old := l.kubectl(t, "", "get flunder a -o yaml")
	l.kubectl(t, strings.Replace(old, `flunderReference: "3"`, `flunderReference: "4"`, 1), "replace -f -", "replaced")
	next(t, "MODIFIED", "a")
	l.reads(t, "a", "4")
	if out := l.refused(t, old, "replace -f -"); !strings.Contains(out, "Conflict") {
		t.Errorf("a replacement of what is no more says %s", out)
	}
	l.kubectl(t, "", "label flunder a color=red", "labeled")
	next(t, "MODIFIED", "a")
	l.kubectl(t, "", "annotate flunder a note=x", "annotated")
	next(t, "MODIFIED", "a")
	for _, name := range []string{"b", "c"} {
		l.kubectl(t, flunder(name, "1"), "create -f -", "created")
		next(t, "ADDED", name)
	}
	l.kubectl(t, "", "get flunders -l color=red -o name", "flunder.wardle.example.com/a\n")
	l.kubectl(t, "", "get flunders --chunk-size=1 -o name", "flunder.wardle.example.com/a\nflunder.wardle.example.com/b\nflunder.wardle.example.com/c\n")
	l.kubectl(t, "", "delete flunder a", `"a" deleted`)
	next(t, "DELETED", "a")
	l.kubectl(t, "", "delete --raw /apis/wardle.example.com/v1alpha1/namespaces/default/flunders?labelSelector=kind%3Dmanual", "FlunderList")
	next(t, "DELETED", "b")
	next(t, "DELETED", "c")
	if out := l.kubectl(t, "", "get flunders -o name"); out != "" {
		t.Errorf("after all were deleted there are %s", out)
	}
}

// reads wants a flunder to refer to something.
func (l *life) reads(t *testing.T, name, reference string) {
	t.Helper()
	if got := l.kubectl(t, "", "get flunder "+name+" -o jsonpath={.spec.flunderReference}"); got != reference {
		t.Errorf("flunder %s refers to %q, want %q", name, got, reference)
	}
}

// watched has kubectl watch flunders until the test ends. What is returned wants the next event.
func (l *life) watched(t *testing.T) (next func(t *testing.T, event, name string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := exec.CommandContext(ctx, "kubectl", "--kubeconfig", l.Kubeconfig, "get", "flunders", "--watch", "--output-watch-events", "--output=json")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	events := json.NewDecoder(out)
	return func(t *testing.T, event, name string) {
		t.Helper()
		var e struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := events.Decode(&e); err != nil {
			t.Fatalf("the watch ended before %s %s: %v", event, name, err)
		}
		if e.Type != event || e.Object.Name != name {
			t.Errorf("the watch has %s %s, want %s %s", e.Type, e.Object.Name, event, name)
		}
	}
}
