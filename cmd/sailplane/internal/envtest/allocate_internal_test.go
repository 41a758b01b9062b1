package envtest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestAddresses(t *testing.T) {
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
			a, err := newAddresses(tc.network)
			if err != nil {
				t.Fatal(err)
			}
			u := used{addresses: map[string]bool{}}
			var got []string
			for {
				ip, err := a.next(u, false)
				if err != nil {
					break
				}
				u.addresses[ip] = true
				got = append(got, ip)
			}
			if len(got) != tc.count || got[0] != tc.first || got[len(got)-1] != tc.last {
				t.Errorf("%s: %d addresses, %s to %s, want %d, %s to %s", tc.reason,
					len(got), got[0], got[len(got)-1], tc.count, tc.first, tc.last)
			}
		})
	}
	for _, wrong := range []string{"", "10.0.0.0", "10.0.0.0/31", "nets"} {
		if _, err := newAddresses(wrong); err == nil || !strings.Contains(err.Error(), "want") && !strings.Contains(err.Error(), "room") {
			t.Errorf("%q: %v, want an error that says what is wanted", wrong, err)
		}
	}
}

// TestAddressIsNotGivenAgain has the cache be behind: what was just given is not in it.
func TestAddressIsNotGivenAgain(t *testing.T) {
	a, err := newAddresses("10.0.0.0/28")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		for range 13 {
			if ip, err := a.next(used{}, true); err != nil || seen[ip] {
				t.Fatalf("%s (%v) for a dry run, want one that nobody has: %v", ip, err, seen)
			}
			ip, err := a.next(used{}, false)
			if err != nil || seen[ip] || ip == "10.0.0.1" {
				t.Fatalf("%s (%v), want one that nobody has: %v", ip, err, seen)
			}
			seen[ip] = true
		}
		if ip, err := a.next(used{}, false); err == nil {
			t.Errorf("%s was given again", ip)
		}
		time.Sleep(lag + 1)
		if _, err := a.next(used{}, false); err != nil {
			t.Errorf("those of services that were refused are not free again: %v", err)
		}
	})
}

func TestPorts(t *testing.T) {
	p, err := newPorts("30000-30002")
	if err != nil {
		t.Fatal(err)
	}
	service := func(ports ...int32) *corev1.Service {
		s := &corev1.Service{}
		for i, n := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), NodePort: n})
		}
		return s
	}
	s := service(0, 30001, 0)
	if err := p.give(s, nil, used{ports: map[int32]bool{30001: true}}); err != nil {
		t.Fatal(err)
	}
	if s.Spec.Ports[0].NodePort != 30000 || s.Spec.Ports[1].NodePort != 30001 || s.Spec.Ports[2].NodePort != 30002 {
		t.Errorf("the ports are %v, want 30000, the one it has, and 30002", s.Spec.Ports)
	}
	update := service(0)
	if err := p.give(update, s, used{ports: map[int32]bool{30000: true, 30001: true, 30002: true}}); err != nil {
		t.Fatal(err)
	}
	if got := update.Spec.Ports[0].NodePort; got != 30000 {
		t.Errorf("after an update without it the port is %d, want the one it had", got)
	}
	if err := p.give(service(0), nil, used{ports: map[int32]bool{30000: true, 30001: true, 30002: true}}); err == nil {
		t.Error("no port is free, and there is no error")
	}
	for _, wrong := range []string{"", "30000", "2-1", "0-5", "1-70000"} {
		if _, err := newPorts(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}
