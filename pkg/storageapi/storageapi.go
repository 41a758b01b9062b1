// Package storageapi lends storage to aggregated API servers: who writes one should not
// have to run an etcd, nor get the keys to somebody's.
//
//	apiVersion: storage.sailplane.dev/v1alpha1
//	kind: EtcdStorage
//	metadata: {name: flunders}
//	spec:
//	  clientCertificate: {secret: {namespace: wardle, name: etcd-client}}
//	  authority: {configMap: {namespace: wardle, name: etcd-ca}}
//
// Each EtcdStorage is an etcd v3 endpoint of its own, on the port and the storage of this
// server. A client is known by its certificate, which is written to the Secret, and has
// nothing but its own keys, whatever it asks for: pkg/internal/etcdserve says what is
// served, [Limits] what one may take.
//
//	connection --certificate--> tenant --keys below its root--> storage
//
// What is stored for a tenant is beside the objects of the server, in the same storage, or in
// another one that the operator names: a backup of the server has it, and servers that share a
// storage all serve it.
package storageapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

const (
	// ownStorage is the name in status.storage of the storage of the server itself.
	ownStorage = "default"
	// defaultConnectionAge is when clients are asked to connect anew: then they show
	// the certificate that is in their Secret by now.
	defaultConnectionAge = time.Hour
)

// EtcdStorages is the part that lends storage. It needs Secrets and ConfigMaps, where
// certificates are written, unless another API server has them. The zero value lends the
// server's own storage.
//
// Who may create EtcdStorages has the server write a Secret and a ConfigMap in any
// namespace, though never over one that is there: that is for administrators.
type EtcdStorages struct {
	// Address is by what API servers reach this one, "sailplane.example.com", or with a port where that is another
	// one than it listens at. The serving certificate is for that host. Empty: the address that it listens at.
	Address string
	// Kubeconfig is a file that says which API server has the Secrets and ConfigMaps that certificates are written to,
	// and how to log in there: the one that this server is behind, as an aggregated server. It is read by Build and
	// when a server starts; only its owner and group may have permissions on it. Empty: this server has them.
	//
	// The user needs the rights to get, list, watch, create, update and delete Secrets and ConfigMaps in the namespaces
	// of destinations, and in kube-system those to create Secrets, and to get and update the one named
	// sailplane-etcd-storage-authority, which has the authority of clients' certificates.
	Kubeconfig string
	// Max are the limits of each storage that says nothing else, and the largest that one
	// may have.
	Max Limits
	// Storages are further storages that an EtcdStorage may name, beside "default", the server's own. Where
	// servers share their storage, they share these, too.
	Storages map[string]controlplane.Storage
	// ConnectionAge is when clients are asked to connect anew, with the certificate that they have by then.
	// 0: an hour.
	ConnectionAge time.Duration
	// TemporaryDir is where a backup is kept that is to be restored, while it is checked and written. Empty: where
	// temporary files are ($TMPDIR).
	TemporaryDir string
}

// PartName implements the name errors use.
func (EtcdStorages) PartName() string { return "storageapi.EtcdStorages" }

// Install implements controlplane.Part: connections are the server's.
func (EtcdStorages) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer implements controlplane.ServerPart.
func (e EtcdStorages) InstallServer(p *controlplane.ServerPlan) error {
	if err := e.check(); err != nil {
		return err
	}
	if e.ConnectionAge == 0 {
		e.ConnectionAge = defaultConnectionAge
	}
	e.Max = e.Max.orDefaults()
	root := p.Root()
	if e.Kubeconfig == "" {
		root.Need("core.Secrets{}", corev1.SchemeGroupVersion.WithKind("Secret"))
		root.Need("core.ConfigMaps{}", corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		root.Feed()
	} else {
		root.Read(func() error {
			if _, err := dialing.Kubeconfig(e.Kubeconfig); err != nil {
				return fmt.Errorf("field Kubeconfig: %w", err)
			}
			return nil
		})
	}
	l := newLending(e)
	if err := root.Include(newGroup(e.Max, slices.Sorted(maps.Keys(e.Storages)), l.backups()...)); err != nil {
		return err
	}
	p.Share("authorities of etcd storages", l.share)
	p.Trust("clients of etcd storages", l.trusted)
	p.KeepElsewhere("data of etcd storages", l.elsewhere)
	p.Connect("etcd storages", l.take)
	root.Work(controlplane.Work{Name: "etcd-storages", Start: l.start, Run: l.run, Stop: l.stop})
	// With a Start, its Run begins after the Start above; without one it would begin before.
	begin := func(context.Context, *controlplane.Plane) error { return nil }
	root.Work(controlplane.Work{Name: "etcd-storages-controller", Elected: true, Start: begin, Run: l.control})
	return nil
}

// check returns everything that is wrong with the fields.
func (e EtcdStorages) check() error {
	var errs []error
	if e.Address != "" {
		if _, err := pki.URLOf(e.Address, nil); err != nil {
			errs = append(errs, fmt.Errorf("field Address: %w", err))
		}
	}
	if m := e.Max; min(m.Keys, m.Bytes, m.ValueBytes, int64(m.Watches), int64(m.WritesPerSecond)) < 0 {
		errs = append(errs, errors.New("field Max: limits are not negative; 0 is the default"))
	}
	if e.ConnectionAge < 0 {
		errs = append(errs, errors.New("field ConnectionAge: it is not negative; 0 is an hour"))
	}
	for name, s := range e.Storages {
		switch problems := validation.IsDNS1123Label(name); {
		case name == ownStorage:
			errs = append(errs, fmt.Errorf("field Storages: %q is the name of the server's own: choose another one", name))
		case len(problems) > 0:
			errs = append(errs, fmt.Errorf("field Storages: name %q: %s", name, problems[0]))
		case s == nil:
			errs = append(errs, fmt.Errorf("field Storages: %q is nil: give a storage, or leave it out", name))
		}
	}
	return errors.Join(errs...)
}
