package controlplane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

// Each server on a shared storage has a Lease in kube-system, as kube-apiserver has
// (https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/1965-kube-apiserver-identity).
const (
	// presenceLabel is that of kube-apiserver's Leases. Its value is the name of the server.
	presenceLabel = "apiserver.kubernetes.io/identity"
	// addressAnnotation says where a server listens, and lagAnnotation how many revisions its slowest
	// watch of the storage was behind when the Lease was renewed.
	addressAnnotation = "sailplane.dev/address"
	lagAnnotation     = "sailplane.dev/watch-lag-revisions"
	// authorityAnnotation is the SHA-256 of the authorities whose client certificates a server takes.
	authorityAnnotation = "sailplane.dev/client-authorities"

	presenceEvery = 10 * time.Second
	// presenceFor is how long a server is there that does not renew its Lease, and forgottenAfter
	// when others remove that.
	presenceFor    = 4 * presenceEvery
	forgottenAfter = time.Hour
	// strangerAfter is how many renewals a server may have other authorities than another one: a change
	// takes seconds to reach all.
	strangerAfter = 3
	// leaveTimeout bounds the removal of a server's own Lease.
	leaveTimeout = 2 * time.Second
)

// Peer is a server on the storage.
type Peer struct {
	// ID tells it from others, and from itself before it was started again. Leases of elected work
	// name it as their holder.
	ID string
	// Address is where it listens; empty: nowhere.
	Address string
	// Self tells that it is the server that was asked.
	Self bool
	// Renewed is when it was there for the last time, by its own clock.
	Renewed time.Time
	// Lag is how many revisions its slowest watch of the storage was behind then. Nil: unknown.
	Lag *int64
	// Work are the names of the elected work of the root plane that it does.
	Work []string
}

// present says that the server is there until the context ends.
func (s *Server) present(ctx context.Context, p *Plane) error {
	if !p.stores.Shared || !p.plan.Serves(coordinationv1.SchemeGroupVersion.WithKind("Lease")) {
		return nil
	}
	defer metrics.Server(s.identity)()
	var strange map[string]int
	for {
		others, err := s.renew(ctx, p)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not say that this server is there; will retry")
		}
		strange = s.strangers(ctx, others, strange)
		select {
		case <-time.After(presenceEvery):
		case <-ctx.Done():
			return s.leave(context.WithoutCancel(ctx), p)
		}
	}
}

// presence is the name of the server's Lease.
func (s *Server) presence() string {
	_, id, _ := strings.Cut(s.identity, "_")
	return s.built.name + "-server-" + id
}

// clientAuthorities is the value of authorityAnnotation; empty: there are none.
func (s *Server) clientAuthorities() string {
	authorities := s.ClientAuthority()
	if authorities == nil {
		return ""
	}
	sum := sha256.Sum256(authorities.CurrentCABundleContent())
	return hex.EncodeToString(sum[:])
}

// strangers counts how often one after the other servers had other authorities than this one, and
// says so of those that have them for long.
func (s *Server) strangers(ctx context.Context, others []coordinationv1.Lease, before map[string]int) map[string]int {
	counts, ours := map[string]int{}, s.clientAuthorities()
	for i := range others {
		id, theirs := ptr.Deref(others[i].Spec.HolderIdentity, ""), others[i].Annotations[authorityAnnotation]
		if theirs == ours || theirs == "" || ours == "" {
			continue
		}
		if counts[id] = before[id] + 1; counts[id] == strangerAfter {
			klog.FromContext(ctx).Error(nil, "Another server on this storage refuses the users of this one: it has another "+
				"certificate authority. Give all of them the same --storage-share-key-file (sharing.Files)",
				"server", id, "address", others[i].Annotations[addressAnnotation])
		}
	}
	return counts
}

