//go:build unix

package life

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// moves: the data goes to another storage and back while clients write and watch.
func (l *life) moves(t *testing.T) {
	config := l.sample.direct(l.config(t))
	for _, to := range []string{other, "default"} {
		before := l.load.acknowledged()
		_, version := list(t.Context(), t, config)
		l.kubectl(t, "", fmt.Sprintf(`patch etcdstorage %s --type=merge -p {"spec":{"storage":%q}}`, name, to), "patched")
		l.kubectl(t, "", fmt.Sprintf("wait etcdstorage/%s --timeout=120s --for=jsonpath={.status.storage}=%s", name, to))
		l.kubectl(t, "", "wait etcdstorage/"+name+" --timeout=60s --for=condition=Ready")
		l.load.await(t)
		values, moved := list(t.Context(), t, config)
		if moved <= version {
			t.Errorf("moved to %s: a list has resource version %d, and had %d before", to, moved, version)
		}
		for object := range before {
			if values[object] == "" {
				t.Errorf("moved to %s: %s is lost", to, object)
			}
		}
		for _, w := range l.watches {
			w.check(t, l.load.acknowledged())
		}
	}
}

// restored: everything is as in a backup again, and newer than all that clients have seen.
func (l *life) restored(t *testing.T) {
	direct := l.sample.direct(l.config(t))
	want, before := list(t.Context(), t, direct)
	file := filepath.Join(l.dir, "lent.backup")
	l.tenants(t, "backup", name, file)
	// In one request: kubectl waits for each object that it deletes, five in a second.
	l.kubectl(t, "", "delete --raw /apis/wardle.example.com/v1alpha1/namespaces/default/flunders", "FlunderList")
	l.kubectl(t, flunder("too-late", "1"), "create -f -", "created")
	l.tenants(t, "restore", name, file)
	l.kubectl(t, "", "wait etcdstorage/"+name+" --timeout=60s --for=condition=Ready")
	for _, config := range []*rest.Config{direct, l.config(t)} {
		until(t, "the server has what is in the backup", func(ctx context.Context) error {
			got, version, err := tryList(ctx, t, config)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("objects (-backup +list):\n%s", diff)
			}
			if version <= before {
				t.Errorf("the list has resource version %d, and had %d before", version, before)
			}
			return nil
		})
	}
}

// tenants runs "sailplane tenants" as the administrator.
func (l *life) tenants(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sailplane", append([]string{"tenants"}, append(args, "--kubeconfig", l.Kubeconfig)...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("sailplane tenants %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// limited: no object can be created when the storage is full, until some are deleted or there may be more. The objects are
// written at the server itself. It may still say that it is not ready, after a restore: its check of its storage takes up to
// two seconds to see that this was away, and the lender sends it nothing meanwhile.
func (l *life) limited(t *testing.T) {
	direct := l.sample.direct(l.config(t))
	values, _ := list(t.Context(), t, direct)
	limit := func(keys int) {
		t.Helper()
		l.kubectl(t, "", fmt.Sprintf(`patch etcdstorage %s --type=merge -p {"spec":{"limits":{"keys":%d}}}`, name, keys), "patched")
		generation := l.kubectl(t, "", "get etcdstorage "+name+" -o jsonpath={.metadata.generation}")
		l.kubectl(t, "", "wait etcdstorage/"+name+" --timeout=60s --for=jsonpath={.status.observedGeneration}="+generation)
	}
	w := &writer{client: flunders(t, direct)}
	create := func(name string) error {
		_, err := w.request(t.Context(), name, "1", true)
		return err
	}
	const room, full = 3, "etcdserver: mvcc: database space exceeded"
	limit(len(values) + room)
	var refusal error
	for i := 0; refusal == nil && i <= room; i++ {
		refusal = create(fmt.Sprintf("filler-%d", i))
	}
	if refusal == nil || !strings.Contains(refusal.Error(), full) {
		t.Errorf("a flunder too many is refused with %v, want %q", refusal, full)
	}
	l.kubectl(t, "", "wait etcdstorage/"+name+" --timeout=60s --for=condition=Ready=false")
	l.kubectl(t, "", "get etcdstorage "+name+" -o jsonpath={.status.conditions}", "LimitReached")
	_, err := w.request(t.Context(), "filler-0", "2", false)
	must(t, err)
	if now, _ := list(t.Context(), t, direct); now["filler-0"] != "2" {
		t.Errorf("an update of an object in a full storage leaves it at %q, want 2", now["filler-0"])
	}
	must(t, w.client.Delete(t.Context(), "filler-0", metav1.DeleteOptions{}))
	until(t, "there is room for another one", func(context.Context) error { // the deletion is counted when it is seen
		return create("another")
	})
	if err := create("late"); err == nil || !strings.Contains(err.Error(), full) {
		t.Errorf("a flunder too many is refused with %v, want %q", err, full)
	}
	limit(len(values) + 2*room)
	must(t, create("late"))
	l.kubectl(t, "", "wait etcdstorage/"+name+" --timeout=60s --for=condition=Ready")
}

// deleted: with the EtcdStorage goes all that was stored or written for it.
func (l *life) deleted(t *testing.T) {
	l.kubectl(t, "", "delete etcdstorage "+name+" --timeout=60s", "deleted")
	for _, o := range []string{"secret " + secret, "configmap " + caMap} {
		if out := l.refused(t, "", "get --namespace="+namespace+" "+o); !strings.Contains(out, "NotFound") {
			t.Errorf("%s: %s", o, out)
		}
	}
	l.hasNothing(t, l.sample.direct(l.config(t)))
	l.sample.Kill()

	// One of the same name has what a deletion left.
	l.lent(t)
	files := mount(t, l.config(t))
	client := l.etcd(t, files)
	r, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithKeysOnly())
	must(t, err)
	for _, kv := range r.Kvs {
		t.Errorf("a later EtcdStorage has %s", kv.Key)
	}
	l.kubectl(t, "", "delete etcdstorage "+name+" --timeout=60s", "deleted")

	must(t, l.Stop())
	if l.url != inMemory {
		holdsNothing(t, l.url, l.password, true)
	}
	if l.other != inMemory {
		holdsNothing(t, l.other, "", false)
	}
}

// hasNothing wants the sample-apiserver to have no objects any more. It waits for its storage, and shows no old ones.
func (l *life) hasNothing(t *testing.T, config *rest.Config) {
	t.Helper()
	const long = 3 * time.Second // it has none from now on: this needs no patience
	config.Timeout = long
	f := &follower{client: flunders(t, config)}
	if _, err := f.list(t.Context()); err == nil {
		t.Errorf("without a storage, the server has %v", f.seen)
	}
}

// etcd is a client of the EtcdStorage.
func (l *life) etcd(t *testing.T, files *kubelet) *clientv3.Client {
	t.Helper()
	at := filepath.Join(files.dir, secret)
	pair, err := tls.LoadX509KeyPair(filepath.Join(at, "tls.crt"), filepath.Join(at, "tls.key"))
	must(t, err)
	authority, err := os.ReadFile(filepath.Join(files.dir, caMap, "ca.crt"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + l.address}, Context: t.Context(),
		TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
