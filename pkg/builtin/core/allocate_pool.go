package core

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// pool gives out numbers below its size. Those in use are known from a cache that may be
// behind, so that none is given again before all others were, and not before the cache had
// time to catch up. It begins anywhere: several servers may give from one network.
type pool struct {
	size uint32

	mu     sync.Mutex
	next   uint32
	given  map[uint32]time.Time // within lag, until the cache has it
	grants []grant              // the same and more, oldest first
}

type grant struct {
	number uint32
	at     time.Time
}

func newPool(size uint32) *pool {
	return &pool{size: size, next: rand.N(size), given: map[uint32]time.Time{}}
}

// take gives out a number that is not in use, if there is one. That of a dry run may be
// given again.
func (p *pool) take(inUse func(uint32) bool, dryRun bool) (number uint32, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.size {
		n := p.next
		p.next = (n + 1) % p.size
		if inUse(n) {
			delete(p.given, n) // the cache has caught up
			continue
		}
		if p.isGiven(n) {
			continue
		}
		if !dryRun {
			p.give(n)
		}
		return n, true
	}
	return 0, false
}

// reserve keeps a number that somebody asked for from being given to others.
func (p *pool) reserve(n uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n < p.size && !p.isGiven(n) {
		p.give(n)
	}
}

func (p *pool) give(n uint32) {
	now := time.Now()
	p.given[n] = now
	p.grants = append(p.grants, grant{n, now})
}

func (p *pool) isGiven(n uint32) bool {
	for len(p.grants) > 0 && time.Since(p.grants[0].at) > lag {
		if first := p.grants[0]; p.given[first.number].Equal(first.at) { // and was not given again since
			delete(p.given, first.number)
		}
		p.grants = p.grants[1:]
	}
	return !p.given[n].IsZero()
}

// clusterIPs gives out the addresses of a network.
type clusterIPs struct {
	network netip.Prefix
	*pool
}

// reserved is the number of addresses at the start of a network that are only given to who
// asks for one: its own, which nobody gets, and that of the API server.
const reserved = 2

// newClusterIPs reads a network. Of two, for dual-stack services, the first counts.
func newClusterIPs(value string) (*clusterIPs, error) {
	first, _, _ := strings.Cut(value, ",")
	network, err := netip.ParsePrefix(strings.TrimSpace(first))
	if err != nil {
		return nil, fmt.Errorf("cluster IPs %q: want a network, such as 10.0.0.0/24", value)
	}
	network = network.Masked()
	bits := min(network.Addr().BitLen()-network.Bits(), 16) // enough
	if bits < 2 {
		return nil, fmt.Errorf("cluster IPs %q: no room for addresses: want a network such as 10.0.0.0/24", value)
	}
	return &clusterIPs{network, newPool(1<<bits - reserved - 1)}, nil // the last one is for broadcasts
}

// at returns the nth address of the network.
func (a *clusterIPs) at(n uint32) netip.Addr {
	b := a.network.Addr().AsSlice()
	tail := b[len(b)-4:]
	binary.BigEndian.PutUint32(tail, binary.BigEndian.Uint32(tail)+n)
	at, _ := netip.AddrFromSlice(b)
	return at
}

// number is the inverse of at, for an address of the network whose number is that small.
func (a *clusterIPs) number(ip netip.Addr) (n uint32, small bool) {
	tail := func(ip netip.Addr) uint32 { b := ip.AsSlice(); return binary.BigEndian.Uint32(b[len(b)-4:]) }
	n = tail(ip) - tail(a.network.Addr())
	return n, a.at(n) == ip
}

// give gives the Service an address, or says why it cannot have the one that it asks for.
func (a *clusterIPs) give(g giving) (*field.Error, error) {
	if a == nil {
		return nil, nil
	}
	spec := &g.Spec
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) == 0 && g.old.Spec.ClusterIP == "":
		n, found := a.take(func(n uint32) bool { return g.taken(byClusterIP, a.at(n+reserved).String()) }, g.dryRun)
		if !found {
			return nil, fmt.Errorf("failed to allocate a serviceIP: no address of %s is free: give the server a larger network", a.network)
		}
		spec.ClusterIP = a.at(n + reserved).String()
		spec.ClusterIPs = []string{spec.ClusterIP}
	case spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone && spec.ClusterIP != g.old.Spec.ClusterIP:
		if invalid := a.check(g); invalid != nil {
			return invalid, nil
		}
	}
	a.describe(g)
	return nil, nil
}