// renew writes the Lease of the server, removes those of servers that are long gone, and returns those of
// others that are there.
func (s *Server) renew(ctx context.Context, p *Plane) (others []coordinationv1.Lease, err error) {
	leases := p.client.CoordinationV1().Leases(metav1.NamespaceSystem)
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.presence(), Labels: map[string]string{presenceLabel: s.built.name},
			Annotations: map[string]string{authorityAnnotation: s.clientAuthorities()},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &s.identity, RenewTime: &now, LeaseDurationSeconds: ptr.To(int32(presenceFor / time.Second)),
		},
	}
	if address := s.Address(); address != nil {
		lease.Annotations[addressAnnotation] = address.String()
	}
	if lag := p.host.stats.ask().Lag; lag != nil {
		lease.Annotations[lagAnnotation] = strconv.FormatInt(*lag, 10)
	}
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{}) // without a version: whatever it was
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, err
	}
	all, err := leases.List(ctx, metav1.ListOptions{LabelSelector: presenceLabel + "=" + s.built.name})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		l := &all.Items[i]
		if l.Spec.RenewTime == nil {
			continue
		}
		if age := time.Since(l.Spec.RenewTime.Time); age < forgottenAfter {
			if age < presenceFor && l.Name != s.presence() {
				others = append(others, *l)
			}
			continue
		}
		err := leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &l.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return nil, err
		}
	}
	return others, nil
}

// leave removes the Lease of the server. Others see that it is not renewed, if that fails.
func (s *Server) leave(ctx context.Context, p *Plane) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	err := p.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, s.presence(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(1).Info("Did not say that this server has gone", "cause", err)
	}
	return nil
}

// Peers are the servers on the storage, with the one that is asked: those that were there within 40 s,
// by address. There are none where the storage is not shared.
func (s *Server) Peers(ctx context.Context) ([]Peer, error) {
	h := s.running()
	if h == nil || !h.backend.Shared {
		return nil, nil
	}
	all, err := h.root.client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // no Leases are served
	}
	if err != nil {
		return nil, fmt.Errorf("list the servers: %w", err)
	}
	var peers []Peer
	work := map[string][]string{} // by holder
	for i := range all.Items {
		l := &all.Items[i]
		holder := ptr.Deref(l.Spec.HolderIdentity, "")
		switch name, ours := strings.CutPrefix(l.Name, s.built.name+"-"); {
		case l.Labels[presenceLabel] == s.built.name:
			if p := peerOf(l); time.Since(p.Renewed) < presenceFor {
				p.Self = p.ID == s.identity
				peers = append(peers, p)
			}
		case ours && holder != "":
			work[holder] = append(work[holder], name)
		}
	}
	for i := range peers {
		peers[i].Work = work[peers[i].ID]
		slices.Sort(peers[i].Work)
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID)) })
	return peers, nil
}

// Serving are the servers that are there on a storage, as their Leases say, by address: none if these are
// encrypted. It is for those who want to change what is stored while no server runs.
func Serving(ctx context.Context, c *clientv3.Client, prefix string) ([]Peer, error) {
	space := keys.Space{Prefix: prefix}.Range(coordinationv1.Resource("leases")) + metav1.NamespaceSystem + "/"
	r, err := c.Get(ctx, space, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list the servers: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	var peers []Peer
	for _, kv := range r.Kvs {
		var l coordinationv1.Lease
		if _, _, err := decoder.Decode(kv.Value, nil, &l); err != nil || l.Labels[presenceLabel] == "" {
			continue
		}
		if p := peerOf(&l); time.Since(p.Renewed) < presenceFor {
			peers = append(peers, p)
		}
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.ID, b.ID)) })
	return peers, nil
}

// peerOf is the server that a Lease is of.
func peerOf(l *coordinationv1.Lease) Peer {
	p := Peer{ID: ptr.Deref(l.Spec.HolderIdentity, ""), Address: l.Annotations[addressAnnotation]}
	if l.Spec.RenewTime != nil {
		p.Renewed = l.Spec.RenewTime.Time
	}
	if lag, err := strconv.ParseInt(l.Annotations[lagAnnotation], 10, 64); err == nil {
		p.Lag = &lag
	}
	return p
}
