package aggregator

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// published is the ConfigMap that tells other servers whom to believe, and the begin of
	// the name of the Role that may read it, as in Kubernetes
	// (https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/).
	published = "extension-apiserver-authentication"
	// publishTimeout bounds how long a request waits for what it may be about.
	publishTimeout = 5 * time.Second
	// maxAuthorities is how many authorities are published: other servers on the same storage
	// have theirs, and one that keeps nothing has another after each start.
	maxAuthorities = 8
)

// publisher keeps the ConfigMap and the Role, from when a server or a request needs them.
type publisher struct {
	identity *identity
	serves   func(what string) bool
	wanted   chan struct{} // room for one
	begun    atomic.Bool   // run is called: the plane has started
	done     chan struct{} // closed when they were written once
}

func newPublisher(i *identity, p *controlplane.Plan) *publisher {
	return &publisher{
		identity: i, wanted: make(chan struct{}, 1), done: make(chan struct{}),
		serves: func(what string) bool {
			if what == "Role" {
				return p.Serves(rbacv1.SchemeGroupVersion.WithKind(what))
			}
			return p.Serves(corev1.SchemeGroupVersion.WithKind(what))
		},
	}
}

// want has them written, soon.
func (p *publisher) want() { signal.Wake(p.wanted) }

// isAbout tells whether a request may be about what is published: it reads the ConfigMap or the
// Role, or binds that.
func isAbout(info *request.RequestInfo) bool {
	if info.Namespace != metav1.NamespaceSystem {
		return false
	}
	reads := slices.Contains([]string{"get", "list", "watch"}, info.Verb)
	switch info.Resource {
	case "configmaps":
		return reads && (info.Name == "" || info.Name == published)
	case "roles":
		return reads && (info.Name == "" || info.Name == published+"-reader")
	case "rolebindings":
		return !reads
	}
	return false
}

// wrap has them written before the first request that may be about them.
func (p *publisher) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if ok && isAbout(info) && p.begun.Load() && !signal.Closed(p.done) && !isOwn(r) {
			p.want()
			late := time.NewTimer(publishTimeout)
			select {
			case <-p.done:
			case <-late.C:
			case <-r.Context().Done():
			}
			late.Stop()
		}
		next.ServeHTTP(w, r)
	})
}

// run writes them when they are wanted, and again when they change, until the context ends.
func (p *publisher) run(ctx context.Context, plane *controlplane.Plane) error {
	p.begun.Store(true)
	if !p.serves("ConfigMap") {
		close(p.done)
		return nil
	}
	select {
	case <-p.wanted:
	case <-ctx.Done():
		return nil
	}
	for ctx.Err() == nil {
		changed := p.identity.changed.Next()
		pause := time.Hour // somebody may have deleted them
		if err := p.write(ctx, plane); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not write what other servers need to know this one", "configmap", published)
			pause = checkTimeout
		} else if !signal.Closed(p.done) {
			close(p.done)
		}
		again := time.NewTimer(pause)
		select {
		case <-changed:
		case <-p.wanted:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
	return nil
}

// write writes what is not right.
func (p *publisher) write(ctx context.Context, plane *controlplane.Plane) error {
	now, err := p.identity.get(ctx)
	if err != nil {
		return err
	}
	client, err := ownClient(plane)
	if err != nil {
		return err
	}
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	found, err := configMaps.Get(ctx, published, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return err
	}
	if absent {
		found = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: published}}
	}
	want := p.content(now, plane.Server(), found.Data["requestheader-client-ca-file"])
	switch {
	case absent:
		found.Data = want
		_, err = configMaps.Create(ctx, found, metav1.CreateOptions{})
	case !reflect.DeepEqual(found.Data, want):
		found.Data = want
		_, err = configMaps.Update(ctx, found, metav1.UpdateOptions{})
	}
	if err != nil || !p.serves("Role") {
		return err
	}
	_, err = client.RbacV1().Roles(metav1.NamespaceSystem).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: published + "-reader"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{published},
			Verbs: []string{"get", "list", "watch"},
		}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// content is that of the ConfigMap. Authorities that others published stay in it.
func (p *publisher) content(now *proxyCertificate, server *controlplane.Server, before string) map[string]string {
	list := func(words ...string) string {
		content, _ := json.Marshal(words) // of strings
		return string(content)
	}
	all := map[string]string{
		"requestheader-client-ca-file":       string(withOthers(now.authority, []byte(before))),
		"requestheader-allowed-names":        list(proxyName),
		"requestheader-username-headers":     list("X-Remote-User"),
		"requestheader-uid-headers":          list("X-Remote-Uid"),
		"requestheader-group-headers":        list("X-Remote-Group"),
		"requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
	}
	if clients := server.ClientAuthority(); clients != nil {
		all["client-ca-file"] = string(clients.CurrentCABundleContent())
	}
	return all
}

// withOthers are authorities, and after them what else a bundle has that is valid.
func withOthers(own, bundle []byte) []byte {
	all := slices.Clone(own)
	for n := bytes.Count(own, []byte("-----BEGIN")); n < maxAuthorities; {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		one := pem.EncodeToMemory(block)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || time.Now().After(cert.NotAfter) || bytes.Contains(all, one) {
			continue
		}
		all = append(all, one...)
		n++
	}
	return all
}
