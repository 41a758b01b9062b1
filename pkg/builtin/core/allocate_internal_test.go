package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// nobody has anything.
func nobody(string, string) bool { return false }

// drain takes all addresses, in their order.
func drain(t *testing.T, a *clusterIPs) []string {
	t.Helper()
	a.next = 0
	var all []string
	for {
		g := giving{Service: &corev1.Service{}, old: &corev1.Service{}, taken: nobody}
		if _, err := a.give(g); err != nil {
			return all
		}
		all = append(all, g.Spec.ClusterIP)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, network, first, last string
		count                        int
	}{
		"Default": {"as of envtest", "10.0.0.0/24", "10.0.0.2", "10.0.0.254", 253},
		"Small":   {"the smallest one with room for one", "10.0.0.0/30", "10.0.0.2", "10.0.0.2", 1},
		"Inside":  {"an address in the network will do", "192.168.7.9/29", "192.168.7.10", "192.168.7.14", 5},
		"Both":    {"of two families the first counts", "10.0.0.0/30, fd00::/108", "10.0.0.2", "10.0.0.2", 1},
		"IPv6":    {"part of a large network is enough", "fd00::/112", "fd00::2", "fd00::fffe", 65533},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := newClusterIPs(tc.network)
			if err != nil {
				t.Fatal(err)
			}
			got := drain(t, a)
			if len(got) != tc.count || got[0] != tc.first || got[len(got)-1] != tc.last {
				t.Errorf("%s: %d addresses, %s to %s, want %d, %s to %s", tc.reason,
					len(got), got[0], got[len(got)-1], tc.count, tc.first, tc.last)
			}
		})
	}
}

func TestWrongRanges(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"10.0.0.0", "10.0.0.0/31", "nets", ","} {
		if _, err := newAllocation(wrong, ""); err == nil || !strings.Contains(err.Error(), "want a network") {
			t.Errorf("%q: %v, want an error that says what is wanted", wrong, err)
		}
	}
	for _, wrong := range []string{"2-1", "0-5", "1-70000", "ports", " "} {
		if _, err := newAllocation("", wrong); err == nil || !strings.Contains(err.Error(), "want two ports") {
			t.Errorf("%q: %v, want an error that says what is wanted", wrong, err)
		}
	}
}

// TestPool has the cache be behind: what was just given is not in it. Where the pool
// begins is chance.
func TestPool(t *testing.T) {
	t.Parallel()
	free := func(uint32) bool { return false }
	synctest.Test(t, func(t *testing.T) {
		p := newPool(13)
		p.reserve(4) // somebody asked for it
		seen := map[uint32]bool{4: true}
		for range 12 {
			if n, found := p.take(free, true); !found || seen[n] {
				t.Fatalf("%d (%v) for a dry run, want one that nobody has: %v", n, found, seen)
			}
			n, found := p.take(free, false)
			if !found || seen[n] {
				t.Fatalf("%d (%v), want one that nobody has: %v", n, found, seen)
			}
			seen[n] = true
		}
		if n, found := p.take(free, false); found {
			t.Errorf("%d was given again", n)
		}
		time.Sleep(lag + 1)
		if n, found := p.take(func(n uint32) bool { return n != 7 }, false); !found || n != 7 {
			t.Errorf("%d, %v: the only one that is free was of a service that was refused: it is free again", n, found)
		}
		if len(p.given) != 1 || len(p.grants) != 1 {
			t.Errorf("%d and %d are remembered, want only the last one", len(p.given), len(p.grants))
		}
	})
}

func TestNodePorts(t *testing.T) {
	t.Parallel()
	service := func(ports ...int32) *corev1.Service {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}
		for i, n := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Protocol: corev1.ProtocolTCP, NodePort: n})
		}
		return s
	}
	both := service(30001, 30001)
	both.Spec.Ports[1].Protocol = corev1.ProtocolUDP
	off := service(0)
	off.Spec.Type, off.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
	for name, tc := range map[string]struct {
		reason       string
		service, old *corev1.Service
		others       string // the port of another one
		want         []int32
		err          string
	}{
		"Given":     {reason: "those it asks for, and others", service: service(0, 30001, 0), want: []int32{30000, 30001, 30002}},
		"Kept":      {reason: "an update has the old one", service: service(0), old: service(30001), others: "30001", want: []int32{30001}},
		"KeptOther": {reason: "a port of another range may stay", service: service(80), old: service(80), want: []int32{80}},
		"Protocols": {reason: "one number for two protocols", service: both, want: []int32{30001, 30001}},
		"Off":       {reason: "a load balancer may need none", service: off, want: []int32{0}},
		"Taken": {
			reason: "another one has it", service: service(30001), others: "30001",
			err: `spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated`,
		},
		"Outside": {
			reason: "the range ends before it", service: service(30002, 30003),
			err: `spec.ports[1].nodePort: Invalid value: 30003: provided port is not in the valid range. The range of valid ports is 30000-30002`,
		},
		"Full": {reason: "there are three", service: service(0, 0, 0, 0), err: "no port is free"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := newNodePorts("30000-30002")
			if err != nil {
				t.Fatal(err)
			}
			if tc.old == nil {
				tc.old = &corev1.Service{}
			}
			invalid, err := p.give(giving{Service: tc.service, old: tc.old, taken: func(_, value string) bool { return value == tc.others }})
			if invalid != nil {
				err = errors.New(invalid.Error())
			}
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: got %v, want %s", tc.reason, err, tc.err)
				}
				return
			}
			got := map[int32]int{}
			for _, port := range tc.service.Spec.Ports {
				got[port.NodePort]++
			}
			want := map[int32]int{}
			for _, n := range tc.want {
				want[n]++
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v, ports %v: %s", tc.reason, err, slices.Sorted(maps.Keys(got)), diff)
			}
		})
	}
}
