// Command lender is a server that lends storage to tests. It writes to stdout where they ask for it, as
// ../lent does, and ends when its stdin does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
	"github.com/sailplane-dev/sailplane/test/lending/lent"
)

const (
	namespace = "default"
	resource  = "etcdstorages"
	// many is for limits that no test may reach.
	many = 1 << 30
	// pollInterval is how often an EtcdStorage is read until it is ready or gone, and patience for how long.
	pollInterval = 5 * time.Millisecond
	patience     = 2 * time.Minute
)

func main() {
	dir := flag.String("dir", "", "folder for the data of the storages")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until stdin ends.
func run(dir string) error {
	server, err := controlplane.New("lender").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, lending(dir),
	).Build()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-done:
		return err
	}
	l, err := newLender(server.ClientConfig())
	if err == nil {
		err = l.serve()
	}
	cancel()
	return errors.Join(err, <-done)
}

// lending is the part that lends. The server's own objects are in another storage: tests count revisions,
// and the server writes when it wants.
func lending(dir string) storageapi.EtcdStorages {
	return storageapi.EtcdStorages{
		Max: storageapi.Limits{Keys: many, Bytes: many << 10, Watches: many, WritesPerSecond: many},
		Storages: map[string]controlplane.Storage{
			"memory": memory.Store{},
			"sqlite": sqlite.File{Path: filepath.Join(dir, "state.db"), UnsafeNoSync: true},
			"etcd":   etcd.Embedded{Dir: filepath.Join(dir, "etcd"), UnsafeNoSync: true},
		},
	}
}

// lender makes EtcdStorages.
type lender struct {
	core  kubernetes.Interface
	lent  rest.Interface
	count atomic.Int64
}

func newLender(c *rest.Config) (*lender, error) {
	c.QPS = -1 // no limit
	clients, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	version := v1alpha1.SchemeGroupVersion()
	c.GroupVersion, c.APIPath = &version, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	lent, err := rest.RESTClientFor(c)
	return &lender{core: clients, lent: lent}, err
}

// serve answers tests until stdin ends.
func (l *lender) serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{storage}", l.answer)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	fmt.Printf("http://%s\n", listener.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	err = errors.Join(err, server.Close())
	if end := <-done; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// answer makes an EtcdStorage. None is deleted: its data would go while the next test counts revisions.
func (l *lender) answer(w http.ResponseWriter, r *http.Request) {
	s, err := l.create(r.Context(), r.PathValue("storage"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(s) // its error is that of a client that has gone
}

// create makes an EtcdStorage on the storage of a name, and returns it when it is ready.
func (l *lender) create(ctx context.Context, storage string) (*lent.Storage, error) {
	s := &v1alpha1.EtcdStorage{}
	s.Name = fmt.Sprintf("%s-%d", storage, l.count.Add(1))
	s.Spec.Storage = storage
	s.Spec.ClientCertificate.Secret = v1alpha1.Destination{Namespace: namespace, Name: s.Name}
	s.Spec.Authority.ConfigMap = v1alpha1.Destination{Namespace: namespace, Name: s.Name}
	if err := l.lent.Post().Resource(resource).Body(s).Do(ctx).Into(s); err != nil {
		return nil, err
	}
	name := s.Name
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		s = &v1alpha1.EtcdStorage{}
		err := l.lent.Get().Resource(resource).Name(name).Do(ctx).Into(s)
		return meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady), err
	})
	if err != nil {
		return nil, fmt.Errorf("EtcdStorage %q is not ready, its status is %+v: %w", name, s.Status, err)
	}
	secret, err := l.core.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	authority, err := l.core.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &lent.Storage{
		Name: name, Endpoint: s.Status.Endpoint, Authority: []byte(authority.Data["ca.crt"]),
		Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey],
	}, nil
}
