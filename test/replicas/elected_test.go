//go:build unix

package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// leaseTime is how long others leave a Lease alone that nobody renews.
	leaseTime = 10 * time.Second
	deletion  = "sailplane-namespace-deletion"
	// slack is what a slow machine may add.
	slack = 20 * time.Second
)

// holder returns who holds the Lease of the deletion of namespaces, and since when.
func (s *server) holder(ctx context.Context) (id string, since time.Time) {
	lease, err := s.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, deletion, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || lease.Spec.AcquireTime == nil {
		return "", time.Time{}
	}
	return *lease.Spec.HolderIdentity, lease.Spec.AcquireTime.Time
}

// identity is who a server is, as its metrics say.
func (s *server) identity(t *testing.T) string {
	t.Helper()
	metrics, err := s.client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	_, rest, _ := strings.Cut(string(metrics), `sailplane_server_info{identity="`)
	id, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatal("the metrics do not say who the server is")
	}
	return id
}

// order returns the server that deletes namespaces, and the other one.
func order(t *testing.T, a, b *server) (leader, other *server) {
	t.Helper()
	var id string
	within(t, time.Minute, "that somebody deletes namespaces", func(ctx context.Context) bool {
		id, _ = a.holder(ctx)
		return id != ""
	})
	if id == a.identity(t) {
		return a, b
	}
	if id != b.identity(t) {
		t.Fatalf("neither server is %s", id)
	}
	return b, a
}

// deletes makes a namespace and deletes it, which somebody has to do.
func (s *server) deletes(t *testing.T, name string) {
	t.Helper()
	namespaces := s.client.CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	must(t, namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, leaseTime+slack, "that the namespace is gone", func(ctx context.Context) bool {
		_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestElectedWork moves from one server to the other.
func TestElectedWork(t *testing.T) {
	onEach(t, func(t *testing.T, f *fleet) {
		a, b := f.launch(t, "a"), f.launch(t, "b")
		ready(t, a, b)
		leader, other := order(t, a, b)
		other.deletes(t, "before")

		stopped := time.Now()
		must(t, leader.Interrupt())
		id := other.identity(t)
		within(t, leaseTime, "that the other server has the Lease of one that has stopped", func(ctx context.Context) bool {
			holder, since := other.holder(ctx)
			if holder == id && since.Sub(stopped) > leaseTime*3/4 {
				t.Errorf("the Lease moved %v after the orderly stop began: it was not released", since.Sub(stopped))
			}
			return holder == id
		})
		other.deletes(t, "after-stop")

		third := f.launch(t, "c")
		ready(t, third)
		killed := time.Now()
		other.Kill()
		id = third.identity(t)
		within(t, leaseTime+slack, "that the third server has the Lease of one that was killed", func(ctx context.Context) bool {
			holder, since := third.holder(ctx)
			if holder == id {
				t.Logf("the Lease moved %v after the kill", since.Sub(killed))
			}
			return holder == id
		})
		third.deletes(t, "after-kill")
	})
}

// TestFrozenLeader: a server that was stopped while it did elected work, and goes on after its Lease has
// ended, writes nothing.
func TestFrozenLeader(t *testing.T) {
	onEach(t, func(t *testing.T, f *fleet) {
		a, b := f.launch(t, "a"), f.launch(t, "b")
		ready(t, a, b)
		leader, other := order(t, a, b)
		ctx, cancel := context.WithCancel(t.Context())
		steady, config := &server{}, rest.CopyConfig(other.config)
		config.QPS, config.Burst = 300, 16 // of all together
		steady.use(t, config)
		var writers sync.WaitGroup
		for w := range 16 { // so that there is something to do at any time
			writers.Go(func() { steady.churn(ctx, t, fmt.Sprintf("churn-%d", w)) })
		}
		other.deletes(t, "under-way")
		must(t, leader.Cmd.Process.Signal(syscall.SIGSTOP))
		time.Sleep(15 * time.Second) // for longer than a Lease is
		resumed := time.Now()
		must(t, leader.Cmd.Process.Signal(syscall.SIGCONT))
		id := other.identity(t)
		if holder, _ := other.holder(t.Context()); holder != id {
			t.Errorf("the Lease is held by %s, want %s", holder, id)
		}
		within(t, time.Minute, "that the leader has ended its work", func(ctx context.Context) bool {
			metrics, err := leader.client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			return err == nil && !regexp.MustCompile(`(?m)^leader_election_master_status\{.*\} 1$`).Match(metrics)
		})
		cancel()
		writers.Wait()
		for _, e := range leader.audited(t) {
			ref := e.ObjectRef
			if e.ResponseStatus != nil && e.ResponseStatus.Code >= http.StatusBadRequest {
				continue // it was on its way when the server was stopped, and the storage refused it, or was not asked
			}
			if e.RequestReceivedTimestamp.After(resumed) && ref != nil && ref.Resource != "leases" && ref.Resource != "apiservices" { // which each server writes
				t.Errorf("after its Lease it wrote %s %s %s/%s/%s as %s: %v", e.RequestReceivedTimestamp, e.Verb, ref.Resource, ref.Namespace, ref.Name,
					e.UserAgent, e.ResponseStatus)
			}
		}
		other.deletes(t, "after-all")
		must(t, leader.Interrupt())
	})
}

// churn makes and deletes namespaces until the context ends.
func (s *server) churn(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	namespaces := s.client.CoreV1().Namespaces()
	for n := 0; ctx.Err() == nil; n++ {
		one := fmt.Sprintf("%s-%d", name, n)
		_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: one}}, metav1.CreateOptions{})
		if err == nil {
			err = namespaces.Delete(ctx, one, metav1.DeleteOptions{})
		}
		if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			t.Errorf("churn: %v", err)
			return
		}
	}
}
