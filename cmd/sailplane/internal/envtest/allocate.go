package envtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// lag is how long the cache of services may be behind. A given address that is
// still missing in it then belongs to a refused service.
const lag = 10 * time.Second

// allocation gives an address and node ports to services that ask for none. It
// reads those in use from a cache of services, which may be a moment behind: so
// none is given again before all others were, and an address only after the
// cache had time to catch up.
func allocation(addresses *addresses, ports *ports) controlplane.Part {
	return admit.MutateWith("service addresses", func(list admit.Lister) admit.Func {
		return func(ctx context.Context, a admit.Attributes) error {
			service, ok := a.GetObject().(*corev1.Service)
			if !ok || a.GetSubresource() != "" || a.GetOperation() != admit.Create && a.GetOperation() != admit.Update {
				return nil
			}
			old, _ := a.GetOldObject().(*corev1.Service)
			if service.Spec.Type == corev1.ServiceTypeExternalName {
				return nil
			}
			wantsAddress := service.Spec.ClusterIP == "" && len(service.Spec.ClusterIPs) == 0 && (old == nil || old.Spec.ClusterIP == "")
			wantsPorts := hasNodePorts(service)
			if !wantsAddress && !wantsPorts {
				addresses.describe(service)
				return nil
			}
			used, err := inUse(ctx, list)
			if err != nil {
				return apierrors.NewInternalError(fmt.Errorf("give service %s an address: %w", a.GetName(), err))
			}
			if wantsAddress {
				if service.Spec.ClusterIP, err = addresses.next(used, a.IsDryRun()); err != nil {
					return apierrors.NewInternalError(err)
				}
				service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
			}
			addresses.describe(service)
			if wantsPorts {
				return ports.give(service, old, used)
			}
			return nil
		}
	})
}

// hasNodePorts tells whether the ports of the service are node ports, too.
func hasNodePorts(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts
	}
	return false
}

// used holds the addresses and ports of the services.
type used struct {
	addresses map[string]bool
	ports     map[int32]bool
}

func inUse(ctx context.Context, list admit.Lister) (used, error) {
	u := used{addresses: map[string]bool{}, ports: map[int32]bool{}}
	services, err := list(ctx, corev1.SchemeGroupVersion.WithResource("services"))
	if err != nil {
		return u, err
	}
	all, err := services.List(labels.Everything())
	if err != nil {
		return u, err
	}
	for _, obj := range all {
		s, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		ips, _, _ := unstructured.NestedStringSlice(s.Object, "spec", "clusterIPs")
		for _, ip := range ips {
			u.addresses[ip] = true
		}
		list, _, _ := unstructured.NestedFieldNoCopy(s.Object, "spec", "ports")
		items, _ := list.([]any)
		for _, item := range items {
			port, _ := item.(map[string]any)
			if n, ok := port["nodePort"].(int64); ok {
				u.ports[int32(n)] = true //nolint:gosec // a port
			}
		}
	}
	return u, nil
}

// addresses gives out the addresses of a network.
type addresses struct {
	network netip.Prefix
	size    uint64 // how many may be given, after the network's own

	mu    sync.Mutex
	last  uint64               // the last one given
	given map[string]time.Time // those that the cache may not have yet, and when they were given
}

// newAddresses reads a network. Of two, for dual-stack services, the first counts.
func newAddresses(value string) (*addresses, error) {
	first, _, _ := strings.Cut(value, ",")
	network, err := netip.ParsePrefix(strings.TrimSpace(first))
	if err != nil {
		return nil, fmt.Errorf("%q: want a network, such as 10.0.0.0/24", value)
	}
	network = network.Masked()
	bits := min(network.Addr().BitLen()-network.Bits(), 16) // enough
	if bits < 2 {
		return nil, fmt.Errorf("%q has no room for addresses: want one such as 10.0.0.0/24", value)
	}
	// The network's own, that of the API server and the broadcast address are not given.
	return &addresses{network: network, size: 1<<bits - 2, last: 1, given: map[string]time.Time{}}, nil
}

// at returns the nth address of the network.
func (a *addresses) at(n uint64) netip.Addr {
	b := a.network.Addr().AsSlice()
	tail := b[len(b)-4:]
	binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)+uint32(n)) //nolint:gosec // at most 16 bits
	at, _ := netip.AddrFromSlice(b)
	return at
}

// next returns an address that is not in use. The address of a dry run may be
// given again.
func (a *addresses) next(u used, dryRun bool) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ip, when := range a.given {
		if u.addresses[ip] || time.Since(when) > lag {
			delete(a.given, ip)
		}
	}
	for range a.size {
		a.last = a.last%a.size + 1
		ip := a.at(a.last).String()
		if _, given := a.given[ip]; a.last == 1 || given || u.addresses[ip] {
			continue
		}
		if !dryRun {
			a.given[ip] = time.Now()
		}
		return ip, nil
	}
	return "", fmt.Errorf("no address of %s is free: give a larger --service-cluster-ip-range", a.network)
}

// describe sets the IP families of a service from its addresses.
func (a *addresses) describe(s *corev1.Service) {
	if s.Spec.IPFamilyPolicy == nil {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
	if len(s.Spec.IPFamilies) > 0 {
		return
	}
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil { // a headless service
		ip = a.network.Addr()
	}
	family := corev1.IPv4Protocol
	if ip.Is6() {
		family = corev1.IPv6Protocol
	}
	s.Spec.IPFamilies = []corev1.IPFamily{family}
}

// ports gives out node ports.
type ports struct {
	first, count int32

	mu   sync.Mutex
	last int32
}

func newPorts(value string) (*ports, error) {
	first, last, err := portRange(value)
	if err != nil {
		return nil, err
	}
	return &ports{first: int32(first), count: int32(last - first + 1)}, nil //nolint:gosec // ports
}

// give gives a node port to each port of a service that has none. An update
// keeps those that the service had.
func (p *ports) give(s, old *corev1.Service, u used) error {
	had := map[string]int32{}
	if old != nil {
		for _, port := range old.Spec.Ports {
			had[string(port.Protocol)+"/"+port.Name] = port.NodePort
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.NodePort != 0 {
			continue
		}
		if port.NodePort = had[string(port.Protocol)+"/"+port.Name]; port.NodePort != 0 {
			continue
		}
		for n := int32(0); port.NodePort == 0; n++ {
			if n == p.count {
				return apierrors.NewInternalError(fmt.Errorf("no node port is free: give a larger --service-node-port-range"))
			}
			candidate := p.first + p.last
			p.last = (p.last + 1) % p.count
			if !u.ports[candidate] {
				port.NodePort, u.ports[candidate] = candidate, true
			}
		}
	}
	return nil
}
