//go:build unix

package etcdserve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/test/database"
)

// TestTwoKubeAPIServers has two kube-apiservers, each on an endpoint of its own, on one database, where
// transactions are committed in another order than their rows are numbered in. Who watches at either of
// them sees the writes of both, all of them and in one order.
func TestTwoKubeAPIServers(t *testing.T) {
	t.Parallel()
	db := postgres(t)
	endpoints := []*endpoint{serve(t, db, "127.0.0.1:0"), serve(t, db, "127.0.0.1:0")}
	var servers [2]*server
	for i, e := range endpoints {
		// Without a cache, each list and each watch is one of the endpoint.
		servers[i] = run(t, e, fmt.Sprintf("--watch-cache=%t", i == 0))
	}
	database.DelayCommits(t, db.full, "sailplane_changes")
	servers[0].namespace(t, "shared")
	var clients [2]dynamic.ResourceInterface
	for i, s := range servers {
		clients[i] = s.dynamic.Resource(configMaps()).Namespace("shared")
	}
	const writers, writes, lateEach = 12, 60, 20
	_, from := listed(t, clients[0])
	watches := []*follower{follow(t, clients[0], from), follow(t, clients[1], from)}
	made := make([][]change, writers)
	var group sync.WaitGroup
	group.Go(func() {
		if err := together(writers, func(w int) (err error) {
			made[w], err = write(t.Context(), clients[w%2], fmt.Sprintf("writer-%d", w), writes)
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	late := lists(t, clients[:], lateEach)
	group.Wait()
	all := []change{finish(t, clients[1])}
	for _, m := range made {
		all = append(all, m...)
	}
	first, second := watches[0].seen(t), watches[1].seen(t)
	if diff := equal(all, first); diff != "" {
		t.Errorf("changes seen at the first server (-made +seen):\n%s", diff)
	}
	if diff := cmp.Diff(first, second, cmp.AllowUnexported(change{})); diff != "" {
		t.Errorf("changes seen (-first server +second server):\n%s", diff)
	}
	want := replayed(map[string]string{}, first)
	for i, c := range clients {
		got, _ := listed(t, c)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("objects of server %d (-changes +list):\n%s", i, diff)
		}
	}
	for i, l := range late {
		if diff := cmp.Diff(want, replayed(l.versions, l.watch.seen(t))); diff != "" {
			t.Errorf("objects of client %d, which listed and watched from there (-changes +client):\n%s", i, diff)
		}
	}
	t.Run("both compact", func(t *testing.T) {
		for _, s := range servers {
			s.restart(t, "--etcd-compaction-interval=1s")
		}
		for i, e := range endpoints {
			until(t, fmt.Sprintf("the history of endpoint %d ends at a later revision", i), e.compacted(t, from))
		}
		for i, c := range clients {
			got, _ := listed(t, c)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects of server %d after a compaction (-changes +list):\n%s", i, diff)
			}
			refuses(t, c, from)
		}
	})
}

// refuses expects that a watch from a resource version on is refused, with what has clients list again.
func refuses(t *testing.T, c dynamic.ResourceInterface, version string) {
	t.Helper()
	w, err := c.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err == nil {
		defer w.Stop()
		e := <-w.ResultChan() // which is closed when the client's time is over
		if e.Type != watch.Error {
			t.Errorf("a watch from a compacted resource version on says %v, want an error", e)
			return
		}
		err = apierrors.FromObject(e.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from a compacted resource version on says %v, want that it is gone", err)
	}
}

// compacted tells whether a revision is there no more.
func (e *endpoint) compacted(t *testing.T, revision string) func(context.Context) error {
	t.Helper()
	r, err := strconv.ParseInt(revision, 10, 64)
	must(t, err)
	c := e.client(t)
	return func(ctx context.Context) error {
		_, err := c.Get(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(r), clientv3.WithCountOnly())
		if err == nil {
			return fmt.Errorf("revision %d can be read", r)
		}
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("read revision %d: %w", r, err)
		}
		return nil
	}
}

// client is a client of the endpoint with the certificate that it has made for clients.
func (e *endpoint) client(t *testing.T) *clientv3.Client {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(filepath.Join(e.dir, "admin.crt"), filepath.Join(e.dir, "admin.key"))
	must(t, err)
	authorities, err := os.ReadFile(filepath.Join(e.dir, "ca.crt"))
	must(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authorities)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.url}, TLS: config})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// lister is a client that has listed, and watches from there.
type lister struct {
	versions map[string]string
	watch    *follower
}

// lists has clients list and watch while others write, one at either server each time some more objects are there.
func lists(t *testing.T, clients []dynamic.ResourceInterface, each int) (all []lister) {
	t.Helper()
	const more = 10
	for n := range each * len(clients) {
		l, c := lister{}, clients[n%len(clients)]
		var at string
		until(t, "some more objects are there", func(context.Context) error {
			if l.versions, at = listed(t, c); len(l.versions) < n*more {
				return fmt.Errorf("there are %d", len(l.versions))
			}
			return nil
		})
		l.watch = follow(t, c, at)
		all = append(all, l)
	}
	return all
}
