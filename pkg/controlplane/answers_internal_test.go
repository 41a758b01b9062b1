package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// TestBudget: answers wait for memory in order, a user has a part of it, and what
// waits too long is refused.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := newBudget(AnswerLimits{Bytes: 100, BytesPerUser: 50, Wait: 10 * time.Millisecond}.withDefaults())
	take := func(user string, bytes int64) (*holding, error) {
		h := &holding{budget: b, user: user}
		return h, h.hold(t.Context(), bytes)
	}
	refused := func(why string, err error) {
		t.Helper()
		if delay, told := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !told || delay == 0 {
			t.Errorf("%s: %v, want a 429 that says when to come again", why, err)
		}
	}
	first, err := take("a", 40)
	if err != nil {
		t.Fatal(err)
	}
	_, err = take("a", 20)
	refused("the user has half of it", err)
	if err := first.hold(t.Context(), 30); err != nil {
		t.Errorf("it holds that already: %v", err)
	}
	other, err := take("b", 50)
	if err != nil {
		t.Fatalf("another user has the other half: %v", err)
	}
	refused("who holds something does not wait for more", first.hold(t.Context(), 60))
	_, err = take("c", 20)
	refused("all is taken", err)
	other.release()
	first.release()
	first.release() // again
	huge, err := take("c", 1000)
	if err != nil {
		t.Fatalf("what is larger than all runs alone: %v", err)
	}
	b.wait = time.Minute
	next := make(chan error, 1)
	go func() {
		h, err := take("d", 1)
		h.release()
		next <- err
	}()
	huge.release()
	if err := <-next; err != nil {
		t.Errorf("it waits for its turn: %v", err)
	}
	if len(b.users) > 0 {
		t.Errorf("%d users are remembered who hold nothing", len(b.users))
	}
}

// TestBudgetQueue: only so many answers of a user wait.
func TestBudgetQueue(t *testing.T) {
	t.Parallel()
	b := newBudget(AnswerLimits{Bytes: 1}.withDefaults())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2*maxHolders)
	for range 2 * maxHolders {
		h := &holding{budget: b, user: "a"}
		go func() { ended <- h.hold(ctx, 1) }()
	}
	held := 0
	for n := range 2 * maxHolders {
		if n == maxHolders { // one holds all, the others wait
			cancel()
		}
		switch err := <-ended; {
		case err == nil:
			held++
		case n < maxHolders && !apierrors.IsTooManyRequests(err):
			t.Errorf("answer %d: %v", n, err)
		}
	}
	if held != 1 {
		t.Errorf("%d answers were held, want 1", held)
	}
}

func TestFormOf(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		accept, query, agent string
		want                 store.Form
	}{
		"JSON":     {accept: "application/json", want: store.Streamed},
		"Nothing":  {want: store.Streamed},
		"Protobuf": {accept: "application/vnd.kubernetes.protobuf, */*", want: store.Streamed},
		"YAML":     {accept: "Application/YAML", want: store.YAML},
		"Kubectl":  {accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", query: "limit=500", want: store.Rows},
		"Objects":  {accept: "application/json;as=Table;v=v1;g=meta.k8s.io", query: "includeObject=Object", want: store.Rows},
		"Metadata": {accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", want: store.Rows},
		"Pretty":   {accept: "application/json", query: "pretty=1", want: store.Indented},
		"Indented": {accept: "application/json;pretty=1", want: store.Indented},
		"Curl":     {agent: "curl/8", want: store.Indented},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "/?"+c.query, nil)
			r.Header.Set("Accept", c.accept)
			r.Header.Set("User-Agent", c.agent)
			if got := formOf(r); got != c.want {
				t.Errorf("got %v, want %v: %s", got, c.want, fmt.Sprint(c))
			}
		})
	}
}

// TestWeights: a list that was large takes the seats of its bytes, and only there.
func TestWeights(t *testing.T) {
	t.Parallel()
	w := &weights{}
	large, other := httptest.NewRequest("GET", "/large", nil), httptest.NewRequest("GET", "/other", nil)
	a := &store.Answer{Form: store.Indented}
	a.Content.Store(2_500_000)
	w.note(large, a)
	if got := w.known("/large"); got != 2_500_000 {
		t.Errorf("as YAML: %d bytes", got)
	}
	a.Form = store.Streamed
	w.note(other, a)
	if got := w.known("/other"); got != streamedBytes {
		t.Errorf("as JSON: %d bytes", got)
	}
	w.note(large, &store.Answer{})
	if got := w.known("/large"); got != 0 {
		t.Errorf("when it is small: %d bytes", got)
	}
}

// TestCaller: users of two planes are two, and the accounts of a namespace one.
func TestCaller(t *testing.T) {
	t.Parallel()
	of := func(plane, name string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		return (&chain{plane: plane}).caller(r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name})))
	}
	const one, two = "system:serviceaccount:shop:one", "system:serviceaccount:shop:two"
	for name, tc := range map[string]struct {
		a, b string
		same bool
	}{
		"one user":             {of("", "jane"), of("", "jane"), true},
		"users of two planes":  {of("a", "jane"), of("b", "jane"), false},
		"accounts":             {of("a", one), of("a", two), true},
		"accounts of two":      {of("a", one), of("b", two), false},
		"of two namespaces":    {of("a", one), of("a", "system:serviceaccount:other:one"), false},
		"a user like accounts": {of("a", "system:serviceaccounts:shop:x"), of("a", one), false},
	} {
		if (tc.a == tc.b) != tc.same {
			t.Errorf("%s: %q and %q", name, tc.a, tc.b)
		}
	}
}

// TestEnded: the handler of a request that has ended takes nothing more.
func TestEnded(t *testing.T) {
	t.Parallel()
	b := newBudget(AnswerLimits{Bytes: 100}.withDefaults())
	h := &holding{budget: b, user: "a"}
	if err := h.hold(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	h.release()
	if err := h.hold(t.Context(), 10); err == nil || len(b.users) > 0 {
		t.Errorf("it holds what nobody gives back: %v", err)
	}
}
