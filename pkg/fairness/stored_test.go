package fairness_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// spread makes namespaces n0, n1 and so on.
func (s *server) spread(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		if _, err := s.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// createIn creates a ConfigMap of 10 KB.
func createIn(t *testing.T, client rest.Interface, namespace, name string) error {
	t.Helper()
	return client.Post().MaxRetries(0).AbsPath("/api/v1/namespaces/"+namespace+"/configmaps").SetHeader("Content-Type", "application/json").
		Body(fmt.Appendf(nil, `{"metadata":{"name":%q},"data":{"x":%q}}`, name, strings.Repeat("x", 10_000))).Do(t.Context()).Error()
}

// TestStoredBytesOfUser: what a user created takes no more than the limit, in all namespaces.
func TestStoredBytesOfUser(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{StoredBytesPerUser: 45_000})
	s.spread(t, 5)
	ann, bob := s.as(t, "ann"), s.as(t, "bob")
	for i := range 4 {
		if err := createIn(t, ann, fmt.Sprint("n", i), "c"); err != nil {
			t.Fatal(err)
		}
	}
	const full = `limit StoredBytesPerUser is 45000: what user "ann" created has 4`
	refused(t, createIn(t, ann, "n4", "c"), http.StatusTooManyRequests, full)
	grow := func(client rest.Interface, n int) error {
		return client.Patch("application/merge-patch+json").MaxRetries(0).AbsPath("/api/v1/namespaces/n0/configmaps/c").
			Body(fmt.Appendf(nil, `{"data":{"x":%q}}`, strings.Repeat("y", n))).Do(t.Context()).Error()
	}
	refused(t, grow(ann, 20_000), http.StatusTooManyRequests, full)
	refused(t, grow(bob, 20_000), http.StatusTooManyRequests, full)
	if err := createIn(t, bob, "n4", "c"); err != nil {
		t.Errorf("another user: %v", err)
	}
	refused(t, createIn(t, ann, "n4", "c"), http.StatusTooManyRequests, full) // and it stays the other's
	if err := grow(ann, 100); err != nil {
		t.Errorf("less: %v", err)
	}
	if err := createIn(t, ann, "n4", "d"); err != nil {
		t.Errorf("after an object got smaller: %v", err)
	}
	refused(t, createIn(t, ann, "n4", "e"), http.StatusTooManyRequests, full)
	if err := s.CoreV1().ConfigMaps("n1").Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := createIn(t, ann, "n4", "e"); err != nil {
		t.Errorf("after somebody deleted an object: %v", err)
	}
	for i := range 6 {
		if err := createIn(t, s.as(t, "root", "system:masters"), "n4", fmt.Sprint("root", i)); err != nil {
			t.Errorf("an administrator: %v", err)
		}
	}
}

// TestStoredBytesOfUserAgain: nobody gets rid of an object by creating another one with its name.
func TestStoredBytesOfUserAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{StoredBytesPerUser: 45_000})
	s.spread(t, 8)
	ann, stored := s.as(t, "ann"), 0
	for i := range 8 {
		namespace := fmt.Sprint("n", i)
		answers := make(chan error)
		for range 4 {
			go func() { answers <- createIn(t, ann, namespace, "c") }()
		}
		for range 4 {
			if err := <-answers; err == nil {
				stored++
			}
		}
		at := ann.Delete().AbsPath("/api/v1/namespaces/" + namespace + "/configmaps/c")
		if i%2 == 0 && at.Do(t.Context()).Error() == nil {
			if stored--; createIn(t, ann, namespace, "c") == nil {
				stored++
			}
		}
	}
	if stored != 4 {
		t.Errorf("%d objects of 10 KB are stored, want 4", stored)
	}
}

// TestStoredBytesOfAccounts: eight accounts of a namespace get no further than the namespace.
func TestStoredBytesOfAccounts(t *testing.T) {
	t.Parallel()
	s := serve(t, fairness.Limits{StoredBytesPerUser: 15_000, NamespaceFactor: 3})
	s.spread(t, 8)
	created := 0
	var last error
	for i, a := range s.accounts(t, "team", 8) {
		if err := createIn(t, a, fmt.Sprint("n", i), "c"); err != nil {
			last = err
		} else {
			created++
		}
	}
	refused(t, last, http.StatusTooManyRequests, "limit StoredBytesPerUser is 15000, 3 times that for a namespace: "+
		`what the service accounts of namespace "team" created has 4`)
	if created != 4 {
		t.Errorf("%d objects were created, want 4", created)
	}
	if err := createIn(t, s.accounts(t, "other", 1)[0], "n7", "d"); err != nil {
		t.Errorf("an account of another namespace: %v", err)
	}
}

// TestStoredBytesOfUserFollow: what is created while there is no limit counts when there is one.
func TestStoredBytesOfUserFollow(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[fairness.Limits]
	now.Store(&fairness.Limits{})
	s := serve(t, fairness.FollowLimits(func() fairness.Limits { return *now.Load() }))
	ann := s.as(t, "ann")
	if err := createIn(t, ann, "default", "created"); err != nil {
		t.Fatal(err)
	}
	applied := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"x":%q}}`, strings.Repeat("x", 10_000))
	if err := ann.Patch("application/apply-patch+yaml").AbsPath("/api/v1/namespaces/default/configmaps/applied").
		Param("fieldManager", "ann").Body(applied).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	now.Store(&fairness.Limits{StoredBytesPerUser: 15_000})
	refused(t, createIn(t, ann, "default", "d"), http.StatusTooManyRequests, `what user "ann" created has 2`)
}
