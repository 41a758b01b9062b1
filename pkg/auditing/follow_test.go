package auditing_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
)

// policy is the content of a file that has answers to get recorded at a level.
func policy(level string) []byte {
	return []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: " + level + ", verbs: [get], omitStages: [RequestReceived]}]\n")
}

// replace puts content into a file as one step.
func replace(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// get asks for a ConfigMap that does not exist.
func get(t *testing.T, client *kubernetes.Clientset) {
	t.Helper()
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got error %v: want 404", err)
	}
}

// section is a policy that a program has in a configuration of its own.
type section struct {
	content atomic.Pointer[[]byte]
	err     atomic.Pointer[error]
	reads   atomic.Int64
	other   atomic.Pointer[string] // a file that it was asked for and does not have
}

func (s *section) read(file string) ([]byte, error) {
	s.reads.Add(1)
	if file != "shop.yaml" {
		s.other.Store(&file)
	}
	if err := s.err.Load(); err != nil {
		return nil, *err
	}
	return *s.content.Load(), nil
}

// put changes the section, and waits until that was looked at.
func (s *section) put(t *testing.T, content []byte) {
	t.Helper()
	s.content.Store(&content)
	s.lookedAt(t)
}

// lookedAt waits for a read that begins now or later, and for the one after it: by
// then, what the first one read is in use or refused.
func (s *section) lookedAt(t *testing.T) {
	t.Helper()
	before := s.reads.Load()
	eventually(t, "the section is read", func() bool { return s.reads.Load() >= before+2 })
}

func TestPolicyFileIsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	replace(t, file, policy("None"))
	// Two logs may have one file.
	client, _ := serve(t, "ada", auditing.Log{PolicyFile: file, Path: path}, auditing.Log{Name: "more", PolicyFile: file, Path: path + ".more"})
	get(t, client)
	for _, p := range []string{path, path + ".more"} {
		if got := told(t, read(t, p), "ada"); len(got) > 0 {
			t.Errorf("recorded by the first policy: %v", got)
		}
	}
	replace(t, file, policy("Metadata"))
	for _, p := range []string{path, path + ".more"} {
		eventually(t, "the second policy holds in "+p, func() bool {
			get(t, client)
			return slices.Contains(told(t, read(t, p), "ada"), "Metadata ResponseComplete get default/configmaps/absent Not Found")
		})
	}
}

// TestWebhookFollows: as logs do.
func TestWebhookFollows(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			t.Errorf("events: %v", err)
		}
		for _, e := range list.Items {
			if e.User.Username == "ada" {
				received.Add(1)
			}
		}
	}))
	t.Cleanup(sink.Close)
	s := &section{}
	first := policy("None")
	s.content.Store(&first)
	client, _ := serve(t, "ada", auditing.Webhook{
		ConfigFile: kubeconfig(t, sink.URL), Mode: auditing.Blocking, PolicyFile: "shop.yaml", Read: s.read,
	})
	get(t, client)
	if n := received.Load(); n != 0 {
		t.Errorf("%d events by the first policy: want none", n)
	}
	s.put(t, policy("Metadata"))
	get(t, client)
	if n := received.Load(); n != 1 {
		t.Errorf("%d events by the second policy: want 1", n)
	}
	s.put(t, policy("None"))
	get(t, client)
	if n := received.Load(); n != 1 {
		t.Errorf("%d events after the third policy: want 1", n)
	}
}

// TestPolicyThatCannotBeUsed changes nothing.
func TestPolicyThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	s := &section{}
	first := policy("Metadata")
	s.content.Store(&first)
	client, _ := serve(t, "ada", auditing.Log{Path: path, PolicyFile: "shop.yaml", Read: s.read})
	const event = "Metadata ResponseComplete get default/configmaps/absent Not Found"
	want := []string(nil)
	check := func(reason string) {
		t.Helper()
		get(t, client)
		want = append(want, event)
		if got := told(t, read(t, path), "ada"); !slices.Equal(got, want) {
			t.Errorf("%s: got %v", reason, got)
		}
	}
	check("the first policy")
	for reason, content := range map[string]string{
		"not YAML":      "rules: [",
		"unknown field": strings.Replace(string(policy("None")), "verbs", "verb", 1),
		"no such level": string(policy("Never")),
	} {
		s.put(t, []byte(content))
		check(reason)
	}
	gone := errors.New("the section is gone")
	s.err.Store(&gone)
	s.lookedAt(t)
	check("not readable")
	s.err.Store(nil)
	s.put(t, policy("None"))
	get(t, client)
	if got := told(t, read(t, path), "ada"); !slices.Equal(got, want) {
		t.Errorf("a good one again, which records nothing: got %v", got)
	}
	if other := s.other.Load(); other != nil {
		t.Errorf("it was asked for file %s: want shop.yaml", *other)
	}
}

// TestPolicyChangesUnderLoad: no event is lost while the policy changes.
func TestPolicyChangesUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	s := &section{}
	first := policy("Metadata")
	s.content.Store(&first)
	client, _ := serve(t, "ada", auditing.Log{Path: path, PolicyFile: "shop.yaml", Read: s.read})
	var made atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(done)
		clients.Wait()
	})
	defer end()
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					get(t, client)
					made.Add(1)
				}
			}
		})
	}
	s.put(t, policy("Request"))
	s.put(t, policy("Metadata"))
	end()
	levels := map[string]int{}
	for _, e := range told(t, read(t, path), "ada") {
		level, _, _ := strings.Cut(e, " ")
		levels[level]++
	}
	if levels["Metadata"] == 0 || levels["Request"] == 0 || int64(levels["Metadata"]+levels["Request"]) != made.Load() {
		t.Errorf("events by level: %v; want %d of both levels", levels, made.Load())
	}
}
