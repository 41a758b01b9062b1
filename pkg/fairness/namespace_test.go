package fairness_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// accounts are clients of service accounts of a namespace.
func (s *server) accounts(t *testing.T, namespace string, n int) []rest.Interface {
	t.Helper()
	all := make([]rest.Interface, n)
	for i := range all {
		all[i] = s.as(t, fmt.Sprintf("system:serviceaccount:%s:a%d", namespace, i))
	}
	return all
}

// TestAccountsTogether: eight accounts of a namespace get no further than the namespace.
func TestAccountsTogether(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{RequestsPerSecond: 0.001, Burst: 2, WatchesPerUser: 2, NamespaceFactor: 2})
	answered, watching := 0, 0
	var request, watch error
	for _, a := range s.accounts(t, "team", 8) {
		for range 2 {
			if err := version(t, a); err != nil {
				request = err
			} else {
				answered++
			}
		}
	}
	refused(t, request, http.StatusTooManyRequests, "limit RequestsPerSecond is 0.001 with Burst 2, 2 times that for a namespace: "+
		`more come from the service accounts of namespace "team" together`)
	if answered != 4 {
		t.Errorf("%d requests were answered, want 4", answered)
	}
	if err := version(t, s.accounts(t, "other", 1)[0]); err != nil {
		t.Errorf("an account of another namespace: %v", err)
	}

	s = serve(t, fairness.Limits{WatchesPerUser: 2, NamespaceFactor: 2})
	for _, a := range s.accounts(t, "team", 8) {
		if _, err := open(t, a); err != nil {
			watch = err
		} else {
			watching++
		}
	}
	refused(t, watch, http.StatusTooManyRequests, "limit WatchesPerUser is 2, 2 times that for a namespace: "+
		`the service accounts of namespace "team" together already have that many watches open`)
	if watching != 4 {
		t.Errorf("%d watches are open, want 4", watching)
	}
}

// TestWritersTogether: users with limits of their own get no further than the namespace that they write into.
func TestWritersTogether(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{RequestsPerSecond: 0.001, Burst: 4, NamespaceFactor: 1})
	created := 0
	var err error
	for i := range 8 {
		if err = create(t.Context(), s.as(t, fmt.Sprint("user-", i)), fmt.Sprint("c", i), 1); err == nil {
			created++
		}
	}
	refused(t, err, http.StatusTooManyRequests, `more come from writers into namespace "default" together`)
	if created != 4 {
		t.Errorf("%d objects were created, want 4", created)
	}
	if err := s.as(t, "reader").Get().AbsPath("/api/v1/namespaces/default/configmaps").Do(t.Context()).Error(); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if err := create(t.Context(), s.as(t, "root", "system:masters"), "root", 1); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}

// TestBytesWritten: what is stored counts, also by a patch of one field, and all at once comes back with time.
func TestBytesWritten(t *testing.T) {
	t.Parallel()
	const size = 10_000
	s := serve(t, fairness.Limits{WriteBytesPerSecond: 1, WriteBurstBytes: 4 * size, NamespaceFactor: 1})
	ann := s.as(t, "ann")
	if err := create(t.Context(), ann, "a", size); err != nil {
		t.Fatal(err)
	}
	patch := func(client rest.Interface, n int) error {
		return client.Patch("application/merge-patch+json").MaxRetries(0).AbsPath("/api/v1/namespaces/default/configmaps/a").
			Body(fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n)).Do(t.Context()).Error()
	}
	patched := 0
	var err error
	for err == nil && patched < 10 {
		if err = patch(ann, patched); err == nil {
			patched++
		}
	}
	refused(t, err, http.StatusTooManyRequests, "limit WriteBytesPerSecond is 1 with WriteBurstBytes 40000: more come from user \"ann\"")
	if patched != 2 {
		t.Errorf("%d patches of a large object passed, want 2", patched)
	}
	refused(t, create(t.Context(), ann, "large", 2*size), http.StatusTooManyRequests, "limit WriteBytesPerSecond is 1")
	if err := create(t.Context(), ann, "b", 1); err != nil {
		t.Errorf("a small object: %v", err)
	}
	refused(t, create(t.Context(), s.as(t, "bob"), "large", 2*size), http.StatusTooManyRequests,
		`limit WriteBytesPerSecond is 1 with WriteBurstBytes 40000: more come from writers into namespace "default" together`)
	if err := create(t.Context(), s.CoreV1().RESTClient(), "mine", 5*size); err != nil {
		t.Errorf("the server itself: %v", err)
	}
}