// check refuses an address that is out of range or taken, as kube-apiserver does.
func (a *clusterIPs) check(g giving) *field.Error {
	ip, _ := netip.ParseAddr(g.Spec.ClusterIP)
	if !ip.IsValid() {
		return nil // the rules of Services say what is wrong
	}
	ips := g.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{g.Spec.ClusterIP}
	}
	refuse := func(why string) *field.Error {
		return field.Invalid(field.NewPath("spec", "clusterIPs"), ips, fmt.Sprintf("failed to allocate IP %s: %s", ip, why))
	}
	last := uint32(1)<<min(ip.BitLen()-a.network.Bits(), 31) - 1
	n, small := a.number(ip)
	if !a.network.Contains(ip) || small && (n == 0 || n == last && ip.Is4()) {
		return refuse(fmt.Sprintf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, a.network))
	}
	if g.taken(byClusterIP, ip.String()) {
		return refuse("provided IP is already allocated")
	}
	if small && n >= reserved && !g.dryRun {
		a.reserve(n - reserved)
	}
	return nil
}

// describe sets the IP families of a Service from its addresses. An update keeps them.
func (a *clusterIPs) describe(g giving) {
	spec, old := &g.Spec, g.old.Spec
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = cmp.Or(old.IPFamilyPolicy, new(corev1.IPFamilyPolicySingleStack))
		if old.IPFamilyPolicy == nil && len(spec.ClusterIPs) > 1 {
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		}
	}
	if len(spec.IPFamilies) > 0 {
		return
	}
	if spec.IPFamilies = slices.Clone(old.IPFamilies); len(spec.IPFamilies) > 0 {
		return
	}
	ips := spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{cmp.Or(spec.ClusterIP, old.ClusterIP)}
	}
	for _, value := range ips {
		ip, err := netip.ParseAddr(value)
		if err != nil { // a headless service
			ip = a.network.Addr()
		}
		family := corev1.IPv4Protocol
		if ip.Is6() {
			family = corev1.IPv6Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, family)
	}
}

// nodePorts gives out node ports.
type nodePorts struct {
	utilnet.PortRange
	*pool
}

// newNodePorts reads "30000-32767".
func newNodePorts(value string) (*nodePorts, error) {
	r, err := utilnet.ParsePortRange(value)
	if err != nil || r.Base < 1 || r.Size < 1 {
		return nil, fmt.Errorf("node ports %q: want two ports, such as 30000-32767", value)
	}
	return &nodePorts{*r, newPool(uint32(r.Size))}, nil //nolint:gosec // ports
}

// give gives a node port to each port of the Service that has none, or says why it cannot
// have one that it asks for. An update keeps those that the Service had.
func (p *nodePorts) give(g giving) (*field.Error, error) {
	allocates := g.Spec.AllocateLoadBalancerNodePorts
	if p == nil || !hasNodePorts(g.Service) || isLoadBalancer(g.Service) && allocates != nil && !*allocates {
		return nil, nil
	}
	key := func(port corev1.ServicePort) string { return string(port.Protocol) + "/" + port.Name }
	had, here := map[string]int32{}, map[int32]bool{}
	for _, port := range g.old.Spec.Ports {
		had[key(port)], here[port.NodePort] = port.NodePort, true
	}
	for i, port := range g.Spec.Ports {
		if port.NodePort != 0 && !here[port.NodePort] {
			if why := p.check(g, int(port.NodePort)); why != "" {
				return field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), port.NodePort, why), nil
			}
			here[port.NodePort] = true // a second one may be for another protocol
		}
	}
	for i := range g.Spec.Ports {
		port := &g.Spec.Ports[i]
		if port.NodePort == 0 {
			port.NodePort = had[key(*port)]
		}
		if port.NodePort != 0 {
			continue
		}
		n, found := p.take(func(n uint32) bool {
			number := int32(p.Base) + int32(n) //nolint:gosec // ports
			return here[number] || g.taken(byNodePort, strconv.Itoa(int(number)))
		}, g.dryRun)
		if !found {
			return nil, errors.New("failed to allocate a nodePort: no port is free: give the server a larger range of node ports")
		}
		port.NodePort = int32(p.Base) + int32(n) //nolint:gosec // ports
		here[port.NodePort] = true
	}
	return nil, nil
}

// check says why a Service cannot have a port, as kube-apiserver does.
func (p *nodePorts) check(g giving, port int) string {
	switch {
	case !p.Contains(port):
		return fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %s", p.PortRange.String())
	case g.taken(byNodePort, strconv.Itoa(port)):
		return "provided port is already allocated"
	}
	if !g.dryRun {
		p.reserve(uint32(port - p.Base)) //nolint:gosec // ports
	}
	return ""
}