// TestStoredBytes: a namespace does not take more than the limit, however it is filled.
func TestStoredBytes(t *testing.T) {
	t.Parallel()
	const size = 10_000
	s := serve(t, fairness.Limits{StoredBytesPerNamespace: 45_000})
	ann := s.as(t, "ann")
	for i := range 4 {
		if err := create(t.Context(), ann, fmt.Sprint("c", i), size); err != nil {
			t.Fatal(err)
		}
	}
	const full = `limit StoredBytesPerNamespace is 45000: namespace "default" has 4`
	refused(t, create(t.Context(), ann, "more", size), http.StatusTooManyRequests, full)
	patch := func(name, body string) error {
		return ann.Patch("application/merge-patch+json").MaxRetries(0).AbsPath("/api/v1/namespaces/default/configmaps/" + name).
			Body([]byte(body)).Do(t.Context()).Error()
	}
	data := func(n int) string { return fmt.Sprintf(`{"data":{"x":%q}}`, strings.Repeat("y", n)) }
	refused(t, patch("c0", data(2*size)), http.StatusTooManyRequests, full)
	if err := patch("c0", data(size+100)); err != nil {
		t.Errorf("a little more, which fits: %v", err)
	}
	if err := patch("c0", data(10)); err != nil {
		t.Errorf("less: %v", err)
	}
	if err := create(t.Context(), ann, "more", size); err != nil {
		t.Errorf("after an object got smaller: %v", err)
	}
	refused(t, create(t.Context(), ann, "again", size), http.StatusTooManyRequests, full)
	if err := ann.Delete().AbsPath("/api/v1/namespaces/default/configmaps/more").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := create(t.Context(), ann, "again", size); err != nil {
		t.Errorf("after an object was deleted: %v", err)
	}
	if err := s.as(t, "ann").Get().AbsPath("/api/v1/namespaces/default/configmaps").Do(t.Context()).Error(); err != nil {
		t.Errorf("a list: %v", err)
	}
}

// TestStoredBytesWithoutNamespace: neither does what has no namespace, together.
func TestStoredBytesWithoutNamespace(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{StoredBytesPerNamespace: 45_000})
	ann := s.as(t, "ann")
	made, err := 0, error(nil)
	for made < 5 && err == nil {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n%d","annotations":{"a":%q}}}`, made, strings.Repeat("y", 10_000))
		err = ann.Post().MaxRetries(0).AbsPath("/api/v1/namespaces").SetHeader("Content-Type", "application/json").Body([]byte(body)).
			Do(t.Context()).Error()
		made++
	}
	refused(t, err, http.StatusTooManyRequests, "limit StoredBytesPerNamespace is 45000: what has no namespace has 4")
	if made != 5 {
		t.Errorf("namespace %d of 10 KB was refused, want 5", made)
	}
	if err := create(t.Context(), ann, "here", 10_000); err != nil {
		t.Errorf("an object of a namespace: %v", err)
	}
}

// TestStoredBytesOfManyWriters: writes at the same time do not pass the limit together.
func TestStoredBytesOfManyWriters(t *testing.T) {
	t.Parallel()
	const size, room = 10_000, 20
	s := serve(t, fairness.Limits{StoredBytesPerNamespace: room * (size + 1000)})
	answers := make(chan error)
	for i := range 64 {
		ann := s.as(t, fmt.Sprint("ann-", i))
		go func() { answers <- create(t.Context(), ann, fmt.Sprint("c", i), size) }()
	}
	created := 0
	for range 64 {
		switch err := <-answers; {
		case err == nil:
			created++
		case !apierrors.IsTooManyRequests(err):
			t.Error(err)
		}
	}
	if created > room+1 || created == 0 { // an object is a little smaller than a share
		t.Errorf("%d objects of %d bytes were created in %d bytes", created, size, room*(size+1000))
	}
}

// TestWarn: who is over a limit is counted and logged, and not refused.
func TestWarn(t *testing.T) {
	t.Parallel()
	var log lines
	// As the binary logs by default.
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := serveLogging(t, logger, fairness.Limits{
		Mode: fairness.Warn, RequestsPerSecond: 0.001, Burst: 1, WatchesPerUser: 1, RequestsAtOncePerUser: 1, ObjectBytes: 10, ObjectsPerResource: 1,
		StoredBytesPerNamespace: 10, StoredBytesPerUser: 10, WriteBytesPerSecond: 10, NamespaceFactor: 1,
	})
	before := exceeded(t, s, "warn")
	for i, a := range s.accounts(t, "default", 2) {
		for j := range 2 {
			if err := create(t.Context(), a, fmt.Sprintf("c%d%d", i, j), 100); err != nil {
				t.Error(err)
			}
			if _, err := open(t, a); err != nil {
				t.Error(err)
			}
		}
	}
	for limit, n := range exceeded(t, s, "warn") {
		if n <= before[limit] {
			t.Errorf("nobody was over %s, by the metric", limit)
		}
		if !strings.Contains(log.String(), "level=WARN msg=\"A request is over a limit, and would be refused\"") ||
			!strings.Contains(log.String(), " limit="+limit+" caller=") {
			t.Errorf("the log says nothing of %s: %s", limit, log.String())
		}
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

// exceeded is how many requests were over which limits, by the metric.
func exceeded(t *testing.T, s *server, mode string) map[string]int {
	t.Helper()
	metrics, err := s.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{
		"RequestsPerSecond": 0, "WatchesPerUser": 0, "ObjectBytes": 0, "ObjectsPerResource": 0, "StoredBytesPerNamespace": 0,
		"WriteBytesPerSecond": 0,
	}
	for limit := range all {
		prefix := fmt.Sprintf(`sailplane_limits_exceeded_total{limit=%q,mode=%q} `, limit, mode)
		if _, rest, ok := strings.Cut(string(metrics), prefix); ok {
			if _, err := fmt.Sscan(rest, new(int)); err != nil {
				t.Fatal(err)
			}
			n := 0
			_, _ = fmt.Sscan(rest, &n)
			all[limit] = n
		}
	}
	return all
}

// TestOff: what is off limits nothing.
func TestOff(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{Mode: fairness.Off, RequestsPerSecond: 0.001, ObjectBytes: 1, StoredBytesPerNamespace: 1})
	for i := range 3 {
		if err := create(t.Context(), s.as(t, "ann"), fmt.Sprint("c", i), 100); err != nil {
			t.Error(err)
		}
	}
}
